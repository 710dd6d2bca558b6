"""Looks up the partitions of topics, and the offsets of positions in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kconsumer import Consumer, errors
from kconsumer.cli.arguments import CommandError
from kconsumer.cli.positions import Position
from kconsumer.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


def partitions_of(
    consumer: Consumer, topic: str, numbers: Sequence[int] | None, servers: object
) -> list[TopicPartition]:
    """Returns these partitions of a topic, or all of them if `numbers` is None.

    Raises CommandError if the topic or one of the partitions does not exist. `servers` is named in the message.
    """
    try:
        known = sorted(info.partition for info in consumer.partitions_for(topic))
    except errors.StaleMetadataError as error:
        if error.name != "UNKNOWN_TOPIC_OR_PARTITION":
            raise
        known = []
    if not known:
        raise CommandError(f"topic {topic!r} does not exist on {servers}")
    missing = sorted(set(numbers or ()).difference(known))
    if missing:
        existing = f"0 to {known[-1]}" if known[-1] else "only 0"
        raise CommandError(f"topic {topic!r} has no partition {missing[0]}; it has {existing}")
    return [TopicPartition(topic, number) for number in (known if numbers is None else sorted(set(numbers)))]


def offsets_at(
    consumer: Consumer, partitions: Sequence[TopicPartition], position: Position, starts: Offsets, ends: Offsets
) -> dict[TopicPartition, int]:
    """Returns the offset of a position in each partition. `starts` and `ends` are the ends of the logs.

    An offset may be outside the log. A time after the last record is the end of the log.
    """
    if position.kind == "offset":
        return dict.fromkeys(partitions, position.value)
    if position.kind == "tail":
        return {tp: max(starts[tp], ends[tp] - position.value) for tp in partitions}
    if position.kind == "time":
        found = consumer.offsets_for_times(dict.fromkeys(partitions, position.value))
        return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}
    return dict(starts if position.kind == "earliest" else ends)
