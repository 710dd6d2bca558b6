"""Requests metadata: brokers, topics, partitions and their leaders."""
