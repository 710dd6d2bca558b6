# Values of metrics, recorded in windows of time.

from libc.stdint cimport int64_t


cdef struct WindowSums:
    # The values recorded in one window of time.
    double start
    double end              # when the last value was recorded
    int64_t count
    double sum
    double largest
    double smallest


cdef class SampledValues:
    cdef readonly list names        # the names of the metrics that are computed from the values
    cdef readonly int64_t samples
    cdef readonly double window_ms
    cdef readonly int64_t count     # recordings since the start
    cdef readonly double total      # the sum since the start
    cdef readonly double value      # the last value; NaN if there is none
    cdef SampledValues parent
    # The windows, the oldest first. Memory is allocated for each new window, because each partition has sensors.
    cdef WindowSums* windows
    cdef int64_t size


cdef int add(SampledValues values, double value, double now, int64_t count) except -1
