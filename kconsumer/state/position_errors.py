"""The errors that the reset policy OffsetReset.NONE raises in place of a reset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kconsumer.errors import LogTruncationError, NoOffsetForPartitionError
from kconsumer.state.partition import FetchPosition
from kconsumer.types import OffsetAndMetadata, TopicPartition


class Truncation(NamedTuple):
    """A truncation of a partition's log below the position."""

    position: FetchPosition
    divergent: OffsetAndMetadata | None  # the log agrees with the records read up to this offset, if it is known


def truncation_error(truncations: Mapping[TopicPartition, Truncation]) -> LogTruncationError:
    """Returns the error for partitions whose log was truncated below the position.

    It is raised if the reset policy is OffsetReset.NONE.
    """
    offsets = {tp: cut.position.offset for tp, cut in truncations.items()}
    divergent = {tp: cut.divergent for tp, cut in truncations.items() if cut.divergent is not None}
    names = ", ".join(f"{tp} at offset {offset}" for tp, offset in offsets.items())
    return LogTruncationError(
        f"the log was truncated below the position of {names} (unclean leader election) and auto_offset_reset is none:"
        " seek() to an offset; divergent_offsets has the offsets where the logs diverge",
        offsets,
        divergent,
    )


def no_offset_error(partitions: Iterable[TopicPartition]) -> NoOffsetForPartitionError:
    """Returns the error for partitions without a committed offset. It is raised if the reset policy is
    OffsetReset.NONE."""
    names = tuple(sorted(partitions))
    return NoOffsetForPartitionError(
        f"no committed offset for {', '.join(map(str, names))} and auto_offset_reset is none: "
        f"seek() to an offset, or set auto_offset_reset",
        names,
    )
