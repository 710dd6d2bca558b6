"""Managers of one question each: events and `now` in, requests out; no sockets, threads or clocks."""
