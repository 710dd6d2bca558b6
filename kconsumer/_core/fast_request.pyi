# Nothing here is for Python: see fast_request.pxd.
