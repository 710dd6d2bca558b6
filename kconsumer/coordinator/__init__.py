"""Managers of what a group's coordinator answers: membership, heartbeats, commits."""
