"""Managers of positions: where an assigned partition is read from, and whether its position is still valid."""
