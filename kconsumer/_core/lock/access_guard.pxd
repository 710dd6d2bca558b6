# Which thread uses a consumer.

cdef class GuardState:
    cdef readonly long _forks
    cdef HeldHandlers _signals
    cdef public bint closed
    cdef public Step step
    cdef public object end_wait         # called when a signal arrives; ends the wait of the running call
    cdef public unsigned long holder    # the id of the thread that has entered; 0 if none has
