"""Share groups (KIP-932) on the brokers that lead partitions: which records are acquired, and by whom.

The group coordinator, which knows the members of share groups, is in `groups/`.
"""
