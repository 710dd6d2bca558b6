"""The clock, the engine's lock, and the signal handlers that wait for it.

The parts are in the folder of this name.
"""

include "lock/clock.pyx"
include "lock/held_handlers.pyx"
include "lock/engine_lock.pyx"
include "lock/access_guard.pyx"
