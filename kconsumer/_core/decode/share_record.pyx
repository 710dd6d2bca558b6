"""ShareRecord: a record that a share consumer has acquired, with its delivery count and its acknowledgement.

`acquired_records` creates them from checked records. It drops records outside of the acquired ranges: a response
contains whole batches, of which other members may have acquired some records.
"""

cimport cython
from libc.stdint cimport int64_t

from kconsumer.errors import StateError
from kconsumer.types import TimestampType


@cython.final
@cython.auto_pickle(False)
cdef class ShareRecord(ConsumerRecord):
    """A record of a share consumer. It can be acknowledged until the next poll.

    `delivery_count`: how often the record has been delivered to a member of the group, with this time.
    """

    def __init__(
        self,
        topic,
        partition,
        offset,
        timestamp=-1,
        timestamp_type=TimestampType.NO_TIMESTAMP,
        key=None,
        value=None,
        headers=(),
        leader_epoch=None,
        serialized_key_size=None,
        serialized_value_size=None,
        int delivery_count=1,
    ):
        ConsumerRecord.__init__(
            self,
            topic,
            partition,
            offset,
            timestamp,
            timestamp_type,
            key,
            value,
            headers,
            leader_epoch,
            serialized_key_size,
            serialized_value_size,
        )
        self.delivery_count = delivery_count

    def __reduce__(self):
        _, fields = ConsumerRecord.__reduce__(self)
        return ShareRecord, (*fields, self.delivery_count)

    def ack(self):
        """Accept the record: it was processed."""
        self.acknowledge(1)

    def release(self):
        """Release the record: it was not processed, and the group may deliver it again."""
        self.acknowledge(2)

    def reject(self):
        """Reject the record: it cannot be processed, and the group does not deliver it again."""
        self.acknowledge(3)

    def renew(self):
        """Renew the acquisition lock of the record. The next poll returns the record again."""
        self.acknowledge(4)

    cdef int acknowledge(self, int kind) except -1:
        if self.acknowledger is None:
            raise StateError("this record was not returned by a ShareConsumer, so it cannot be acknowledged")
        self.acknowledger(self, kind)
        return 0

    def __repr__(self):
        text = ConsumerRecord.__repr__(self).removeprefix("ConsumerRecord").removesuffix(")")
        return f"ShareRecord{text}, delivery_count={self.delivery_count})"


def acquired_records(records not None, list ranges not None, acknowledger):
    """Returns the acquired ones of `records` as a dict of offset -> ShareRecord.

    `records` are ConsumerRecords in offset order. `ranges` contains tuples (first offset, last offset, delivery count),
    in offset order. `acknowledger(record, kind)` is called when a record is acknowledged by one of its methods; the
    number `kind` is a value of AcknowledgeType.
    """
    cdef ConsumerRecord source
    cdef ShareRecord record
    cdef int64_t first = 0, last = -1
    cdef int count = 0
    cdef Py_ssize_t at = 0
    cdef dict found = {}
    for item in records:
        source = <ConsumerRecord?> item
        while source.offset > last and at < len(ranges):
            first, last, count = ranges[at]
            at += 1
        if not first <= source.offset <= last:
            continue
        record = ShareRecord.__new__(ShareRecord)
        record.topic_partition = source.topic_partition
        record.offset = source.offset
        record.timestamp = source.timestamp
        record.serialized_key_size = source.serialized_key_size
        record.serialized_value_size = source.serialized_value_size
        record.epoch = source.epoch
        record.timestamp_kind = source.timestamp_kind
        record.made = source.made
        record.key_object = source.key_object
        record.value_object = source.value_object
        record.headers_object = source.headers_object
        record.owner = source.owner
        record.key_at = source.key_at
        record.value_at = source.value_at
        record.headers_at = source.headers_at
        record.delivery_count = count
        record.acknowledger = acknowledger
        found[record.offset] = record
    return found
