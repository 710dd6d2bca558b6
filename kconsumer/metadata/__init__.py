"""Managers of metadata: nodes, topics, partitions and their leaders."""
