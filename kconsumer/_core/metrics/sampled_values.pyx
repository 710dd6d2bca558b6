"""Records values in windows of time, from which metrics are computed.

Recording happens several times per request, so it calls no Python function. Reading is rare, and is done in Python (see
`kconsumer.metrics.registry.Sensor`). No clock is read here: callers pass the present time as `now` (ms).
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int64_t
from libc.string cimport memmove


cdef class Window:
    """The values recorded in one window of time, as they were when this copy of them was made."""

    cdef readonly double start
    cdef readonly int64_t count
    cdef readonly double sum
    cdef readonly double largest
    cdef readonly double smallest


cdef class SampledValues:
    """Values in windows of `window_ms`. At most `samples` + 1 windows are kept.

    One window more than `samples` is kept, because the oldest one may still overlap the sampled time (as in Java).
    Everything that is recorded is also recorded in `parent`, unless it is None.
    """

    def __cinit__(self, int64_t samples, double window_ms, SampledValues parent=None):
        self.names = []
        self.samples = samples
        self.window_ms = window_ms
        self.parent = parent
        self.value = NAN

    def __dealloc__(self):
        PyMem_Free(self.windows)

    def record(self, double value, double now, int64_t count=1):
        """Record a value at `now` (ms). If `count` is more than 1, `value` is the sum of `count` values.

        For the minimum and the maximum, such a sum counts as one value.
        """
        add(self, value, now, count)

    @cython.critical_section
    def windows_after(self, double since):
        """Returns the windows whose last value was recorded after `since` (ms), the oldest first."""
        cdef WindowSums* sums
        cdef Window window
        cdef int64_t i
        cdef list found = []
        for i in range(self.size):
            sums = &self.windows[i]
            if sums.end > since:
                window = Window.__new__(Window)
                window.start, window.count, window.sum = sums.start, sums.count, sums.sum
                window.largest, window.smallest = sums.largest, sums.smallest
                found.append(window)
        return found


cdef int add(SampledValues values, double value, double now, int64_t count) except -1:
    """Record a value in `values`, in its parent, and so on."""
    cdef WindowSums* window
    while values is not None:
        with cython.critical_section(values):   # without the GIL, several threads record in one parent, and others read
            window = &values.windows[values.size - 1] if values.size else NULL
            if window == NULL or now - window.start >= values.window_ms:
                window = new_window(values, now)
            if now > window.end:    # a thread may have read the clock before another one, and record after it
                window.end = now
            window.count += count
            window.sum += value
            if value > window.largest:
                window.largest = value
            if value < window.smallest:
                window.smallest = value
            values.count += count
            values.total += value
            values.value = value
        values = values.parent
    return 0


cdef WindowSums* new_window(SampledValues values, double now) except NULL:
    """Add an empty window that starts at `now`. Returns it. Drops the oldest window if there are too many."""
    cdef WindowSums* windows = values.windows
    cdef WindowSums* window
    if values.size <= values.samples:
        windows = <WindowSums*> PyMem_Realloc(windows, <size_t> (values.size + 1) * sizeof(WindowSums))
        if windows == NULL:
            raise MemoryError()
        values.windows = windows
        values.size += 1
    else:
        memmove(windows, &windows[1], <size_t> (values.size - 1) * sizeof(WindowSums))
    window = &windows[values.size - 1]
    window.start = window.end = now
    window.count = 0
    window.sum = 0.0
    window.largest = -INFINITY
    window.smallest = INFINITY
    return window
