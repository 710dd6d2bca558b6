"""ConsumerRecords: what one poll returned.

Holds runs of records and where each partition goes on; makes record objects only when asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import kconsumer.compression  # noqa: F401  (hands the codecs to the compiled core)
from kconsumer._core.record import ConsumerRecord
from kconsumer._core.record_run import RecordIterator, RecordRun
from kconsumer._foreign_methods import RECORDS, SUBSCRIPT, explain
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pandas
    import polars

    from kconsumer.arrow import RecordBatch, Table


Position = tuple[int, int | None] | tuple[int, int | None, Any]
NONE: Mapping[Any, Any] = MappingProxyType({})


class ConsumerRecords:
    """Records of several partitions, each partition's in offset order (Java `ConsumerRecords`).

    Falsy if there are none. Iterating, `records` and `by_partition` make new record objects each time. A record
    keeps the received bytes it came from in memory, with its neighbours; keep its value if it is to be kept for long.
    """

    __slots__ = ("_count", "_positions", "_runs", "_skipped")

    EMPTY: ClassVar[ConsumerRecords]

    def __init__(
        self,
        runs: Iterable[RecordRun] = (),
        positions: Mapping[TopicPartition, Position] = NONE,
        skipped: Mapping[TopicPartition, Sequence[tuple[int, int, str]]] = NONE,
    ) -> None:
        """Each of the `runs` has records, and will not be taken again. `positions`: where partitions go on, offset and
        leader epoch first. Whoever calls changes none of it later: a poll has no time for copies."""
        self._runs = tuple(runs)
        self._positions = positions
        self._skipped = skipped
        count = 0
        for run in self._runs:
            count += len(run)
            run.detach()
        self._count = count

    @classmethod
    def empty(cls) -> ConsumerRecords:
        """No records, and no position that moved."""
        return cls.EMPTY

    @property
    def count(self) -> int:
        """How many records there are."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> RecordIterator:
        return RecordIterator(self._runs)

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that have records here."""
        return frozenset(run.topic_partition for run in self._runs)

    def records(self, topic_partition: tuple[str, int]) -> list[ConsumerRecord]:
        """The records of one partition; empty if it has none here."""
        return list(RecordIterator(tuple(run for run in self._runs if run.topic_partition == topic_partition)))

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """The records of each partition that has some, in the order they came."""
        grouped: dict[TopicPartition, list[ConsumerRecord]] = {}
        for run in self._runs:
            grouped.setdefault(run.topic_partition, []).extend(run)
        return grouped

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition goes on after these records, to be committed as it is (KIP-1094).

        A partition has an entry also if it gave no record but its position moved over control records or
        gaps.
        """
        return {tp: OffsetAndMetadata(position[0], "", position[1]) for tp, position in self._positions.items()}

    def skipped(self) -> dict[TopicPartition, tuple[tuple[int, int, str], ...]]:
        """What was passed over on the way: first offset, the one after the last, "control" or "aborted"."""
        return {tp: tuple(batches) for tp, batches in self._skipped.items()}

    def to_arrow(
        self, columns: Iterable[str] | None = None, *, ends: dict[TopicPartition, int] | None = None
    ) -> RecordBatch:
        """The records as Arrow columns (see `kconsumer.arrow`), all or the chosen ones; keys and values are bytes.

        `ends`: leave out records at and beyond their partition's offset here. Raises OverflowError if a column
        would reach 2 GiB; as a stream (`__arrow_c_stream__`) there is no such limit.
        """
        from kconsumer.arrow import RecordBatch  # a third of all compiled modules: for those who want columns

        return RecordBatch.of(self._runs, columns, self.next_offsets(), ends)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All columns as a stream of Arrow batches, for pyarrow, polars, duckdb and others (PyCapsule interface)."""
        return self._table().__arrow_c_stream__(requested_schema)

    def to_pandas(self, columns: Iterable[str] | None = None) -> pandas.DataFrame:
        """The columns as a `pandas.DataFrame`; needs pandas and pyarrow."""
        return self._table(columns).to_pandas()

    def to_polars(self, columns: Iterable[str] | None = None) -> polars.DataFrame:
        """The columns as a `polars.DataFrame`; needs polars."""
        return self._table(columns).to_polars()

    def _table(self, columns: Iterable[str] | None = None) -> Table:
        from kconsumer.arrow import Table  # as in `to_arrow`

        return Table.of(self._runs, columns)

    if not TYPE_CHECKING:  # a checker would take every name for an attribute

        def __getattr__(self, name):
            raise AttributeError(explain(self, name, RECORDS), name=name, obj=self)

        def __getitem__(self, key):
            raise TypeError(SUBSCRIPT)

    def __repr__(self) -> str:
        partitions = len(self.partitions())
        return f"<ConsumerRecords: {self._count} records of {partitions} partition{'s' * (partitions != 1)}>"


ConsumerRecords.EMPTY = ConsumerRecords()
