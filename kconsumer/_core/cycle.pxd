"""What the parts of cycle.pyx declare."""

include "cycle/fetch_buffer.pxd"
include "cycle/fetch_requests.pxd"
include "cycle/fetch_cycle.pxd"
