"""Where output goes: standard output, or records as columns in a Parquet or Arrow file (`kconsumer consume -o FILE`).

The file appears under its name when it is whole; until then it is `FILE.part`, which an error removes.
What cannot be written is a WriteError that names the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from kconsumer.arrow import RecordBatch
from kconsumer.errors import KafkaError

SUFFIXES = (".parquet", ".arrow")
GROUP_ROWS, GROUP_BYTES = 1 << 17, 64 << 20  # when what was read is written out, as one row group


class MissingLibraryError(KafkaError):
    """pyarrow is not installed."""


class WriteError(KafkaError):
    """Output cannot be written; says where to, and why."""


@contextlib.contextmanager
def _naming(target: object) -> Iterator[None]:
    """Turn an OSError of the block into a WriteError. A closed pipe is no error of writing: its reader has ended."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise WriteError(f"cannot write {target}: {reason}") from error


def write_all(out: BinaryIO, data: bytes) -> None:
    """Write to standard output, and flush. With PYTHONUNBUFFERED it has no buffer, and one write may take only a
    part."""
    left = memoryview(data)
    while left:
        left = left[out.write(left) :]
    out.flush()


@contextlib.contextmanager
def writing_output() -> Iterator[None]:
    """Turn a full disk behind standard output into a WriteError, and discard what cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output()
        raise WriteError(f"cannot write to standard output: {os.strerror(error.errno)}") from error


def drop_output() -> None:
    """Discard what is in the buffer of standard output: Python writes it at exit, which must not fail again."""
    with contextlib.suppress(OSError, ValueError):  # tests may have put something without a descriptor in its place
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class ColumnFile:
    """A file being written. Use it with `with`: leaving it normally completes the file."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._pending: list[Any] = []
        self._rows = self._bytes = 0
        self._writer: Any = None
        try:
            import pyarrow
        except ImportError:
            raise MissingLibraryError(
                f"writing {path.suffix} files needs pyarrow, which is not installed: pip install pyarrow"
            ) from None
        self._pyarrow = pyarrow
        with contextlib.suppress(FileNotFoundError):
            self._part.unlink()

    def write(self, batch: RecordBatch) -> int:
        """Add rows; how many bytes they have."""
        rows = batch.to_pyarrow()
        self._pending.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            with _naming(self._path):
                self._flush()
        return int(rows.nbytes)

    def _flush(self, schema: Any = None) -> None:
        """Write what is pending. With a `schema` also if that is nothing: a file without rows is a file, too."""
        if self._pending:
            table = self._pyarrow.Table.from_batches(self._pending).combine_chunks()
        elif schema is not None and self._writer is None:
            table = schema.empty_table()
        else:
            return
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table)
        self._pending = []
        self._rows = self._bytes = 0

    def _open(self, schema: Any) -> Any:
        if self._path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.ParquetWriter(str(self._part), schema, compression="zstd")
        return self._pyarrow.ipc.new_file(str(self._part), schema)

    def __enter__(self) -> ColumnFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            with _naming(self._path) if kind is None else contextlib.suppress(OSError):
                self._complete(kind is None)
        finally:
            self._part.unlink(missing_ok=True)

    def _complete(self, whole: bool) -> None:
        try:
            if whole:
                self._flush(RecordBatch.of([]).to_pyarrow().schema)
        finally:
            if self._writer is not None:
                self._writer.close()
        if whole:
            self._part.replace(self._path)


def column_file(text: str) -> Path:
    """The path of a file to write; ValueError if its name does not say which format."""
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{text!r} ends in neither {' nor '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {str(path.parent)!r}")
    return path
