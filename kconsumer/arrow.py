"""Records as Arrow columns: `RecordBatch`, which `poll_arrow` returns, and `Table`, a sequence of them.

Both share their memory, without a copy, with any library that reads the Arrow PyCapsule interface (pyarrow, polars,
duckdb, pandas, nanoarrow). Such a library is imported only by the `to_…` methods.

The columns are `COLUMNS`: key and value binary, topic utf8, partition int32, offset int64, timestamp in ms UTC (-1 ms
if a record has no timestamp), timestamp_type int8 (-1 none, 0 create, 1 log append), headers a list of (key utf8, value
binary), leader_epoch int32. Only keys, values, values of headers and leader epochs can be null. Deserializers are
not called: keys and values are the bytes that were written. `SparkBatch` has the schema of Spark's Kafka source.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kconsumer._core.arrow import (
    COLUMNS,
    Columns,
    array_capsule,
    build,
    schema_capsule,
    spark_columns,
    spark_schema,
    stream_capsule,
)
from kconsumer._core.arrow import NAMES as SPARK_NAMES
from kconsumer._core.decode import RecordRun
from kconsumer.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["COLUMNS", "SPARK_COLUMNS", "KeyValueTable", "RecordBatch", "SparkBatch", "Table", "choose", "choose_spark"]

SPARK_COLUMNS = tuple(SPARK_NAMES.values())
_BY_SPARK_NAME = {spark_name: name for name, spark_name in SPARK_NAMES.items()}


def choose(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the names of the columns to build, in the caller's order. None selects all columns. Raises ValueError for
    a column that does not exist."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names, not one string; write columns=[{columns!r}]")
    if not hasattr(columns, "__iter__"):
        raise TypeError(f"columns is a list of names, not {columns!r}")
    chosen = tuple(dict.fromkeys(columns))
    unknown = [name for name in chosen if name not in COLUMNS]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    if not chosen:
        raise ValueError("no columns were chosen; leave columns out for all of them")
    return chosen


def choose_spark(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Returns kconsumer's names of the columns to build, in the caller's order. `columns` contains Spark's names.

    None selects all columns. Raises ValueError for a column that Spark's schema does not have.
    """
    if columns is None:
        return tuple(SPARK_NAMES)
    if isinstance(columns, str):
        return choose(columns)
    named = list(columns)
    for name in named:
        if name not in _BY_SPARK_NAME:
            raise ValueError(f"Spark's schema has no column {name!r}; it has {', '.join(SPARK_COLUMNS)}")
    return choose(_BY_SPARK_NAME[name] for name in named)


