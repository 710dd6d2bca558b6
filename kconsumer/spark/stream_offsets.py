"""Chooses the offsets of a stream: where it starts, where each micro-batch ends, and which ranges its tasks read.

Runs on the driver and does not need Spark: `stream.py` calls it with an `Admin` and the time. Spark stores the offsets
of micro-batches in its checkpoint. `StreamProgress` stores only what must be the same in all calls for one query, such
as the offsets at which the query starts.
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

SAMPLE_EVERY = 50  # micro-batches between two samples of record sizes


class Lookups(Protocol):
    """Requests to brokers; `admin.Admin` implements them."""

    def partitions(self) -> set[TopicPartition]: ...
    def earliest(self, partitions: set[TopicPartition], /) -> Offsets: ...
    def latest(
        self, partitions: set[TopicPartition], /, known: Mapping[TopicPartition, int] | None = None
    ) -> Offsets: ...
    def resolve(self, limit: Limit, partitions: set[TopicPartition], /) -> Offsets: ...
    def bytes_per_offset(self, start: Mapping[TopicPartition, int], /) -> dict[TopicPartition, float]: ...


class StreamProgress:
    """Chooses the offsets of one stream. The methods are in the order in which Spark calls them."""

    def __init__(self, config: SourceConfig, lookups: Lookups, parallelism: int | None = None) -> None:
        self._config, self._lookups, self._parallelism = config, lookups, parallelism
        self.loss = LossPolicy(config.fails_on_data_loss)  # for losses that the driver detects
        self.newest: Offsets | None = None  # the end offsets of the latest response
        self._initial: Offsets | None = None
        self._begins_empty = False  # the first micro-batch has no records, see `initial`
        self._available_now = False
        self._ceiling: Offsets | None = None  # with AvailableNow: the offsets at which the query ends
        minimum: int | None = config["minOffsetsPerTrigger"]
        self._minimum = None if minimum is None else MinOffsets(minimum, config["maxTriggerDelay"])
        self._sizes: dict[TopicPartition, float] = {}  # bytes per offset
        self._sample_in = 0  # micro-batches until the next sample

    # --- offsets ---------------------------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Returns the offsets at which a new query starts. Further calls return the same offsets."""
        if self._initial is None:
            self._initial = self._lookups.resolve(self._config.starting, self._lookups.partitions())
            # If a query is restarted before its first micro-batch is done, Spark calls this again. LATEST would then
            # resolve to later offsets, and the records before them would be skipped. A first micro-batch without
            # records makes Spark store the offsets in its checkpoint at once.
            self._begins_empty = self._config.starting == Named(LATEST)
        return dict(self._initial)

    def prepare_available_now(self) -> None:
        """Limit the query to the offsets that exist at the next call of `latest`."""
        self._available_now, self._ceiling = True, None

    def latest(self, start: Mapping[TopicPartition, int], now: float, *, everything: bool = False) -> Offsets:
        """Returns the end offsets of the micro-batch that begins at `start`, or `start` itself if the micro-batch must
        wait.

        `now` is the time in ms. With `everything`, the limits of a micro-batch do not apply.
        """
        if self._begins_empty and not self._available_now and start == self._initial:
            self._begins_empty = False
            self.newest = dict(start)
            self._delayed(start, start, now)
            return dict(start)
        ends = self._available(start)
        if everything:
            return ends
        begin = self._begin(start, ends)
        # With AvailableNow, a micro-batch that must wait ends the query, as in Spark's source. The next run reads it.
        if self._delayed(start, ends, now):
            return dict(start)
        max_offsets: int | None = self._config["maxOffsetsPerTrigger"]
        if max_offsets is not None:
            ends = cap_offsets(begin, ends, max_offsets)
        max_bytes: int | None = self._config["maxBytesPerTrigger"]
        if max_bytes is not None:
            ends = cap_bytes(begin, ends, max_bytes, self._sampled(begin, ends))
        return ends

    def _available(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the present end offset of each partition, or with AvailableNow the offset at which the query ends."""
        partitions = self._lookups.partitions()
        newest = self._lookups.latest(partitions, known=start)
        self.newest = dict(newest)
        if not self._available_now:
            return newest
        if self._ceiling is None:
            self._ceiling = dict(newest)
        # Partitions that were created later are read by the next run. `plan` detects deleted partitions.
        return {tp: min(end, newest[tp]) for tp, end in self._ceiling.items() if tp in newest}

    def _begin(self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the start of a micro-batch in each partition. New partitions begin at their earliest offset."""
        added = set(ends) - set(start)
        found = self._lookups.earliest(added) if added else {}
        return {tp: start[tp] if tp in start else found.get(tp, end) for tp, end in ends.items()}

    def _delayed(self, start: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float) -> bool:
        return self._minimum is not None and self._minimum.delays(start, ends, now)

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
        """Returns the ranges of each task of the micro-batch from `start` to `end`."""
        return share_tasks(self.plan(start, end), self._hints())

    def _hints(self) -> PlanHints:
        minimum, limit = self._config["minPartitions"], self._config["maxRecordsPerPartition"]
        return PlanHints(minimum, limit, self._parallelism, self._sizes)

    def plan(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        """Returns the ranges of the micro-batch from `start` to `end`.

        If records were lost, raises DataLossError or logs a warning, as the option onDataLoss requires.
        """
        difference = changes(start, end)
        begin = {**start, **self._added(set(difference.added))}
        if difference.deleted:
            self.loss.report("PARTITIONS_DELETED", f"{_names(difference.deleted)} are gone")
        self._check_decreased(difference.decreased)
        ranges = [OffsetRange(*tp, begin[tp], until) for tp, until in end.items() if tp in begin]
        return plan(ranges, self._config["planner"], self._hints())

    def _added(self, partitions: set[TopicPartition]) -> Offsets:
        if not partitions:
            return {}
        existing = self._lookups.partitions()
        found = self._lookups.earliest(partitions & existing)
        if found.keys() != partitions:
            missing = partitions - found.keys()
            what = f"cannot find earliest offsets of {_names(missing)}"
            self.loss.report("INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", what)
        for tp, offset in sorted(found.items()):
            if offset != 0:
                what = f"added partition {_names({tp})} starts from {offset} instead of 0"
                self.loss.report("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", what)
        return found

    def _check_decreased(self, decreased: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Report a loss for each partition in which the micro-batch ends before it begins.

        `decreased`: partition -> (begin, end) of these partitions.

        No loss is reported if this can be the effect of a restart: if a query is stopped during its first micro-batch,
        its checkpoint contains the end of that micro-batch but no start. The restarted query requests LATEST again, and
        so may get a start after this end. In this case no records are lost, and the micro-batch is empty.
        """
        if not decreased:
            return
        newest = self._lookups.latest(set(decreased))
        for tp, (begin, end) in sorted(decreased.items()):
            if self._initial is None or newest.get(tp, 0) < begin:
                what = f"partition {_names({tp})}'s offset was changed from {begin} to {end}"
                self.loss.report("PARTITION_OFFSET_CHANGED", what)


def _names(partitions: set[TopicPartition] | frozenset[TopicPartition]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions))
