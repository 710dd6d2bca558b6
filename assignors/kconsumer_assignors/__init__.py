"""kconsumer's four assignors: range, roundrobin, sticky, cooperative-sticky.

They are in the same wheel, but are found through entry points like any other plugin, and import only public names of
kconsumer. Start with `roundrobin.py`, the shortest. The two sticky assignors share `_ownership.py`, `_sticky.py` and
`_partition_classes.py`.
"""
