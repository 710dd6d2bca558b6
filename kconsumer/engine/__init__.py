"""Threads, queues and sockets: the only code that sees both managers and the network."""
