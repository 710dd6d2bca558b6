"""Compiled code: turns bytes into values; knows nothing of groups, sockets, threads or time."""
