"""ShareCollector: from buffered data to the records of a poll.

Decodes the batches with the same compiled code as a Consumer, and drops the records outside of the acquired ranges.
Records that a filter drops are accepted, so that the group does not deliver them again. Acquired offsets without a
record are acknowledged as gaps. A record that cannot be deserialized is kept apart until it is acknowledged, and the
rest of a batch that cannot be decoded is rejected. Runs on the calling thread, without the lock: the data that it takes
from the buffer belongs to the poll.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kconsumer._core.decode import PartitionFetch, RecordRun, ShareRecord, acquired_records
from kconsumer.config.options import ConsumerConfig
from kconsumer.deserializers import Deserializer, adapt
from kconsumer.engine.waiting import Operation
from kconsumer.errors import BatchTooLargeError, CorruptRecordError, KafkaError, RecordDeserializationError
from kconsumer.share.acknowledgements import AcquiredBatch
from kconsumer.share.buffer import CompletedShareFetch, ShareBuffer
from kconsumer.share.metrics import ShareMetrics
from kconsumer.share.types import GAP, AcknowledgeType

if TYPE_CHECKING:
    from kconsumer._core.wire import Slice

BATCH_START = struct.Struct(">qi")  # the first offset of a batch, and its size after these two fields
Acknowledger = Callable[[ShareRecord, int], object]
Deserialize = Callable[[RecordRun], Operation[RecordDeserializationError | None]]
"""Replaces the keys and values of a run. Returns the error of the record before which it was cut off, or None.

