"""Reads time. See `kconsumer/_common/clock.py`."""

cimport cython

cdef extern from "monotonic.h" nogil:
    double kc_monotonic_ms()

from time import time


cdef class Clock:
    """Monotonic and wall-clock time in milliseconds. Tests use a clock that they advance themselves."""

    cpdef double now(self) except? -1:
        """Returns the milliseconds of a monotonic clock."""
        return kc_monotonic_ms()

    def wall_ms(self):
        """Returns the milliseconds since the Unix epoch."""
        return int(<double> time() * 1000)


cdef class ManagerTime:
    """The current time of the managers (ms). Changes of the state are recorded with this time."""

    def __init__(self, double now=0.0):
        self.now = now

    def set_now(self, double now):
        """Set the time (ms) of the changes that follow."""
        self.now = now


@cython.final
cdef class Timer:
    """The deadline of a public call."""

    def __init__(self, Clock clock not None, double timeout_ms):
        self.clock, self.timeout_ms = clock, timeout_ms
        self.deadline = clock.now() + timeout_ms

    def remaining_ms(self):
        """Returns the milliseconds left, at least 0."""
        return max(0.0, self.deadline - self.clock.now())

    @property
    def expired(self):
        """True if the deadline has passed."""
        return self.is_over()

    cdef bint is_over(self) except -1:
        return self.clock.now() >= self.deadline

    def __repr__(self):
        return f"Timer({self.remaining_ms():.0f} ms left)"
