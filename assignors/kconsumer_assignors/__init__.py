"""kconsumer's four assignors: range, roundrobin, sticky, cooperative-sticky.

They are in the same wheel as kconsumer. But like any other plugin, they are found through entry points, and import only
public names of kconsumer. Read `roundrobin.py` first, which is the shortest. The two sticky assignors have
`_ownership.py`, `_sticky.py` and `_partition_classes.py` in common.
"""
