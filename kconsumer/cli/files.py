"""Writes output: bytes to standard output, or columns to a Parquet or Arrow file (`kconsumer consume -o FILE`).

A column file is written as `FILE.part`, which is renamed when it is complete and deleted after an error. The process
that writes it has a lock on it, so that runs with the same file exclude each other. A failed write raises a WriteError
that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kconsumer.arrow import RecordBatch
from kconsumer.errors import KafkaError
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord
if sys.platform != "win32":
    import fcntl

SUFFIXES = (".parquet", ".arrow")
ROW_GROUP_ROWS, ROW_GROUP_BYTES = 1 << 17, 64 << 20  # pending rows that reach one of these are written as a row group


class MissingLibraryError(KafkaError):
    """pyarrow is not installed."""


class WriteError(KafkaError):
    """Output could not be written. The message names the file and the reason."""


@contextlib.contextmanager
def _naming(target: object) -> Iterator[None]:
    """Turn an OSError in the `with` block into a WriteError that names `target`.

    A BrokenPipeError is raised unchanged, because `main` handles it: the program that read the pipe has ended.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WriteError(f"cannot write {target}: {reason}") from error


def write_all(out: BinaryIO, data: bytes) -> None:
    """Write all bytes to standard output, and flush it.

    With PYTHONUNBUFFERED standard output has no buffer, and one call of `write` may write only a part of the bytes.
    """
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[out.write(remaining) :]
    out.flush()


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Turn an OSError of a full disk (ENOSPC) in the `with` block into a WriteError that names standard output.

    Bytes that could not be written are discarded.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output()
        raise WriteError(f"cannot write to standard output: {os.strerror(error.errno)}") from error


