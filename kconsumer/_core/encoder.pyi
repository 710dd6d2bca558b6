# Nothing here is for Python: see encoder.pxd.
