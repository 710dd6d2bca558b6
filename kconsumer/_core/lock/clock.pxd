# The clock, and the time that the managers were given last.


cdef class Clock:
    cpdef double now(self) except? -1


cdef class ManagerTime:
    cdef public double now


cdef class Timer:
    cdef Clock clock
    cdef double timeout_ms
    cdef readonly double deadline

    cdef bint is_over(self) except -1
