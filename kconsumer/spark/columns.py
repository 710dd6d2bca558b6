"""Converts columns of Arrow batches: decodes keys and values, and turns headers into a map.

`schema.py` decides which conversions a query needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.formats.decoders import Decoder

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_map", "decode"]


def decode(batch: pa.RecordBatch, decoders: Mapping[str, Decoder]) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Decode the columns that `decoders` names. Returns the decoded rows, and a dict for each row with an error.

    The dict contains `offset`, the undecoded `key` and `value` (if the batch has these columns), the `column` that
    cannot be decoded, and the `reason`.
    """
    import pyarrow as pa

    undecoded, bad = batch, dict[int, tuple[str, str]]()
    for name, decoder in decoders.items():
        index = batch.schema.get_field_index(name)
        found = decoder.decode(batch.column(index))
        batch = batch.set_column(index, name, found.column)
        bad = {row: (name, why) for row, why in found.bad.items()} | bad
    if not bad:
        return batch, []
    rows = sorted(bad)
    names = [name for name in ("key", "value", "offset") if name in undecoded.schema.names]
    records = undecoded.select(names).take(pa.array(rows)).to_pylist()
    kept = batch.filter(pa.array([row not in bad for row in range(batch.num_rows)]))
    return kept, [
        {**record, "column": bad[row][0], "reason": bad[row][1]} for row, record in zip(rows, records, strict=True)
    ]


def as_map(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch with the column `headers` converted to a map. The last value of a repeated key wins."""
    import pyarrow as pa

    index = batch.schema.get_field_index("headers")
    rows = batch.column(index).to_pylist()
    pairs = [None if row is None else list({item["key"]: item["value"] for item in row}.items()) for row in rows]
    return batch.set_column(index, schema.field("headers"), pa.array(pairs, schema.field("headers").type))
