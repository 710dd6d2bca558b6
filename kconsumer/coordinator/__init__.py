"""The requests to a group's coordinator and what follows from them: membership, heartbeats, commits."""
