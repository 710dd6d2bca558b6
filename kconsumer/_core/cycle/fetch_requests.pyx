"""What is requested of partitions and brokers, and what the fetch manager and its planner decide that by.

`kconsumer/fetching/` has the rest of these classes, and explains them: a SessionState is the base of `FetchSession`, a
PlannerState that of `FetchPlanner`, and a FetchState that of `FetchManager`. The fetch cycle uses their fields for each
response.
"""

cimport cython
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class RequestedPartition:
    """A partition as it was last requested in a session."""

    def __init__(self, BufferedChain chain not None, int64_t offset, leader, topic_id):
        self.chain, self.offset, self.leader, self.topic_id = chain, offset, leader, topic_id

    @property
    def leader_epoch(self):
        """The leader epoch in the request; -1 if it is unknown."""
        return -1 if self.leader.epoch is None else self.leader.epoch

    def differs_from(self, RequestedPartition before):
        """Returns True if a request must contain the partition, because the one `before` had other values."""
        return (
            before is None
            or self.offset != before.offset
            or self.leader_epoch != before.leader_epoch
            or self.topic_id != before.topic_id
        )

    def __repr__(self):
        return f"<RequestedPartition {self.chain.topic_partition} at {self.offset}>"


cdef class SessionState:
    """The fields of a `FetchSession` that each response changes."""

    def __init__(self, int32_t max_bytes):
        self.max_bytes = max_bytes
        self.requested, self.topic_names = {}, {}


@cython.final
cdef class BrokerFetchState:
    """A broker and the partitions to fetch from it.

    While there is a partition in `leader_only`, requests contain no rack.
    """

    def __init__(self, node, SessionState session not None, dict chains=None):
        self.node, self.session = node, session
        self.chains = {} if chains is None else chains
        self.leader_only = {tp for tp, chain in self.chains.items() if chain.state.replica.has_refusal}
        self.full, self.changed = set(), {}

    @property
    def ready(self):
        """True if there are partitions to fetch and all of them have room in the buffer."""
        return bool(self.chains) and not self.full

    def move_to(self, node):
        """Set the present address of the broker."""
        self.node = node

    def mark_responded(self, double now):
        """Record that the broker responded to a fetch at `now` (ms)."""
        self.responded_at = now

    def add(self, tp, BufferedChain chain not None):
        """Add a partition to fetch from this broker. The next fetch starts where the partition's chain ends."""
        self.chains[tp] = chain
        self.changed[tp] = None
        if chain.may_grow():
            self.full.discard(tp)
        else:
            self.full.add(tp)
        if chain.state.replica.has_refusal:
            self.leader_only.add(tp)
        else:
            self.leader_only.discard(tp)

    def remove(self, tp):
        """Remove a partition, which is no longer fetched from this broker."""
        del self.chains[tp]
        self.full.discard(tp)
        self.leader_only.discard(tp)
        self.changed[tp] = None

    def __repr__(self):
        counts = f"{len(self.chains)} partitions, {len(self.full)} without room"
        return f"<BrokerFetchState {self.node}: {counts}, {self.session!r}>"


cdef class PlannerState:
    """The fields of a `FetchPlanner` that say whether it must decide again."""

    def __init__(self, cluster, changes, BufferQueue buffer not None):
        self._cluster, self._changes, self._buffer = cluster, changes, buffer
        self._next_release = self._lease_end = INFINITY
        self._seen = (-1, -1)

    @property
    def changed(self):
        """True if the state of a partition, the metadata or the assignment changed since the last `update`.

        The end of a backoff does not count.
        """
        return self.has_changed()

    cdef bint has_changed(self) except -1:
        changes = self._changes
        return (
            bool(changes.dirty)
            or self._seen[0] != self._cluster.update_version
            or self._seen[1] != changes.assignment_version
        )

    @property
    def buffer_changed(self):
        """True if the buffered data of a partition changed since the last `update`, or memory was freed."""
        return bool(self._buffer.dirty) or bool(self._buffer.memory.freed)

    @property
    def next_change(self):
        """The time (ms) at which a backoff has ended, or a partition may be read from another replica; or FOREVER."""
        return self.time_of_change()

    cdef double time_of_change(self) noexcept:
        return min(self._next_release, self._lease_end + 1.0)


cdef class FetchState:
    """The fields of a `FetchManager` that say whether a fetch may be sent."""

    def __init__(self, assignment, BufferQueue buffer not None, PlannerState planner not None):
        self.assignment, self.buffer, self.planner = assignment, buffer, planner
        self.in_flight, self._expedited, self.expedited_offsets, self.node_failures = {}, {}, {}, {}
        self._waits_for_memory = {}

    @property
    def has_in_flight(self):
        """True if any fetch is in flight."""
        return bool(self.in_flight)

    @property
    def needs_poll(self):
        """True if `poll` may have a request to send.

        This is the case if a partition, the metadata or the assignment changed, or if an expedited fetch ended. It is
        also the case if another fetch ended or the buffer changed, and some broker has no fetch in flight. The end of a
        backoff does not count, so the engine must always call `poll` before it waits.
        """
        planner = self.planner
        if len(self.in_flight) < planner.active_brokers and (self._responded or planner.buffer_changed):
            return True
        return self._expedited_response or planner.has_changed()

    def continue_to(self, double until):
        """Let the cycle send fetches until this time (ms). Each poll of the user postpones it."""
        self.continue_until = until

    cdef bint may_continue(self, double now) except -1:
        """Returns True if a broker's next request may follow its response without a poll of this manager."""
        return (
            now < self.continue_until
            and now < self.planner.time_of_change()
            and not (self._expedited or self._waits_for_memory or self.buffer.paused)
            and not self.planner.has_changed()
        )
