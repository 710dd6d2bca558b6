"""Decodes records without a broker: log segments, captured fetch responses, test data."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kconsumer._core.decode import PartitionFetch
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
    """Returns the records of any sequence of record batches (v2) and message sets (v0, v1), in their order.

    `data` is the records field of a fetch response, or the bytes of a log segment, in any buffer. A partial batch at
    its end is ignored. The bytes are not copied: the records refer to them. `topic` and `partition` appear in records
    and errors.

    Control records and records below `start_offset` are left out. If `isolation_level` is read_committed, records of
    aborted transactions are left out, too. `aborted_transactions` contains pairs of producer id and first offset, as in
    a fetch response, in any order. `next_offsets()` of the result has the offset after the last batch, even if no
    record of that batch is returned, and the leader epoch of the batch if it has one.

    Raises CorruptRecordError for malformed bytes. Raises BatchTooLargeError for a batch that decompresses to more than
    `decompressed_batch_max_bytes` (like the option of the consumer) or has an implausible compression ratio.
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
    return ConsumerRecords.from_runs(runs, {where: (fetch.next_offset, fetch.next_leader_epoch)})
