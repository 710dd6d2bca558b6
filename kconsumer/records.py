"""ConsumerRecords: the result of one poll().

It contains runs of records and the next offset of each partition. Record objects are created when they are accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Self

import kconsumer._internal.compression  # noqa: F401  (hands the codecs to the compiled core)
from kconsumer._common.foreign_methods import RECORDS, SUBSCRIPT, existing, without
from kconsumer._core.decode import NONE, ConsumerRecord, RecordIterator, RunBatch, run_of
from kconsumer.types import K, OffsetAndMetadata, TopicPartition, V

if TYPE_CHECKING:
    import pandas
    import polars

    from kconsumer._core.decode import _R as R
    from kconsumer.arrow import RecordBatch, Table


Position = tuple[int, int | None] | tuple[int, int | None, Any]


@without(RECORDS)
class ConsumerRecords(RunBatch[K, V, "R"]):
    """Records of several partitions (Java `ConsumerRecords`). The records of one partition are in offset order.

    An object without records is falsy. Iteration, `records` and `by_partition` create new record objects each time,
    unless the batch was created from record objects. A record keeps all received bytes of its batch in memory. To keep
    data for a long time, keep only the value of the record.
    """

    __slots__ = ()

    EMPTY: ClassVar[ConsumerRecords[Any, Any, Any]]

    def __init__(self, records: Iterable[R] = ()) -> None:
        """Create a batch of these records, for example for a test of a function that takes a batch.

        The order of the records is kept. `next_offsets` contains the offset after the last record of each partition.
        Raises TypeError for any other object than an iterable of ConsumerRecord.
        """
        runs = tuple(run_of(group) for group in _by_partition(records))
        positions = {run.topic_partition: (run.next_offset, run.leader_epoch) for run in runs}
        self._fill(runs, positions, NONE)

    @classmethod
    def empty(cls) -> ConsumerRecords[Any, Any, Any]:
        """Returns an instance without records or next offsets."""
        return cls.EMPTY

    def partitions(self) -> frozenset[TopicPartition]:
        """Returns the partitions that have records in this batch."""
        return frozenset(run.topic_partition for run in self._runs)

    def records(self, topic_partition: tuple[str, int]) -> list[R]:
        """Returns the records of one partition. The list may be empty."""
        return list(RecordIterator(tuple(run for run in self._runs if run.topic_partition == topic_partition)))

    def by_partition(self) -> dict[TopicPartition, list[R]]:
        """Returns the records by partition. Partitions without records are left out."""
        grouped: dict[TopicPartition, list[Any]] = {}
        for run in self._runs:
            grouped.setdefault(run.topic_partition, []).extend(run)
        return grouped

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the next offset of each partition after these records, for commit() (KIP-1094).

        The result contains a partition without records, too, if its position moved over control records or gaps.
        """
        return {tp: OffsetAndMetadata(position[0], "", position[1]) for tp, position in self._positions.items()}

    def skipped(self) -> dict[TopicPartition, tuple[tuple[int, int, str], ...]]:
        """Returns the batches that were skipped, by partition. A consumer does not return their records.

        Each batch is a tuple (first offset, last offset + 1, reason). The reason is "control" or "aborted".
        """
        return {tp: tuple(batches) for tp, batches in self._skipped.items()}

    def to_arrow(
        self, columns: Iterable[str] | None = None, *, ends: dict[TopicPartition, int] | None = None
    ) -> RecordBatch:
        """Returns the records as the chosen Arrow columns, by default all (see `kconsumer.arrow`).

        Keys and values are bytes. `ends` maps partitions to offsets; records at or beyond the offset of their partition
        are left out. Raises OverflowError if a column would reach 2 GiB. A stream (`__arrow_c_stream__`) has no such
        limit.
        """
        from kconsumer.arrow import RecordBatch  # a third of all compiled modules: imported when used

        return RecordBatch.of(self._runs, columns, self.next_offsets(), ends)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns all columns as a stream of Arrow batches, for pyarrow, polars and duckdb (PyCapsule interface)."""
        return self._table().__arrow_c_stream__(requested_schema)

    def to_pandas(self, columns: Iterable[str] | None = None) -> pandas.DataFrame:
        """Returns the columns as a `pandas.DataFrame`. This needs pandas and pyarrow."""
        return self._table(columns).to_pandas()

    def to_polars(self, columns: Iterable[str] | None = None) -> polars.DataFrame:
        """Returns the columns as a `polars.DataFrame`. This needs polars."""
        return self._table(columns).to_polars()

    def _table(self, columns: Iterable[str] | None = None) -> Table:
        from kconsumer.arrow import Table  # as in `to_arrow`

        return Table.of(self._runs, columns)

    if not TYPE_CHECKING:  # for a checker, records have no subscript

        def __getitem__(self, key):
            raise TypeError(SUBSCRIPT)

    def __dir__(self) -> list[str]:
        return existing(self, super().__dir__())

    def __copy__(self) -> Self:
        return self  # it never changes

    def _repr_html_(self) -> str:
        """Returns the first records as an HTML table, for notebooks."""
        from kconsumer._common.html_table import html_table  # imported when used

        columns = ("topic", "partition", "offset", "timestamp", "key", "value")
        rows = ([getattr(record, name) for name in columns] for record in self)
        return html_table(repr(self)[1:-1], columns, rows)

    def __repr__(self) -> str:
        partitions = len(self.partitions())
        return f"<ConsumerRecords: {self._count} records of {partitions} partition{'s' * (partitions != 1)}>"


def _by_partition(records: Iterable[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Yields the records as lists. Consecutive records of the same partition form one list.

    Raises TypeError for an object that is not a ConsumerRecord.
    """
    if isinstance(records, ConsumerRecord):
        raise TypeError(
            "ConsumerRecords() takes an iterable of records; for one record write ConsumerRecords([record])"
        )
    if isinstance(records, Mapping):
        raise TypeError("ConsumerRecords() takes records, and reads their partitions from them; not a mapping")
    checked = list(records)
    for record in checked:
        if not isinstance(record, ConsumerRecord):
            raise TypeError(f"ConsumerRecords() takes ConsumerRecord objects, not {type(record).__name__}: {record!r}")
    for _, group in groupby(checked, key=lambda record: record.topic_partition):
        yield list(group)


ConsumerRecords.EMPTY = ConsumerRecords()
