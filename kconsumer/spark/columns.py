"""Forms of columns that the reader does not build itself: decoded keys and values, a map of headers.

Works on Arrow batches; which form a query wants is decided in `schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.spark.formats import Decoder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_map", "decode"]


def decode(batch: pa.RecordBatch, decoders: Mapping[str, Decoder]) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Columns decoded, and the rows that are left out because one of them does not decode.

    Such a row is a dict with its offset, key and value as they were, the column that is at fault and the reason.
    """
    import pyarrow as pa

    given, bad = batch, dict[int, tuple[str, str]]()
    for name, decoder in decoders.items():
        index = batch.schema.get_field_index(name)
        found = decoder.decode(batch.column(index))
        batch = batch.set_column(index, name, found.column)
        bad = {row: (name, why) for row, why in found.bad.items()} | bad
    if not bad:
        return batch, []
    rows = sorted(bad)
    names = [name for name in ("key", "value", "offset") if name in given.schema.names]
    letters = given.select(names).take(pa.array(rows)).to_pylist()
    kept = batch.filter(pa.array([row not in bad for row in range(batch.num_rows)]))
    return kept, [
        {**letter, "column": bad[row][0], "reason": bad[row][1]} for row, letter in zip(rows, letters, strict=True)
    ]


def as_map(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Headers as a map in which the last value of a key wins."""
    import pyarrow as pa

    index = batch.schema.get_field_index("headers")
    rows = batch.column(index).to_pylist()
    pairs = [None if row is None else list({item["key"]: item["value"] for item in row}.items()) for row in rows]
    return batch.set_column(index, schema.field("headers"), pa.array(pairs, schema.field("headers").type))
