# The positions that a poll moves, and the log of what has changed. `kconsumer/state/` has the rest of these classes.

from kconsumer._core.lock cimport ManagerTime


cdef class ChangeLog(ManagerTime):
    cdef public Py_ssize_t assignment_version   # grows with each change of the assigned partitions
    cdef public dict dirty                      # states that changed since the last `take`
    cdef public Py_ssize_t without_position     # the number of partitions without a valid position
    cdef public bint unchecked_leaders          # a position was set without a leader


cdef class PartitionPosition:
    cdef public ChangeLog changes
    cdef public object topic_partition
    cdef public object position                 # a FetchPosition, or None
    cdef public object topic_id                 # of the topic read up to the position; None if nothing was read
    cdef public bint fetchable                  # computed with each change, because it is read far more often
    cdef public bint paused
    cdef public object high_watermark           # these three are None until a broker has reported them
    cdef public object last_stable_offset
    cdef public object log_start_offset
    cdef public Py_ssize_t out_of_range         # resets in a row of a position that was out of range


cdef class AssignedPartitions:
    cdef public ChangeLog changes
    cdef public dict _states                    # PartitionStates by partition, in fetch order

    cdef int move_last(self, object tp) except -1


cdef class Delivery:
    cdef public bint open
    cdef public dict before                     # for each partition that the batch has moved
    cdef public dict after
    # The value of `EngineLock.version` when the batch was taken or checked. With another value, the state may have
    # changed since.
    cdef public long version

    cdef int start(self) except -1
