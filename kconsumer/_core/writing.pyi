# Nothing here is for Python: see writing.pxd.
