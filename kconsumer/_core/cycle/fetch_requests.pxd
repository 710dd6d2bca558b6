# What is requested of partitions and brokers, and what the fetch manager and its planner decide that by.

from libc.stdint cimport int32_t, int64_t


cdef class RequestedPartition:
    cdef readonly BufferedChain chain      # the chain that the response continues
    cdef public int64_t offset             # the requested offset
    cdef readonly object leader            # the leader when the request was created
    cdef readonly object topic_id


cdef class SessionState:
    cdef public int32_t id
    cdef public int32_t epoch
    cdef public dict requested             # all partitions of the session, after the last request
    cdef public dict topic_names           # by topic id; a response contains only ids
    cdef public int32_t max_bytes          # of each partition


cdef class BrokerFetchState:
    cdef readonly object node
    cdef readonly SessionState session
    cdef readonly dict chains
    cdef readonly set leader_only          # partitions for which this broker, their leader, must not name a replica
    cdef readonly set full                 # partitions without room; no fetch is sent while there is one
    cdef readonly dict changed             # partitions that may differ from the last request of the session
    cdef public double responded_at        # when the broker last responded to a fetch (ms)


cdef class PlannerState:
    cdef public object _cluster
    cdef public ChangeLog _changes
    cdef public BufferQueue _buffer
    cdef public double _next_release       # when the first backoff ends (ms)
    cdef public double _lease_end          # when the first partition may be read from another replica (ms)
    cdef public Py_ssize_t active_brokers  # the number of brokers that have partitions to fetch
    cdef public tuple _seen                # the versions of metadata and assignment at the last update

    cdef bint has_changed(self) except -1
    cdef double time_of_change(self) noexcept


cdef class FetchState:
    cdef public AssignedPartitions assignment
    cdef public BufferQueue buffer
    cdef public PlannerState planner
    cdef public dict in_flight             # fetches of sessions, by broker
    cdef public dict _expedited            # expedited fetches, by broker
    cdef public dict expedited_offsets     # see `kconsumer.fetching.manager`
    cdef public dict _waits_for_memory     # by broker, when memory ran out of room for a fetch (ms)
    cdef public dict node_failures         # by broker, if its last fetch failed
    cdef public bint _responded            # a fetch of a session ended since the last poll
    cdef public bint _expedited_response   # an expedited fetch ended since the last poll
    cdef public double continue_until      # see `continue_to`
    cdef public object limits              # those of the next requests; replaced when the user changes an option

    cdef bint may_continue(self, double now) except -1
