# The ordinary fetch cycle: from a Fetch response to the next request of the session.

from libc.stdint cimport int32_t, int64_t

from kconsumer._core.net cimport InFlight, RequestQueue
from kconsumer._core.lock cimport EngineLock
from kconsumer._core.metrics cimport FetchEvents, ResponseTally
from kconsumer._core.wire cimport Frame, Span


cdef struct ResponseRow:
    # What a response reports of one partition.
    Span topic_id
    Span records
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    int32_t number


cdef class FoundPartition:
    cdef RequestedPartition requested
    cdef CompletedFetch fetch
    cdef object end                          # None: it is not known


cdef class Unpacker:
    cdef BufferQueue buffer
    cdef CompletedFetch fetch


cdef class InFlightFetch:
    cdef readonly BrokerFetchState broker
    cdef readonly Py_ssize_t max_bytes
    cdef readonly Py_ssize_t reserved
    cdef readonly double sent_at
    cdef readonly bint full
    cdef readonly dict requested
    cdef readonly dict topic_names
    cdef readonly bint leader_only
    cdef readonly Py_ssize_t active_brokers
    cdef readonly object limits              # of the manager, when the request was created
    cdef Py_ssize_t partitions               # of the broker, when the request was created
    cdef FetchCycle cycle
    cdef bint ended                          # the last response had no next request
    cdef bint has_records                    # the last response had records
    cdef object key                          # the connection of `head` and `tail`; None: they were not created yet
    cdef bytes head                          # the bytes of a request before its topics, and after them
    cdef bytes tail


cdef class FetchCycle:
    cdef FetchState manager
    cdef EngineLock lock
    cdef FetchEvents events
    cdef bint check_crcs
    cdef bint read_committed
    cdef Py_ssize_t batch_limit
    cdef public object on_records            # called when records were buffered
    cdef public object on_ended              # called when a fetch has ended, and the manager must be polled

    cdef object respond(self, InFlightFetch flight, RequestQueue connection, InFlight entry, Frame frame, double now)
    cdef list find(self, InFlightFetch flight, ResponseRow* rows, int count, Frame frame, double now)
    cdef FoundPartition found_partition(
        self, RequestedPartition requested, ResponseRow* row, ResponseTally tally, Frame frame, double now
    )
    cdef int apply(self, InFlightFetch flight, ResponseRow* rows, list found, Frame frame, double now) except -1
    cdef int update_offsets(self, BufferedChain chain, ResponseRow* row) except -1
    cdef list changes(self, InFlightFetch flight, RequestQueue connection, double now)
    cdef bint may_continue(self, InFlightFetch flight, double now) except -1
    cdef RequestedPartition continued(self, BrokerFetchState broker, object tp)
