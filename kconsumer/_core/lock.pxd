"""What the parts of lock.pyx declare."""

include "lock/clock.pxd"
include "lock/held_handlers.pxd"
include "lock/engine_lock.pxd"
include "lock/access_guard.pxd"
