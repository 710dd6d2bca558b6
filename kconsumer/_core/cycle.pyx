"""The ordinary fetch cycle and the ordinary poll, on the objects of the managers.

The parts are in the folder of this name.
"""

include "cycle/positions.pyx"
include "cycle/fetch_buffer.pyx"
include "cycle/fetch_requests.pyx"
include "cycle/fetch_cycle.pyx"
include "cycle/collect.pyx"
include "cycle/poll.pyx"
