# Nothing here is for Python: see fast_empty.pxd.
