"""Checks of partitions, offsets and times that users pass. The errors say what to pass instead.

Any object with `__index__`, such as an integer of numpy, is accepted as an integer. Floats are not. Values that pass
these checks can be encoded in a request.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.decode import ConsumerRecord
from kconsumer.records import ConsumerRecords
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from datetime import datetime

MAX_PARTITION = MAX_LEADER_EPOCH = 2**31 - 1
MAX_OFFSET = 2**63 - 1
MAX_STRING_BYTES = 2**15 - 1
LIKELY_SECONDS = 10**9, 10**10  # as ms, times of January to April 1970; as seconds, times from 2001 on
log = get_logger(__name__)

_OFFSETS = (
    "a mapping {TopicPartition(topic, partition): next offset}, the ConsumerRecords of a poll(), a record, or nothing"
)


def topic_partition(tp: tuple[str, SupportsIndex]) -> TopicPartition:
    """Returns the TopicPartition for a TopicPartition or a plain pair (topic, partition).

    Raises ValueError for an empty topic and for a partition out of range, TypeError for any other object.
    """
    topic, partition = tp if isinstance(tp, tuple | list) and len(tp) == 2 else (None, None)
    if not isinstance(topic, str) or not hasattr(partition, "__index__"):
        raise TypeError(
            f"{tp!r} is not a topic-partition; give TopicPartition(topic, partition). assign() takes a list of them;"
            " pause(), resume() and seek_to_…() take them one by one: pause(*partitions)"
        )
    number = operator.index(partition)
    if not topic.strip() or not 0 <= number <= MAX_PARTITION or not _fits(topic):
        raise ValueError(f"not a topic-partition: {tp!r}")
    if isinstance(tp, TopicPartition) and type(partition) is int:
        return tp
    return TopicPartition(topic, number)


def topic_partitions(partitions: Iterable[tuple[str, SupportsIndex]]) -> list[TopicPartition]:
    """Returns the TopicPartitions of a list of partitions. Raises TypeError or ValueError for an invalid argument."""
    if not hasattr(partitions, "__iter__"):
        raise TypeError(f"{partitions!r} is not a list of partitions; write [TopicPartition(topic, partition), …]")
    return [topic_partition(tp) for tp in partitions]


def timestamps(times: Any) -> dict[TopicPartition, int]:
    """Returns the time to look up for each partition (ms since 1970). Raises TypeError or ValueError if one is invalid.

    A datetime must have a time zone. One between two milliseconds means the later of them, because no record has a time
    between them.
    """
    if not isinstance(times, Mapping):
        raise TypeError(f"offsets_for_times() takes a mapping {{TopicPartition(…): time}}, not {times!r}")
    by_partition = {topic_partition(tp): time for tp, time in times.items()}
    return {tp: timestamp(time, f"the time for {tp}") for tp, time in by_partition.items()}


def timestamp(time: Any, what: str) -> int:
    """Returns a time in ms since 1970. Raises TypeError or ValueError if it is invalid."""
    # Not isinstance(): a program that passes no datetime does not import `datetime`, which takes a millisecond.
    if hasattr(time, "utcoffset") and hasattr(time, "date"):
        time = _milliseconds(time, what)
    if not hasattr(time, "__index__"):
        hint = f"; write int({time!r})" if isinstance(time, float) else ""
        raise TypeError(f"{what} must be an int (ms since 1970) or a datetime with a time zone, not {time!r}{hint}")
    found = _within(MAX_OFFSET, time, f"{what} (ms since 1970)")
    if LIKELY_SECONDS[0] <= found < LIKELY_SECONDS[1]:
        log.warning("%s is %d ms, which is in 1970; if these are seconds, multiply them by 1000", what, found)
    return found


def _milliseconds(time: datetime, what: str) -> int:
    """Returns a datetime in ms since 1970."""
    from datetime import UTC, datetime, timedelta  # imported when used

    if time.utcoffset() is None:
        raise ValueError(f"{what} has no time zone: {time!r}; write datetime(…, tzinfo=UTC) or time.astimezone()")
    return -((datetime(1970, 1, 1, tzinfo=UTC) - time) // timedelta(milliseconds=1))


def checked_text(text: Any, what: str) -> str:
    """Returns an argument that must be a str. Raises TypeError if it is not."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, not {text!r}")
    return text