class RecordBatch:
    """Records as columns, with one row per record. An empty batch is falsy.

    `next_offsets()` returns the next position of each partition, to be passed to `commit`.
    """

    __slots__ = ("_columns", "_next_offsets")

    def __init__(
        self, columns: Columns, next_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> None:
        self._columns = columns
        self._next_offsets = dict(next_offsets or {})

    @classmethod
    def of(
        cls,
        runs: Sequence[RecordRun],
        columns: Iterable[str] | None = None,
        next_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        ends: dict[TopicPartition, int] | None = None,
    ) -> RecordBatch:
        """Returns the records of `runs` as one batch. Raises OverflowError if a column reaches 2 GiB.

        `ends` maps partitions to offsets. Records at or beyond the offset of their partition are left out.
        """
        parts = build(tuple(runs), choose(columns), ends)
        if len(parts) > 1:
            raise OverflowError(
                "a column of one Arrow batch can hold less than 2 GiB and the records need more: choose fewer columns,"
                " read fewer records at once, or read them as a stream of batches (__arrow_c_stream__)"
            )
        return cls(parts[0], next_offsets)

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return len(self._columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._columns.names

    def __len__(self) -> int:
        return len(self._columns)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the next position of each partition after these records.

        A partition without a record is included if its position advanced.
        """
        return dict(self._next_offsets)

    def gaps(self, start: int, end: int = -1) -> list[tuple[int, int]]:
        """Returns the ranges of offsets that have no row, as pairs (first, last + 1).

        Covers the offsets from `start` up to, not including, `end`. If the last row has a higher offset than `end`,
        covers the offsets up to this row instead. The batch must contain only one partition.
        """
        return self._columns.gaps(start, end)

    def __arrow_c_schema__(self) -> Any:
        """Returns the names and types of the columns, as an `arrow_schema` capsule."""
        return schema_capsule(self._columns.names)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Returns a capsule of the schema and one of the rows. May be called repeatedly. Ignores `requested_schema`."""
        return schema_capsule(self._columns.names), array_capsule(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns the rows, as a stream of one array."""
        return stream_capsule([self._columns], self._columns.names)

    def to_pyarrow(self) -> pyarrow.RecordBatch:
        """Returns a `pyarrow.RecordBatch` that shares the memory."""
        return _library("pyarrow").record_batch(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`. Needs pyarrow, too."""
        return to_pandas(self)

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`."""
        return to_polars(self)

    def _repr_html_(self) -> str:
        """Returns the first rows as an HTML table, for notebooks. Without pyarrow, the table has no rows."""
        return _html(self)

    def __repr__(self) -> str:
        return f"<RecordBatch: {self.num_rows} rows of {', '.join(self.columns)}>"


class SparkBatch(RecordBatch):
    """The rows of a batch in the schema of Spark's Kafka source.

    The columns are `SPARK_COLUMNS`. Timestamps are in microseconds, timestampType is int32, and the headers of a record
    without headers are null.
    """

    __slots__ = ("_names",)

    def __init__(self, batch: RecordBatch) -> None:
        super().__init__(spark_columns(batch._columns), batch._next_offsets)
        self._names = batch.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(SPARK_NAMES[name] for name in self._names)

    def __arrow_c_schema__(self) -> Any:
        """Returns the names and types of the columns, as an `arrow_schema` capsule."""
        return spark_schema(self._names)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Returns a capsule of the schema and one of the rows. May be called repeatedly. Ignores `requested_schema`."""
        return spark_schema(self._names), array_capsule(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns the rows, as a stream of one array. Needs pyarrow."""
        library = _library("pyarrow")
        return library.Table.from_batches([self.to_pyarrow()]).__arrow_c_stream__(requested_schema)


class Table:
    """A sequence of record batches with the same columns."""

    __slots__ = ("_columns", "_parts")

    def __init__(self, columns: Iterable[str] | None, parts: Iterable[Columns | RecordBatch]) -> None:
        self._columns = choose(columns)
        self._parts = [part._columns if isinstance(part, RecordBatch) else part for part in parts]

    @classmethod
    def of(cls, runs: Sequence[RecordRun], columns: Iterable[str] | None = None) -> Table:
        """Returns the records of `runs`, in as many batches as necessary."""
        names = choose(columns)
        return cls(names, build(tuple(runs), names))

    @property
    def num_rows(self) -> int:
        """The number of records."""
        return sum(map(len, self._parts))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._columns

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[RecordBatch]:
        return map(RecordBatch, self._parts)

    def __arrow_c_schema__(self) -> Any:
        """Returns the names and types of the columns, as an `arrow_schema` capsule."""
        return schema_capsule(self._columns)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns the batches, as an `arrow_array_stream` capsule. May be called repeatedly."""
        return stream_capsule(self._parts, self._columns)

    def to_pyarrow(self) -> pyarrow.Table:
        """Returns a `pyarrow.Table` that shares the memory."""
        return _library("pyarrow").table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`. Needs pyarrow, too."""
        return to_pandas(self)

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`."""
        return to_polars(self)

    def _repr_html_(self) -> str:
        """Returns the first rows as an HTML table, for notebooks. Without pyarrow, the table has no rows."""
        return _html(self)

    def __repr__(self) -> str:
        return f"<Table: {self.num_rows} rows of {', '.join(self.columns)} in {len(self._parts)} batches>"


class KeyValueTable:
    """The entries of a `TopicTable` as the Arrow columns `key` and `value`, in pyarrow's memory."""

    __slots__ = ("_table",)

    def __init__(self, entries: Mapping[Any, Any], key_type: str | None, value_type: str | None) -> None:
        columns = {
            "key": _array("key", entries.keys(), key_type),
            "value": _array("value", entries.values(), value_type),
        }
        self._table: pyarrow.Table = _library("pyarrow").table(columns)

    @property
    def num_rows(self) -> int:
        """The number of entries."""
        return len(self._table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._table.column_names)

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_schema__(self) -> Any:
        """Returns the names and types of the columns, as an `arrow_schema` capsule."""
        return self._table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns the entries, as an `arrow_array_stream` capsule. May be called repeatedly."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_pyarrow(self) -> pyarrow.Table:
        """Returns the `pyarrow.Table`."""
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a `pandas.DataFrame`."""
        return to_pandas(self)

    def to_polars(self) -> polars.DataFrame:
        """Returns a `polars.DataFrame`."""
        return to_polars(self)

    def __repr__(self) -> str:
        return f"<KeyValueTable: {self.num_rows} rows of {', '.join(self.columns)}>"


def _array(name: str, objects: Iterable[Any], kind: str | None) -> pyarrow.Array:
    """Returns objects as an Arrow array of a type, or of the type that pyarrow infers. Raises TypeError without one."""
    library, listed = _library("pyarrow"), list(objects)
    try:
        return library.array(listed, kind)
    except (library.ArrowException, OverflowError) as error:
        raise TypeError(
            f"the {name}s have no common Arrow type ({error}): let {name}_deserializer convert them, or use snapshot()"
        ) from error


def to_pandas(stream: RecordBatch | Table | KeyValueTable) -> pandas.DataFrame:
    """Returns a `pandas.DataFrame` of any object with `__arrow_c_stream__`."""
    _library("pandas")
    frame: pandas.DataFrame = _library("pyarrow").table(stream).to_pandas()
    return frame


def to_polars(stream: RecordBatch | Table | KeyValueTable) -> polars.DataFrame:
    """Returns a `polars.DataFrame` of any object with `__arrow_c_stream__`."""
    frame: polars.DataFrame = _library("polars").DataFrame(stream)
    return frame


def _html(rows: RecordBatch | Table) -> str:
    from kconsumer._common.html_table import MAX_ROWS, html_table  # imported when used

    try:
        first = rows.to_pyarrow().slice(0, MAX_ROWS).to_pylist()
    except ImportError:
        first = []
    return html_table(repr(rows)[1:-1], rows.columns, (row.values() for row in first))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs {name}, which is not installed: pip install {name}", name=name) from error
