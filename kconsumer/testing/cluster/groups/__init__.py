"""The group coordinator of the model: classic groups, consumer groups (KIP-848), and committed offsets.

`coordinator.py` has the registry of groups and decides which broker coordinates a group. `group.py` has what groups of
all types have in common. The modules named after a type or an API have the rest.
"""
