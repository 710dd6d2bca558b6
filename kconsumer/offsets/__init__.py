"""Managers of positions: where an assigned partition is read from, and whether that is still valid."""
