"""The fast path of fetching. The engine's lock reads its fields."""

from libc.stdint cimport int64_t

from kconsumer._core.fast_connection cimport FastConnection
from kconsumer._core.fast_response cimport ResponseParser
from kconsumer._core.fast_samples cimport FastSamples
from kconsumer._core.held_handlers cimport HeldHandlers
from kconsumer._core.metric_events cimport ConnectionEvents, FetchEvents, PollEvents


cdef enum:
    MAX_READY = 32                     # descriptors that one wait reports


cdef enum Exchange:
    REFUSED = -1                       # the response was received; the socket has not taken all of the next request
    NOT_EMPTY = 0                      # nothing was received
    DONE = 1


cdef long fork_number() noexcept


cdef class FastPath:
    cdef readonly bint armed
    cdef readonly bint waiting               # `poll` waits, without the lock
    cdef readonly unsigned long thread       # the thread that called `poll` last
    cdef readonly double until               # ms; from then on `poll` returns None, because managers or timers are due
    cdef readonly list connections
    cdef readonly list pending               # (connection, frames, bytes): what the general path must handle
    cdef readonly list moved                 # the partitions whose positions the last poll has moved
    cdef object delivery                     # its `open` is set when a poll moves positions
    cdef HeldHandlers signals
    cdef object interruptible                # a Python function: when it is called, the interpreter raises what is due
    cdef readonly FastSamples samples        # the metrics that are not recorded yet
    cdef readonly double last_poll           # when the last poll began, or has armed the fast path; ms
    cdef readonly int64_t responses          # the number of responses that were processed
    cdef readonly int64_t handed_over        # the number of responses that were handed over
    cdef readonly str gave_up                # why the last one was; None: there was none
    cdef object lock
    cdef object driver
    cdef object now
    cdef object make_batch
    cdef object empty
    cdef object track
    cdef PollEvents events
    cdef ConnectionEvents network            # None without metrics, as the next one
    cdef FetchEvents fetches
    cdef object select
    cdef int selector                        # its descriptor, if C code may wait for it; else -1
    cdef bint system_clock                   # C code may read the clock
    cdef int ready[MAX_READY]                # the descriptors that a wait has reported; -1: one that can be written
    cdef long forks                          # the value of `forks` when the fast path was armed
    cdef Py_ssize_t memory_left              # bytes that responses may still use
    cdef int64_t generation                  # changes when the fast path is armed or disarmed, and with each poll
    cdef int64_t polling                     # the generation of the poll that `begin_poll` has begun
    cdef readonly double woken               # when the last wait began or ended, inside a poll; ms
    cdef int64_t poll_number
    cdef double waited_ms                    # how long `poll` has waited since the last response
    cdef ResponseParser parser

    cpdef int record(self) except -1
    cdef int64_t begin(self) except -1
    cdef object proceed(self, int count, int64_t generation, Py_ssize_t max_records, Py_ssize_t max_bytes)
    cdef object expire(self, double now)
    cdef double time(self) except? -1
    cdef int wait(self, double wait_ms, int64_t generation) except -1
    cdef int find_ready(self, double wait_ms) except -1
    cdef object serve(
        self, int count, double now, int64_t generation, Py_ssize_t max_records, Py_ssize_t max_bytes
    )
    cdef int exchange_empties(self, int count, double now) except -2
    cpdef bint is_waiting(self) noexcept
    cdef Exchange exchange(self, FastConnection connection, double now, bint align) except? NOT_EMPTY
    cdef FastConnection connection_of(self, int descriptor)
    cdef bint receive(
        self,
        FastConnection connection,
        double now,
        int64_t generation,
        Py_ssize_t max_records,
        Py_ssize_t max_bytes,
        list runs,
        dict positions,
        dict skipped,
    ) except -1
    cdef int find_sensors(self, list seen) except -1
    cdef int add_sample(self, FastConnection connection, list seen, bytes request, double now) noexcept
    cdef bint give_up(self, str reason) except -1
    cdef int commit(self, FastConnection connection, list seen, bytes request, double now) noexcept
