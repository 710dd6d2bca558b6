"""Managers of cluster metadata: when it is requested, and one-off questions about topics."""
