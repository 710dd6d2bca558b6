"""Results of the compiled decoder in the form of the reference decoder's."""

from __future__ import annotations

from typing import Any

from kconsumer._core.decode import PartitionFetch
from kconsumer.errors import CorruptRecordError, RecordTooLargeError
from kconsumer.types import TopicPartition
from support.oracles import reference

TP = TopicPartition("t", 0)


def compiled(
    data: bytes,
    start: int | None,
    step: int,
    *,
    check_crcs: bool = True,
    aborted: list[tuple[int, int]] | None = None,
    log_bytes: bool = True,
) -> reference.Decoded:
    """Returns the records of a PartitionFetch, taken in runs of `step`. `aborted=None` reads uncommitted."""
    fetch = PartitionFetch(
        TP,
        data,
        -1 if start is None else start,
        check_crcs=check_crcs,
        log_bytes=log_bytes,
        read_committed=aborted is not None,
        aborted_transactions=aborted or (),
    )
    out = reference.Decoded()
    try:
        while not fetch.exhausted:
            out.records += [as_tuple(record) for record in fetch.take(step)]
    except CorruptRecordError as error:
        out.malformed = str(error)
    except RecordTooLargeError:
        assert fetch.next_offset == start, "bytes without one whole batch, which is not an error of theirs"
    out.next_offset = None if fetch.next_offset < 0 else fetch.next_offset
    out.leader_epoch = fetch.next_leader_epoch
    return out


def as_tuple(record: Any) -> tuple[object, ...]:
    """Returns a record as the reference has it."""
    return (
        record.offset,
        record.timestamp,
        int(record.timestamp_type),
        record.key,
        record.value,
        record.headers,
        record.leader_epoch,
    )


def assert_same(expected: reference.Decoded, actual: reference.Decoded) -> None:
    """Check that records, position and epoch are equal, and that both or neither stopped at malformed bytes."""
    assert expected.records == actual.records
    assert (expected.next_offset, expected.leader_epoch) == (actual.next_offset, actual.leader_epoch)
    assert (expected.malformed is None) == (actual.malformed is None), (expected.malformed, actual.malformed)
