"""Time. `kconsumer._core.lock` reads it, and nothing else does.

All other modules receive the time as `now`: milliseconds of a monotonic clock, as a float. Durations are called `…_ms`.
Wall-clock time has a method of its own. Metrics and the reset policy `by_duration` need it.
"""

from kconsumer._core.lock import Clock, Timer

__all__ = ["Clock", "Timer"]
