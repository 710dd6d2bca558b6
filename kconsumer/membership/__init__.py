"""Managers of group membership."""
