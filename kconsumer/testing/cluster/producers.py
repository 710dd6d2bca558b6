"""The producers that have written to a partition: which batches are duplicates, and which are out of order (KIP-98)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer.schema.transaction_admin import ProducerState
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.stored_batch import StoredBatch

NO_PRODUCER_ID = -1
MAX_SEQUENCE = (1 << 31) - 1
REMEMBERED_BATCHES = 5


class WrittenBatch(NamedTuple):
    """The fields by which a partition recognizes a batch that the producer sends again."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


class Producer:
    """The state of one producer that has written to a partition."""

    def __init__(self) -> None:
        self.epoch = -1
        self.last_timestamp = -1
        self.coordinator_epoch = -1  # 0 after a marker
        self.batches: deque[WrittenBatch] = deque(maxlen=REMEMBERED_BATCHES)  # of the present producer epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the producer epoch. If the epoch changes, removes the batches of the previous epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    """The producers of one partition, by producer id. Their state is read from the batches in the partition's log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._end = 0  # the end of what was read of the log
        self._producers: dict[int, Producer] = {}
        log.add_listener(self._follow)

    def duplicate_of(self, batch: StoredBatch) -> WrittenBatch | None:
        """Returns the remembered batch with the same producer, epoch and sequences as a produced batch, or None."""
        self._follow()
        producer = self._producers.get(batch.producer_id)
        if producer is None or producer.epoch != batch.producer_epoch:
            return None
        last = last_sequence(batch)
        return next((old for old in producer.batches if old[:2] == (batch.base_sequence, last)), None)

    def error_of(self, batch: StoredBatch) -> int:
        """Returns the error of a produced batch, or NONE if it may be appended."""
        if batch.producer_id == NO_PRODUCER_ID:
            return Errors.NONE
        self._follow()
        producer = self._producers.get(batch.producer_id) or Producer()
        if batch.producer_epoch < producer.epoch:
            return Errors.INVALID_PRODUCER_EPOCH
        if not _in_order(producer, batch):
            return Errors.OUT_OF_ORDER_SEQUENCE_NUMBER
        opened = batch.producer_id in self._log.transactions.open
        return Errors.INVALID_TXN_STATE if opened and not batch.transactional else Errors.NONE

    def states(self) -> list[ProducerState]:
        """Returns the rows of a DescribeProducers response."""
        self._follow()
        return [
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=self._log.transactions.open.get(producer_id, -1),
            )
            for producer_id, producer in self._producers.items()
        ]

    def _follow(self) -> None:
        """Process the batches that were appended to the log since the last call.

        If the log was truncated, removes all producers and processes the whole log again.
        """
        if self._log.end < self._end:
            self._producers.clear()
            self._end = 0
        if self._log.end > self._end:
            for batch in self._log.batches(self._end):
                self._add(batch)
            self._end = self._log.end

    def _add(self, batch: StoredBatch) -> None:
        """Update the producer of a batch that was appended to the log.

        Sets its producer epoch, and remembers the batch unless it is a marker. Ignores a batch without a producer id.
        """
        if batch.producer_id == NO_PRODUCER_ID:
            return
        producer = self._producers.setdefault(batch.producer_id, Producer())
        producer.last_timestamp = batch.max_timestamp
        if batch.control:
            producer.set_epoch(max(producer.epoch, batch.producer_epoch))
            producer.coordinator_epoch = 0
        else:
            producer.set_epoch(batch.producer_epoch)
            last = last_sequence(batch)
            producer.batches.append(WrittenBatch(batch.base_sequence, last, batch.base_offset, batch.max_timestamp))


def last_sequence(batch: StoredBatch) -> int:
    """Returns the sequence of the last record of a batch. Sequences begin with 0 again after MAX_SEQUENCE."""
    last: int = batch.base_sequence + batch.last_offset - batch.base_offset
    return last if last <= MAX_SEQUENCE else last - MAX_SEQUENCE - 1


def _in_order(producer: Producer, batch: StoredBatch) -> bool:
    """Returns whether the first sequence of a batch follows the last sequence of its producer.

    The first batch of a producer that the partition does not remember may have any sequence. The first batch of another
    producer epoch must have sequence 0.
    """
    first = batch.base_sequence
    if producer.epoch == -1:
        return True
    if batch.producer_epoch != producer.epoch:
        return first == 0
    last = producer.batches[-1].last_sequence if producer.batches else -1
    return first == last + 1 or (first == 0 and last == MAX_SEQUENCE)
