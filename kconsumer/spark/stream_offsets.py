"""Where a stream starts, how far its next micro-batch goes, and which ranges that is.

The driver's side of a stream without Spark's part: given an `Admin` and a clock, it answers what `stream.py` is asked.
Spark keeps offsets in its checkpoint; this keeps only what must not change between two questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kconsumer.spark.limits import MinOffsets, cap_bytes, cap_offsets
from kconsumer.spark.loss import LossPolicy
from kconsumer.spark.offsets import LATEST, Limit, Named, changes
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.planning import OffsetRange, PlanHints, plan, share_tasks
from kconsumer.types import TopicPartition

__all__ = ["Lookups", "StreamProgress"]

Offsets = dict[TopicPartition, int]

SAMPLE_EVERY = 50  # micro-batches between two looks at the size of records


class Lookups(Protocol):
    """What is asked of brokers; `admin.Admin` is one."""

    def partitions(self) -> set[TopicPartition]: ...
    def earliest(self, partitions: set[TopicPartition], /) -> Offsets: ...
    def latest(
        self, partitions: set[TopicPartition], /, known: Mapping[TopicPartition, int] | None = None
    ) -> Offsets: ...
    def resolve(self, limit: Limit, partitions: set[TopicPartition], /) -> Offsets: ...
    def bytes_per_offset(self, start: Mapping[TopicPartition, int], /) -> dict[TopicPartition, float]: ...


class StreamProgress:
    """The answers to Spark's questions about one stream, in the order Spark asks them.

    `newest` is where partitions ended when `latest` last asked. Loss that the driver finds goes to `loss`.
    """

    def __init__(self, config: SourceConfig, lookups: Lookups, parallelism: int | None = None) -> None:
        self._config, self._lookups, self._parallelism = config, lookups, parallelism
        self.loss = LossPolicy(config.fails_on_data_loss)
        self.newest: Offsets | None = None
        self._initial: Offsets | None = None
        self._begins_empty = False
        self._available_now = False
        self._ceiling: Offsets | None = None
        least: int | None = config["minOffsetsPerTrigger"]
        self._gate = None if least is None else MinOffsets(least, config["maxTriggerDelay"])
        self._sizes: dict[TopicPartition, float] = {}
        self._sample_in = 0

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Where a new query starts; the same answer as often as it is asked."""
        if self._initial is None:
            self._initial = self._lookups.resolve(self._config.starting, self._lookups.partitions())
            # Spark asks again after a restart until the first micro-batch is done, and "latest" is another place then.
            # A first micro-batch without records ties it down at once.
            self._begins_empty = self._config.starting == Named(LATEST)
        return dict(self._initial)

    def prepare_available_now(self) -> None:
        """What is there when `latest` is next asked is all that will be read."""
        self._available_now, self._ceiling = True, None

    def latest(self, start: Mapping[TopicPartition, int], now: float, *, everything: bool = False) -> Offsets:
        """Where the micro-batch from `start` on ends; `start` itself if it is to wait. `everything`: without limits."""
        if self._begins_empty and not self._available_now and start == self._initial:
            self._begins_empty = False
            self.newest = dict(start)
            self._held_back(start, start, now)
            return dict(start)
        ends = self._available(start)
        if everything:
            return ends
        begin = self._begin(start, ends)
        # With AvailableNow this ends the query, and what is left waits for the next run; so Spark's source does it.
        if self._held_back(start, ends, now):
            return dict(start)
        most: int | None = self._config["maxOffsetsPerTrigger"]
        if most is not None:
            ends = cap_offsets(begin, ends, most)
        most_bytes: int | None = self._config["maxBytesPerTrigger"]
        if most_bytes is not None:
            ends = cap_bytes(begin, ends, most_bytes, self._sampled(begin, ends))
        return ends

    def _available(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Where partitions end now, or where they ended when the last run of a query with AvailableNow began."""
        partitions = self._lookups.partitions()
        newest = self._lookups.latest(partitions, known=start)
        self.newest = dict(newest)
        if not self._available_now:
            return newest
        if self._ceiling is None:
            self._ceiling = dict(newest)
        # Partitions that came later wait for the next run; what is gone shows when ranges are planned.
        return {tp: min(end, newest[tp]) for tp, end in self._ceiling.items() if tp in newest}

    def _begin(self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
        """Where each partition of a micro-batch begins: new ones at their earliest offset."""
        added = set(ends) - set(start)
        found = self._lookups.earliest(added) if added else {}
        return {tp: start[tp] if tp in start else found.get(tp, end) for tp, end in ends.items()}

    def _held_back(self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float) -> bool:
        return self._gate is not None and self._gate.holds(start, ends, now)

    def _sampled(self, begin: Offsets, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        filled = {tp for tp, end in ends.items() if end > begin[tp]}
        if self._sample_in <= 0:
            self._sizes, self._sample_in = {}, SAMPLE_EVERY
        self._sample_in -= 1
        unknown = {tp: begin[tp] for tp in filled - self._sizes.keys()}
        if unknown:
            self._sizes |= self._lookups.bytes_per_offset(unknown)
        return self._sizes

    # --- ranges ----------------------------------------------------------------------------------------------------

    def tasks(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> list[tuple[OffsetRange, ...]]:
        """The ranges that each task of the micro-batch between two offsets reads, as `plan` finds them."""
        return share_tasks(self.plan(start, end), self._hints())

    def _hints(self) -> PlanHints:
        least, most = self._config["minPartitions"], self._config["maxRecordsPerPartition"]
        return PlanHints(least, most, self._parallelism, self._sizes)

    def plan(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """The ranges of the micro-batch between two offsets; DataLossError, or a warning, for what is gone."""
        difference = changes(start, end)
        begin = {**start, **self._added(set(difference.added))}
        if difference.deleted:
            self.loss.report("PARTITIONS_DELETED", f"{_names(difference.deleted)} are gone")
        self._check_turned_back(difference.went_back)
        ranges = [OffsetRange(*tp, begin[tp], until) for tp, until in end.items() if tp in begin]
        return plan(ranges, self._config["planner"], self._hints())

    def _added(self, partitions: set[TopicPartition]) -> Offsets:
        if not partitions:
            return {}
        there = self._lookups.partitions()
        found = self._lookups.earliest(partitions & there)
        if found.keys() != partitions:
            missing = partitions - found.keys()
            what = f"cannot find earliest offsets of {_names(missing)}"
            self.loss.report("INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", what)
        for tp, offset in sorted(found.items()):
            if offset != 0:
                what = f"added partition {_names({tp})} starts from {offset} instead of 0"
                self.loss.report("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", what)
        return found

    def _check_turned_back(self, back: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """A partition that ends before it begins lost its end, or is the first micro-batch of a query run again.

        The latter was planned from an earlier "latest" than this run's: nothing is lost, and nothing is to be read.
        """
        if not back:
            return
        newest = self._lookups.latest(set(back))
        for tp, (begin, end) in sorted(back.items()):
            if self._initial is None or newest.get(tp, 0) < begin:
                what = f"partition {_names({tp})}'s offset was changed from {begin} to {end}"
                self.loss.report("PARTITION_OFFSET_CHANGED", what)


def _names(partitions: set[TopicPartition] | frozenset[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions))
