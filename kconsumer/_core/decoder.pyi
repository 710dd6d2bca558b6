# Nothing here is for Python: see decoder.pxd.
