"""Decides which records belong to aborted transactions (read_committed).

A Fetch response lists the aborted transactions of its batches: producer id and first offset. A producer has one
transaction at a time, so all its transactional batches from that offset to its ABORT marker belong to the aborted
transaction. fetch.pyx finds the batches.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int16_t

from kconsumer._core.wire cimport kc_load_be16


cdef enum:
    MARKER_KEY_BYTES = 4       # version i16, type i16


@cython.final
@cython.auto_pickle(False)
cdef class AbortedIndex:
    """Tracks which producers have an aborted transaction, while the caller goes through the fetched batches in order.

    The caller calls `advance` for each batch that has a producer id. This makes it the current batch. `covers` then
    returns whether the transactional records of a producer in this batch must be skipped.

    `aborted_transactions`: pairs (producer id, first offset) in any order. The argument `at` of the methods is the
    index in the fetched bytes at which a batch begins. It is stored with each change, so that `rewind(at)` can undo the
    changes made at this batch and at later ones.
    """

    def __init__(self, aborted_transactions=()):
        cdef int64_t producer_id, first_offset
        self.begins = []
        for producer_id, first_offset in aborted_transactions:
            self.begins.append((first_offset, producer_id))
        self.begins.sort()
        self.producers = set()
        self.changes = []
        self.set_passed(0)

    cdef int set_passed(self, Py_ssize_t passed) except -1:
        """Set `passed`, the number of transactions in `begins` that `advance` has passed.

        Also sets `next_begin` to the first offset of the next transaction, or to INT64_MAX if there is none.
        """
        self.passed = passed
        self.next_begin = INT64_MAX
        if passed < len(self.begins):
            self.next_begin = self.begins[passed][0]
        return 0

    cpdef int advance(self, int64_t last_offset, Py_ssize_t at) except -1:
        """Make the next batch the current one. Its last offset is `last_offset`, and it may be of any producer.

        Producers whose aborted transactions begin at or before this offset are then covered (see `covers`).
        """
        while self.next_begin <= last_offset and self.passed < len(self.begins):
            producer_id = self.begins[self.passed][1]
            self.changes.append((at, producer_id, 1, producer_id in self.producers))
            self.producers.add(producer_id)
            self.set_passed(self.passed + 1)
        return 0

    cpdef bint covers(self, int64_t producer_id) except -1:
        """Returns whether the producer's transactional records at the current batch must be skipped."""
        return len(self.producers) != 0 and producer_id in self.producers

    cpdef int end(self, int64_t producer_id, Py_ssize_t at) except -1:
        """Handle the producer's ABORT marker, which ends its aborted transaction."""
        if self.covers(producer_id):
            self.changes.append((at, producer_id, 0, True))
            self.producers.remove(producer_id)
        return 0

    cpdef int rewind(self, Py_ssize_t at) except -1:
        """Undo all changes by the batch at `at` and later batches, so that the caller can pass them again."""
        while self.changes and self.changes[len(self.changes) - 1][0] >= at:
            _, producer_id, begun, was_there = self.changes.pop()
            if begun:
                self.set_passed(self.passed - 1)
            if was_there:
                self.producers.add(producer_id)
            else:
                self.producers.discard(producer_id)
        return 0

    def __repr__(self):
        return f"<AbortedIndex: {self.passed} of {len(self.begins)} begun, {len(self.producers)} producers in one>"


cdef int marker_type(Span records) noexcept nogil:
    """Returns the type of a control batch, which is in the key of its first record.

    Returns NO_MARKER if the batch has no record, and BAD_MARKER if the record is malformed. Accepts any version of the
    key that is not negative.
    """
    cdef Record record
    if records.p == records.end:
        return NO_MARKER
    if not read_record(&records, &record) or record.key_size < MARKER_KEY_BYTES:
        return BAD_MARKER
    if <int16_t> kc_load_be16(record.key) < 0:
        return BAD_MARKER
    return kc_load_be16(record.key + 2)
