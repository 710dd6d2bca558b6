# A poll: what it checks before it waits, and how it waits. `kconsumer/engine/` has the rest of these classes.

from kconsumer._core.lock cimport Clock, ClientState, EngineLock, Timer
from kconsumer._core.metrics cimport PollEvents
from libc.stdint cimport int64_t


cdef class Wait:
    cdef readonly double deadline            # the latest end of the wait; ms on the engine's clock
    cdef readonly object promise             # the wait ends when this promise is done
    cdef readonly bint joining               # the member may join the group during the wait
    cdef readonly bint fetching              # fetches may be sent, and buffered data ends the wait
    cdef readonly bint managers              # managers are polled; if False, the wait is only for requests in flight


cdef class DispatcherState:
    cdef public object _client
    cdef public Clock _clock
    cdef public list on_woken                # called with `now` before responses are handled
    cdef public Py_ssize_t ended             # the number of requests that have ended, and may concern other managers
    cdef public list _waiting                # (UnsentRequest, the time (ms) since which it waits)
    cdef public bint _failed                 # a request failed since the last step: its manager must be polled first
    cdef public object _error                # the first error that a handler raised since the last step

    cdef bint run_step(self, double timeout_ms) except -1
    cdef bint finish_step(self, list ended) except -1


cdef class DriverState:
    cdef public ClientState _components
    cdef public DispatcherState _dispatcher
    cdef public object _receiver             # of large responses, in the background
    cdef public int64_t _fetches_created        # counts how often the calling thread created fetches for another thread
    cdef public int64_t _fetches_flushed        # the count of those written to sockets; set by the network thread
    cdef public Clock _clock
    cdef public double next_manager_poll     # ms; before this time a poll() that finds data need not poll the managers
    cdef double idle_until                   # see `due`
    cdef Py_ssize_t idle_ended               # the number of ended requests when `idle_until` was set
    cdef public int64_t thread_steps         # counts the steps of the heartbeat thread; changed with the lock
    cdef int64_t seen_steps                  # of those, the ones before the last wait of a poll
    cdef public bint wakeup_requested        # wakeup() was called
    cdef public bint wakeup_enabled          # a requested wakeup raises WakeupError; False while close() runs

    cdef double due(self) noexcept
    cdef bint is_unchanged(self) noexcept
    cdef bint urgent(self) except -1
    cpdef int wait(self, Wait wait) except -1
    cpdef bint wait_for_activity(self, double timeout_ms) except -1


cdef class PollState:
    cdef public ClientState components
    cdef public EngineLock lock
    cdef public Clock _clock
    cdef public Delivery delivery
    cdef public DriverState driver
    cdef public object callbacks
    cdef public object interceptors
    cdef public PollEvents polls
    cdef public bint _closing
    cdef readonly long _forks
    cdef bint quiet                          # no manager had to be polled when the last poll began
    cdef public bint _last_poll_empty        # the last full poll (`_poll_full`) found no records and no error
    cdef object subscription
    cdef object nothing                      # SubscriptionKind.NONE
    cdef object group                        # or None
    cdef FetchState fetch
    cdef BufferQueue buffer
    cdef RecordTaker collector
    cdef double max_poll_interval_ms

    cdef object begin(self, double timeout_ms, Py_ssize_t max_records, object max_bytes)
    cdef object collect(self, Py_ssize_t max_records, object max_bytes)
    cdef Wait find_wait(self, Timer timer)
    cdef object take_after(self, Wait wait, Py_ssize_t max_records, object max_bytes)
    cdef object take_waited(self, Py_ssize_t max_records, object max_bytes)
    cdef bint is_group_idle(self) except -1
