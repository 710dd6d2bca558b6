"""kconsumer's four assignors: range, roundrobin, sticky, cooperative-sticky.

They ship in the same wheel but are found through entry points like anybody's plugin, and use public kconsumer
names only. Start with `roundrobin.py`, the shortest; the sticky two share `_claims.py` and `_balance.py`.
"""
