"""Threads, queues and sockets: the only package that uses both managers and the network."""