Raises the error if that is the first record, or leaves it to the next call, which begins at that record.
"""


def plain_deserializers(config: ConsumerConfig) -> Deserialize | None:
    """Returns the function that runs the deserializers of a configuration without waiting, or None without any."""
    key, value = config.key_deserializer, config.value_deserializer
    if key is None and value is None:
        return None
    adapted = None if key is None else adapt(key, "key"), None if value is None else adapt(value, "value")
    return partial(_deserialize, *adapted)


def _deserialize(
    key: Deserializer | None, value: Deserializer | None, run: RecordRun
) -> Operation[RecordDeserializationError | None]:
    run.deserialize(key, value)
    yield from ()
    return None


class ShareCollector:
    """Takes the records of a poll from the buffer."""

    def __init__(self, config: ConsumerConfig, buffer: ShareBuffer, metrics: ShareMetrics) -> None:
        self.acknowledger: Acknowledger | None = None  # called when a record is acknowledged by its own methods
        self.deserialize: Deserialize | None = None  # set by the engine, if there are deserializers
        self._buffer = buffer
        self._metrics = metrics
        self._check_crcs = config.check_crcs
        self._batch_limit = config.decompressed_batch_max_bytes or 0
        self._filter = config.record_filter
        self._explicit = config.share_acknowledgement_mode == "explicit"
        self.error: KafkaError | None = None  # of the record after the last one that was returned
        self._refused: AcquiredBatch | None = None  # that record, if a deserializer has refused it

    def take_error(self) -> KafkaError | None:
        """Returns the error that the next poll must raise, or None."""
        error, self.error = self.error, None
        return error

    def take_refused(self) -> AcquiredBatch | None:
        """Returns the record whose error `take_error` returns, with its bytes, if a deserializer has refused it."""
        refused, self._refused = self._refused, None
        return refused

    def collect(
        self, fetch: CompletedShareFetch, batch: AcquiredBatch, now: float, *, deserialize: bool = True
    ) -> Operation[int]:
        """Decode the records of one partition into `batch`, and return their number.

        With `deserialize` False, deserializers do not run. If a record has an error, the records before it are in
        `batch`, and the next poll raises the error. The data after a record that cannot be deserialized is put back
        into the buffer.
        """
        first, end = fetch.next_offset, fetch.acquired[-1].last_offset + 1
        record_bytes = 0
        try:
            data = self._decoder(fetch)
            while not data.exhausted and data.next_offset < end:
                run = data.take(end - data.next_offset)  # no acquired record is behind these
                if not run:
                    break
                if self._filter is not None:
                    self._drop(run.keep(self._filter), fetch, batch, now)
                    if not run:
                        continue
                failure = None
                if deserialize and self.deserialize is not None:
                    failure = yield from self.deserialize(run)
                size = len(run)
                if failure is not None and not size:
                    raise failure
                if not self._explicit and self._is_whole(fetch, run, size, end):
                    run.acquired(fetch.acquired[0].delivery_count, self.acknowledger)
                    batch.take_run(run, range(first, end))
                    self._metrics.taken(fetch.tally, fetch.topic_partition.topic, run.size, size, now)
                    return size
                records = acquired_records(run, _ranges(fetch), self.acknowledger)
                record_bytes += run.size if len(records) == size else run.size_of(records)
                batch.add_records(records)
                if failure is not None:
                    raise failure
        except RecordDeserializationError as error:
            self._refuse(fetch, error)
            end = error.offset
        except BatchTooLargeError as error:
            self._release_batch(fetch, batch, error)
            end = fetch.next_offset
        except CorruptRecordError as error:
            self.error = error
            rest = max(batch.records, default=first - 1) + 1
            batch.set_all(AcknowledgeType.REJECT, offsets_within(_ranges(fetch), rest, end))
        except BaseException:  # of a deserializer, as SystemExit: the records do not reach the user
            batch.set_all(AcknowledgeType.RELEASE, offsets_within(_ranges(fetch), first, end))
            self.dropped(fetch, now)
            raise
        size = len(batch.records)
        if size != sum(map(len, parts_within(_ranges(fetch), first, end))):
            batch.set_all(GAP, [o for o in offsets_within(_ranges(fetch), first, end) if o not in batch.records])
        self._metrics.taken(fetch.tally, fetch.topic_partition.topic, record_bytes, size, now)
        return size

    def dropped(self, fetch: CompletedShareFetch, now: float) -> None:
        """Record that the data of `fetch` was taken from the buffer, and that no poll returns its records."""
        self._metrics.taken(fetch.tally, fetch.topic_partition.topic, 0, 0, now)

    def _drop(self, offsets: list[int], fetch: CompletedShareFetch, batch: AcquiredBatch, now: float) -> None:
        """Accept the acquired records with these offsets, which a filter has dropped."""
        if offsets:
            acquired = offsets_within(_ranges(fetch), offsets[0], offsets[-1] + 1)
            dropped = set(offsets).intersection(acquired) - batch.types.keys()
            batch.set_all(AcknowledgeType.ACCEPT, dropped)
            if dropped:
                self._metrics.filtered(len(dropped), now)

    def _decoder(self, fetch: CompletedShareFetch) -> PartitionFetch:
        return PartitionFetch(
            fetch.topic_partition,
            fetch.records,
            fetch.next_offset,
            check_crcs=self._check_crcs,
            batch_limit=self._batch_limit,
        )

    @staticmethod
    def _is_whole(fetch: CompletedShareFetch, run: RecordRun, size: int, end: int) -> bool:
        """Returns True if a run of `size` records has each acquired offset before `end`, all acquired together, and no
        other.

        In implicit mode, the records of such a run are created when the user iterates over them.
        """
        return size == end - fetch.next_offset and len(fetch.acquired) == 1 and run.next_offset <= end

    def _refuse(self, fetch: CompletedShareFetch, error: RecordDeserializationError) -> None:
        """Keep the record that has failed apart, and put the data after it back.

        Between acquired ranges, there may be records that other members have acquired. Their errors do not count.
        """
        refused = AcquiredBatch(fetch.node_id, fetch.partition, fetch.topic_partition, fetch.locked_until)
        refused.refused = True
        refused.add_records(self._raw_record(fetch, error.offset))
        if refused.records:
            self._refused, self.error = refused, self._described(error)
        self._continue_at(fetch, error.offset + 1)

    def _raw_record(self, fetch: CompletedShareFetch, offset: int) -> dict[int, ShareRecord]:
        """Returns an acquired record with the bytes of its key and value, by its offset."""
        fetch.next_offset = offset
        return acquired_records(self._decoder(fetch).take(1), _ranges(fetch), self.acknowledger)

    @staticmethod
    def _described(error: RecordDeserializationError) -> RecordDeserializationError:
        """Returns the error with a message for members of a share group."""
        user_code = "record_filter" if error.origin == "filter" else f"the {error.origin} deserializer"
        found = type(error)(
            f"{user_code} failed on the record of {error.topic_partition} at offset {error.offset}"
            f" ({type(error.__cause__).__name__}: {error.__cause__}); the next poll releases the record, so that the"
            " group delivers it again until its deliveries are exhausted; in explicit mode,"
            " acknowledge(topic, partition, offset, AcknowledgeType.REJECT) ends its deliveries",
            topic_partition=error.topic_partition,
            offset=error.offset,
            key=error.key,
            value=error.value,
            headers=error.headers,
            timestamp=error.timestamp,
            origin=error.origin,
        )
        found.__cause__ = error.__cause__
        return found

    def _release_batch(self, fetch: CompletedShareFetch, batch: AcquiredBatch, error: BatchTooLargeError) -> None:
        """Release the acquired records of a batch that is too large, and put the data after it back."""
        self.error = BatchTooLargeError(
            f"the batch of {error.topic_partition} at offset {error.offset} decompresses to more than {error.limit}"
            " bytes; its records were released, so the group delivers them again until their deliveries are exhausted;"
            " raise decompressed_batch_max_bytes",
            topic_partition=error.topic_partition,
            offset=error.offset,
            next_offset=error.next_offset,
            limit=error.limit,
        )
        batch.set_all(AcknowledgeType.RELEASE, offsets_within(_ranges(fetch), error.offset, error.next_offset))
        if fetch.records is not None:  # else the batch would be decompressed again
            fetch.records = batches_from(fetch.records, error.next_offset)
        self._continue_at(fetch, error.next_offset)

    def _continue_at(self, fetch: CompletedShareFetch, offset: int) -> None:
        """Put the data of the acquired records from `offset` on back into the buffer, if there are any."""
        fetch.next_offset = offset
        if fetch.next_offset <= fetch.acquired[-1].last_offset:
            self._buffer.put_back(fetch)


def batches_from(records: Slice | bytes, offset: int) -> bytes:
    """Returns a copy of the batches of a response without those that begin before `offset`."""
    data = memoryview(records)
    at = 0
    while len(data) - at >= BATCH_START.size:
        base_offset, size = BATCH_START.unpack_from(data, at)
        if base_offset >= offset:
            break
        at += BATCH_START.size + size
    return bytes(data[at:])


def _ranges(fetch: CompletedShareFetch) -> list[tuple[int, int, int]]:
    """Returns the first offset, the last offset and the delivery count of each acquired range."""
    return [(row.first_offset, row.last_offset, row.delivery_count) for row in fetch.acquired]


def offsets_within(ranges: list[tuple[int, int, int]], start: int, end: int) -> list[int]:
    """Returns the offsets of the acquired `ranges` that are at least `start` and less than `end`."""
    return [offset for part in parts_within(ranges, start, end) for offset in part]


def parts_within(ranges: list[tuple[int, int, int]], start: int, end: int) -> list[range]:
    """Returns the parts of the acquired `ranges` whose offsets are at least `start` and less than `end`."""
    return [range(max(first, start), min(last + 1, end)) for first, last, _ in ranges]
