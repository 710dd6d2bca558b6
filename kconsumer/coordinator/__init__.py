"""The client side of consumer groups: coordinator lookup, membership, heartbeats and committed offsets."""
