# The engine's lock, and what happens under it.

cdef class EngineLock:
    cdef object acquire_inner   # the methods of a `threading.RLock`, or of the lock of a test
    cdef object release_inner
    cdef object is_owned
    cdef public long version    # grows whenever a thread acquires the lock: the state may have changed
    cdef HeldHandlers signals
    cdef long forks             # the value of `forks` when the lock was created
    cdef int depth              # how often the owner has acquired the lock
    cdef int deferred_at        # the depth at which the owner began to defer signal handlers; 0: not here

    cdef bint take(self, bint blocking, object timeout) except -1
    cdef int drop(self) except -1


cdef class Step:
    cdef public bint unfinished
    cdef readonly bint interrupted
    cdef public bint waiting
    cdef public unsigned long shared_by

    cpdef int end(self) except -1
    cpdef int resume(self, bint changing) except -1


cdef class ClientState:
    cdef public EngineLock lock         # guards all of them
    cdef public Step step
    cdef public Clock clock
    cdef public ManagerTime changes     # the time of the last change, and what has changed since
    cdef public object user_calls       # the DeferredCalls: they run when the lock is released
    cdef public object end_wait         # ends the wait of the calling thread; any thread may call it
    cdef public object turnstile        # where other threads wait for the lock
    cdef public bint closed


cdef class Section:
    cdef ClientState parts
    cdef HeldHandlers signals
    cdef bint holds
    cdef bint nested

    cdef int enter(self) except -1
    cdef int leave(self, bint consistent) except -1


cdef class Waiting:
    cdef EngineLock lock
    cdef Step step

    cdef int begin(self) except -1
    cdef int end(self, bint changing) except -1
