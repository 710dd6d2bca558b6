"""The metrics of polls, which the fast path records."""

from kconsumer._core.sampled_values cimport SampledValues


cdef class SensorPair:
    cdef readonly SampledValues first
    cdef readonly SampledValues second


cdef class PollEvents:
    cdef SensorPair between     # the time between two polls: the mean and the maximum
    cdef SampledValues idle     # which share of the time between two polls the first of them waited
    cdef double last            # when the last poll began; NaN: there was none
    cdef double work_ms         # the time between the last poll that may have waited and the poll before it
    cdef double waited_until    # when that poll ended its wait; 0: it did not wait, or its wait is recorded


cdef int record_quick_poll(PollEvents polls, double now) except -1
