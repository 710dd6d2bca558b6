"""Forms of columns that the reader does not build itself: text of bytes, a map of headers.

Works on Arrow batches; which form a query wants is decided in `schema.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_map", "as_text"]


def as_text(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Keys and values as strings, and the rows that are left out because one of them is not UTF-8.

    Such a row is a dict with its offset, the column that is at fault, key and value.
    """
    import pyarrow as pa

    names = [name for name in ("key", "value") if name in batch.schema.names]
    try:
        return _cast(batch, names), []
    except pa.ArrowInvalid:
        bad = _undecodable(batch, names)
    wrong = {row["index"] for row in bad}
    kept = batch.filter(pa.array([index not in wrong for index in range(batch.num_rows)]))
    return _cast(kept, names), bad


def _cast(batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
    import pyarrow as pa

    for name in names:
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, batch.column(index).cast(pa.string()))
    return batch


def _undecodable(batch: pa.RecordBatch, names: list[str]) -> list[dict[str, Any]]:
    """The rows at fault, one by one: they are rare."""
    rows = batch.select([*names, "offset"]).to_pylist()
    found = []
    for index, row in enumerate(rows):
        fault = next((name for name in names if not _is_text(row[name])), None)
        if fault is not None:
            found.append({**row, "index": index, "column": fault})
    return found


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def as_map(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Headers as a map in which the last value of a key wins."""
    import pyarrow as pa

    index = batch.schema.get_field_index("headers")
    rows = batch.column(index).to_pylist()
    pairs = [None if row is None else list({item["key"]: item["value"] for item in row}.items()) for row in rows]
    return batch.set_column(index, schema.field("headers"), pa.array(pairs, schema.field("headers").type))
