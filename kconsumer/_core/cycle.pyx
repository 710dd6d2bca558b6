"""The ordinary fetch cycle, on the objects of the fetch manager.

The parts are in the folder of this name.
"""

include "cycle/fetch_buffer.pyx"
include "cycle/fetch_requests.pyx"
include "cycle/fetch_cycle.pyx"
