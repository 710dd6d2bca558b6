# Nothing here is for Python: see reading.pxd.