def at_least_one(name: str, value: Any) -> int:
    """Returns an argument that must be a positive integer. Raises TypeError or ValueError if it is not."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None
    if number < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return min(number, sys.maxsize)


def offsets_to_commit(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit by partition. Raises TypeError or ValueError for an invalid argument."""
    if isinstance(offsets, ConsumerRecords):
        return dict(offsets.next_offsets())
    if isinstance(offsets, ConsumerRecord):
        return {offsets.topic_partition: OffsetAndMetadata(offsets.offset + 1, "", offsets.leader_epoch)}
    if not isinstance(offsets, Mapping):
        raise TypeError(_what_to_commit(offsets))
    by_partition = {topic_partition(tp): offset for tp, offset in offsets.items()}
    return {tp: _offset(offset, f"the offset to commit for {tp}") for tp, offset in by_partition.items()}


def records_to_store(records: Any) -> Sequence[ConsumerRecord]:
    """Returns the records to store. Raises TypeError for an invalid argument."""
    chosen = (records,) if isinstance(records, ConsumerRecord) or not hasattr(records, "__iter__") else tuple(records)
    if not all(isinstance(record, ConsumerRecord) for record in chosen):
        raise TypeError(f"store_offsets() takes a record, records, or a mapping as commit() does, not {records!r}")
    return chosen


def seek_target(offset: Any) -> OffsetAndMetadata:
    """Returns the offset to seek to. Raises TypeError or ValueError for an invalid argument."""
    return _offset(offset, "the offset of seek()")


def record_offset(offset: Any) -> int:
    """Returns the offset of a record. Raises TypeError or ValueError for an invalid argument."""
    if not hasattr(offset, "__index__"):
        raise TypeError(f"the offset must be an int, not {offset!r}")
    return _within(MAX_OFFSET, offset, "the offset")


def _offset(offset: Any, what: str) -> OffsetAndMetadata:
    if isinstance(offset, OffsetAndMetadata):
        return _checked(offset, what)
    if hasattr(offset, "__index__"):
        return OffsetAndMetadata(_within(MAX_OFFSET, offset, what))
    hint = ""
    if isinstance(offset, ConsumerRecord):
        hint = "; the next one to read is record.offset + 1"
    elif isinstance(offset, OffsetAndTimestamp):
        hint = "; give its .offset"
    raise TypeError(f"{what} must be an int or an OffsetAndMetadata, not {offset!r}{hint}")


def _checked(given: OffsetAndMetadata, what: str) -> OffsetAndMetadata:
    offset = _within(MAX_OFFSET, given.offset, what)
    epoch = given.leader_epoch
    if epoch is not None:
        epoch = _within(MAX_LEADER_EPOCH, epoch, f"leader_epoch of {what}")
    if not isinstance(given.metadata, str):
        raise TypeError(f"metadata of {what} must be a str, not {given.metadata!r}")
    if not _fits(given.metadata):
        raise ValueError(
            f"metadata of {what} must be text that UTF-8 can encode in {MAX_STRING_BYTES} bytes"
            " (brokers take 4096 unless configured otherwise)"
        )
    return OffsetAndMetadata(offset, given.metadata, epoch)


def _within(limit: int, number: Any, what: str) -> int:
    try:
        found = operator.index(number)
    except TypeError:
        raise TypeError(f"{what} must be an int, not {number!r}") from None
    if not 0 <= found <= limit:
        sign = "the negative number " if found < 0 else ""
        raise ValueError(f"{what} must be between 0 and {limit}, not {sign}{found}")
    return found


def _fits(text: str) -> bool:
    """Returns True if the text can be encoded as a string of a request."""
    try:
        return len(text.encode()) <= MAX_STRING_BYTES
    except UnicodeEncodeError:
        return False


def _what_to_commit(offsets: Any) -> str:
    refusal = f"commit() takes {_OFFSETS}, not {type(offsets).__name__}"
    first = offsets[0] if isinstance(offsets, list) and offsets else offsets
    if isinstance(first, ConsumerRecord):
        return f"{refusal}; for all records of a poll() pass what it returned"
    if isinstance(first, TopicPartition):
        return (
            f"{refusal}; for the positions of some partitions write commit({{tp: consumer.position(tp) for tp in …}})"
        )
    if hasattr(offsets, "next_offsets"):
        return f"{refusal}; write commit(batch.next_offsets())"
    if callable(offsets):
        return f"{refusal}; pass a callback by name: commit_async(callback=…)"
    return refusal
