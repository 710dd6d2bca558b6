"""Finds and validates positions: the offset at which an assigned partition is read next."""
