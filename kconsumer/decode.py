"""Decodes records without a broker: log segments, captured fetch responses, test data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kconsumer._core.fetch import PartitionFetch
from kconsumer.records import ConsumerRecords
from kconsumer.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer


def decode_batches(
    data: Buffer,
    *,
    topic: str = "",
    partition: int = 0,
    isolation_level: str | IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    aborted_transactions: Iterable[tuple[int, int]] = (),
    check_crcs: bool = True,
    start_offset: int | None = None,
    decompressed_batch_max_bytes: int | None = None,
) -> ConsumerRecords:
    """Returns the records of any concatenation of record batches (v2) and message sets (v0, v1), in their order.

    `data`: a fetch response's records field or a log segment's bytes, in any buffer; a partial batch at its
    end is ignored. It is not copied: the records refer to it. `topic` and `partition` appear in records and
    errors. Control records are left out, and so are records below `start_offset`. With `isolation_level`
    read_committed the records of `aborted_transactions` are left out, too: pairs of producer id and first offset, in
    any order, as a fetch response has them. `next_offsets()` of the result has the offset after the
    last batch, even if that had no record to return, with the batch's leader epoch if it has one.

    Raises CorruptRecordError for malformed bytes, BatchTooLargeError for a batch that decompresses to more than
    `decompressed_batch_max_bytes` (as the consumer's option) and for data whose compression ratio is implausible.
    """
    if start_offset is not None and start_offset < 0:
        raise ValueError(f"start_offset cannot be negative: {start_offset}")
    if decompressed_batch_max_bytes is not None and decompressed_batch_max_bytes < 1:
        raise ValueError(f"decompressed_batch_max_bytes must be at least 1, not {decompressed_batch_max_bytes}")
    where = TopicPartition(topic, partition)
    start = -1 if start_offset is None else start_offset
    fetch = PartitionFetch(
        where,
        data,
        start,
        check_crcs=check_crcs,
        log_bytes=True,
        read_committed=IsolationLevel(isolation_level) is IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted_transactions,
        batch_limit=decompressed_batch_max_bytes or 0,
    )
    if fetch.exhausted:
        return ConsumerRecords()
    runs = []
    while not fetch.exhausted:
        run = fetch.take(sys.maxsize)
        if len(run):
            runs.append(run)
    return ConsumerRecords(runs, {where: (fetch.next_offset, fetch.next_leader_epoch)})
