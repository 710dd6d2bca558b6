"""The positions that a poll moves, and the log of what has changed.

`kconsumer/state/` has the rest of these classes. A PartitionPosition is the base of `PartitionState`, and
AssignedPartitions that of `Assignment`. All polls and fetches use their fields.
"""

cimport cython

from kconsumer._core.lock cimport ManagerTime


@cython.final
cdef class ChangeLog(ManagerTime):
    """The changes that the states of the assigned partitions have recorded. There is one for each consumer.

    Partition states write this log, and managers read it. So a poll costs in proportion to what has changed, and not
    to what is assigned.
    """

    def __init__(self, double now=0.0):
        self.now = now
        self.dirty = {}

    def __class_getitem__(cls, item):
        return cls

    def take(self):
        """Returns the states whose fetchability, position or broker has changed since the last call.

        A new assignment is not reported here, but by `assignment_version`.
        """
        changed, self.dirty = self.dirty, {}
        return changed

    def add_without_position(self, Py_ssize_t count):
        """Add `count`, which may be negative, to the number of partitions without a valid position."""
        self.without_position += count

    def set_unchecked_leaders(self):
        """Record that a position was set without a leader."""
        self.unchecked_leaders = True

    def clear_unchecked_leaders(self):
        """Clear `unchecked_leaders`, after every position was compared with the cluster's leaders."""
        self.unchecked_leaders = False

    def begin_assignment(self):
        """Forget the states of the assignment before. Those of the new one are counted when they join it."""
        self.dirty = {}
        self.without_position = 0
        self.assignment_version += 1


cdef class PartitionPosition:
    """The fields of a `PartitionState` that polls and fetches use."""

    def __class_getitem__(cls, item):
        return cls


cdef class AssignedPartitions:
    """The states of the assigned partitions, in the order in which they are fetched."""

    def __class_getitem__(cls, item):
        return cls

    def __init__(self, ChangeLog changes not None):
        self.changes = changes
        self._states = {}

    def find(self, tp):
        """Returns the partition's state, or None if it is not assigned."""
        return self._states.get(tp)

    def states(self):
        """Returns the states by partition. This is not a copy, so do not change the assignment while iterating."""
        return self._states

    def move_to_end(self, tp):
        """Move the partition to the end of the fetch order. Does nothing if it is not assigned."""
        self.move_last(tp)

    cdef int move_last(self, object tp) except -1:
        state = self._states.pop(tp, None)
        if state is not None:
            self._states[tp] = state
        return 0


@cython.final
cdef class Delivery:
    """The positions before and after the last batch that a poll has taken. See `kconsumer/state/positions.py`.

    A poll moves positions before it returns. In between, signal handlers, deserializers, interceptors and other threads
    may commit, close, seek or poll. A batch counts as consumed when the public method that returns it has ended, never
    before. `open` is True until then. The method ends with `delivery.open = False` and a return. This is a store and
    not a call, because signal handlers may run after each call, and must still find the batch open.
    """

    def __cinit__(self):
        self.before, self.after = {}, {}

    def begin(self):
        """Begin to take a batch. The one before was returned, or its positions were restored."""
        self.start()

    cdef int start(self) except -1:
        self.open = False
        self.before, self.after = {}, {}
        return 0

    def forget(self, tp):
        """Drop a partition from the batch, because the user has set its position."""
        if self.open and tp in self.after:
            self.before = {each: position for each, position in self.before.items() if each != tp}
            self.after = {each: position for each, position in self.after.items() if each != tp}

    def end_at(self, tp, position):
        """Shorten the batch, because the records of a partition from this position on are not returned."""
        if self.open and tp in self.after:
            self.after = {**self.after, tp: position}  # the batch that uses the old mapping is unchanged

    def consumed(self, tp, position):
        """Returns the position up to which records of a partition were returned. `position` is the current one."""
        if not self.open:
            return position
        before, after = self.before.get(tp), self.after.get(tp)
        if before is None or after is None or after.offset != position.offset:  # the user has called seek()
            return position
        return before