def drop_output() -> None:
    """Redirect standard output to /dev/null. Otherwise Python would fail when it flushes the buffer at exit."""
    with contextlib.suppress(OSError, ValueError):  # sys.stdout has no descriptor in some tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ColumnFile:
    """Writes a Parquet or Arrow file.

    As a context manager, it completes the file at the end of the `with` block, or removes it after an exception.
    `keep_existing`: raise WriteError if the file exists, at the beginning or at the end, in place of replacing it.
    """

    def __init__(self, path: Path, *, keep_existing: bool = False) -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._keep_existing = keep_existing
        self._lock = -1  # the descriptor of the locked `FILE.part`
        self._pending: list[Any] = []  # tables
        self._rows = self._bytes = 0
        self._writer: Any = None
        try:
            import pyarrow
            from pyarrow import compute
        except ImportError:
            raise MissingLibraryError(
                f"writing {path.suffix} files needs pyarrow, which is not installed: pip install pyarrow"
            ) from None
        self._pyarrow, self._compute = pyarrow, compute

    def write(self, batch: RecordBatch, ends: Mapping[TopicPartition, int]) -> tuple[int, int]:
        """Add rows to the file, without those at or after the end of their partition in `ends`.

        Returns the number of rows that were added, and their size in memory, in bytes.
        """
        rows = self._without_rows_beyond(batch.to_pyarrow(), ends)
        return self._add(self._pyarrow.Table.from_batches([rows]))

    def write_records(self, records: Sequence[ConsumerRecord], decoded: Collection[str]) -> tuple[int, int]:
        """Add records. The types of deserialized keys and values, which `decoded` names, become those of the columns.

        Returns what `write` returns. Raises WriteError if the values have no common type.
        """
        arrow, schema = self._pyarrow, RecordBatch.of([]).to_pyarrow().schema
        columns: list[Any] = []
        try:
            for name in schema.names:
                values = [getattr(record, name) for record in records]
                columns.append(arrow.array(values, None if name in decoded else schema.field(name).type))
        except (arrow.ArrowException, OverflowError) as error:
            raise WriteError(f"cannot write {self._path}: a {name} has no type of a column: {error}") from error
        return self._add(arrow.table(columns, schema.names))

    def _add(self, rows: Any) -> tuple[int, int]:
        self._pending.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            with _naming(self._path):
                self._flush()
        return rows.num_rows, int(rows.nbytes)

    def _without_rows_beyond(self, rows: Any, ends: Mapping[TopicPartition, int]) -> Any:
        compute = self._compute
        for tp, end in ends.items():
            other_topic = compute.not_equal(rows.column("topic"), tp.topic)
            other_partition = compute.not_equal(rows.column("partition"), tp.partition)
            before = compute.less(rows.column("offset"), end)
            rows = rows.filter(compute.or_(compute.or_(other_topic, other_partition), before))
        return rows

    def _flush(self, schema: Any = None) -> None:
        """Write the pending rows as one row group.

        If `schema` is given and no rows were ever added, writes an empty table, so that the file is valid.
        """
        if self._pending:
            table = self._table()
        elif schema is not None and self._writer is None:
            table = schema.empty_table()
        else:
            return
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table)
        self._pending = []
        self._rows = self._bytes = 0

    def _table(self) -> Any:
        """Returns the pending rows as a table with the schema of the file.

        Raises WriteError if decoded rows have other types than those before.
        """
        pending = self._pending
        if self._writer is not None:
            pending = [self._schema.empty_table(), *pending]
        try:
            table = self._pyarrow.concat_tables(pending, promote_options="permissive").combine_chunks()
        except self._pyarrow.ArrowException as error:
            raise WriteError(f"cannot write {self._path}: {error}") from error
        if self._writer is not None and table.schema != self._schema:
            raise WriteError(f"cannot write {self._path}: later records have other fields or types than the first ones")
        return table

    def _open(self, schema: Any) -> Any:
        self._schema = schema
        if self._path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.ParquetWriter(str(self._part), schema, compression="zstd")
        return self._pyarrow.ipc.new_file(str(self._part), schema)

    def __enter__(self) -> ColumnFile:
        self._check_absent()
        with _naming(self._path):
            self._lock = _lock(self._part)
        if self._lock == -1:
            raise WriteError(f"cannot write {self._path}: another process writes it now")
        return self

    def _check_absent(self) -> None:
        if self._path.is_dir():
            raise WriteError(f"cannot write {self._path}: it is a folder")
        if self._keep_existing and self._path.exists():
            raise WriteError(
                f"cannot write {self._path}: it exists, and with -g no file is replaced, because the offsets of its"
                " records are committed"
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            with _naming(self._path) if kind is None else contextlib.suppress(OSError):
                self._complete(kind is None)
        finally:
            if self._lock >= 0:  # it was not renamed
                self._part.unlink(missing_ok=True)
            self._unlock()

    def _complete(self, succeeded: bool) -> None:
        try:
            if succeeded:
                self._flush(RecordBatch.of([]).to_pyarrow().schema)
        finally:
            if self._writer is not None:
                self._writer.close()
        if not succeeded:
            return
        os.fsync(self._lock)  # offsets are committed afterwards: the rows must survive a crash of the machine
        self._check_absent()
        if sys.platform == "win32":  # which renames no open file
            self._unlock()
        self._part.replace(self._path)
        _sync_folder(self._path.parent)
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def _lock(part: Path) -> int:
    """Open and lock a file, which is created if it does not exist. Returns its descriptor.

    Returns -1 if another process has the lock. File systems without locks are used without.
    """
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return -1
        except OSError:
            return descriptor
        # The process that had the lock may have renamed or deleted its file between open() and flock().
        if part.exists() and os.path.samestat(os.fstat(descriptor), part.stat()):
            return descriptor
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Let the name of a file survive a crash of the machine. Systems that cannot open folders need no call."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def column_file(text: str) -> Path:
    """Convert the argument of `-o` to a path. Raises ValueError if its suffix is unknown or its folder is missing."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{text!r} does not end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} does not exist")
    return path
