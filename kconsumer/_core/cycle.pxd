"""What the parts of cycle.pyx declare."""

include "cycle/positions.pxd"
include "cycle/fetch_buffer.pxd"
include "cycle/fetch_requests.pxd"
include "cycle/fetch_cycle.pxd"
include "cycle/collect.pxd"
include "cycle/poll.pxd"
