"""Sockets: connections to brokers; knows brokers, not groups."""
