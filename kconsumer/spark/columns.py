"""Converts Arrow batches of records to the columns of a query: decodes keys and values, and turns headers into a map.

`schema.py` decides which conversions a query needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.errors import KafkaError
from kconsumer.formats.decoders import Decoded, Decoder
from kconsumer.formats.header_ids import decode_column
from kconsumer.spark.schema import VALUE_BYTES, VALUE_ERROR, Projection

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BadTimestampError", "Converter", "as_map", "decode"]


class BadTimestampError(KafkaError):
    """A timestamp cannot be represented by Spark, and onBadTimestamp is `fail`."""

    def __init__(self, offset: int | None) -> None:
        super().__init__(f"the timestamp at offset {offset} cannot be represented")
        self.offset = offset  # None if the columns do not contain it


class Converter:
    """Converts batches of the columns `projection.record_columns` to batches with the schema of the projection."""

    def __init__(self, projection: Projection) -> None:
        self._schema, self._headers_map = projection.arrow_schema(), projection.headers_map
        self._decoders = projection.decoders()
        self._keeps_errors = VALUE_ERROR in projection.columns
        self._on_bad_timestamp = projection.on_bad_timestamp if "timestamp" in projection.columns else "clamp"
        self._value_decoder = self._decoders.pop("value", None) if self._keeps_errors else None

    @property
    def can_fail(self) -> bool:
        """True if `convert` leaves rows out that cannot be decoded."""
        return bool(self._decoders)

    @property
    def needs_offset(self) -> bool:
        """True if `convert` names the offsets of rows in errors."""
        return self.can_fail or self._on_bad_timestamp == "fail"

    def convert(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
        """Returns the converted batch, and a dict for each row that cannot be decoded and is left out.

        The dict contains `offset`, the undecoded `key` and `value` (if the batch has these columns), the `column` that
        cannot be decoded, and the `reason`. Raises BadTimestampError.
        """
        if self._on_bad_timestamp != "clamp":
            batch = _without_bad_timestamps(batch, self._on_bad_timestamp)
        names, bad = self._schema.names, list[dict[str, Any]]()
        if VALUE_BYTES in names:
            batch = batch.append_column(VALUE_BYTES, batch.column("value"))
        if self._keeps_errors:
            batch = with_errors(batch, self._value_decoder)
        if self._decoders:
            batch, bad = decode(batch, self._decoders)
        if batch.schema.names != names:
            batch = batch.select(names)
        return as_map(batch, self._schema) if self._headers_map and "headers" in names else batch, bad


def _without_bad_timestamps(batch: pa.RecordBatch, action: str) -> pa.RecordBatch:
    """Returns the batch with null in place of timestamps that are beyond 64 bits in microseconds.

    Raises BadTimestampError in place of the first one if `action` is `fail`. The decoder has replaced such timestamps
    by the largest or smallest number, which is no number of milliseconds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    index = batch.schema.get_field_index("timestamp")
    column = batch.column(index)
    bad = pc.is_in(column.view(pa.int64()), pa.array([(1 << 63) - 1, -(1 << 63)]))
    if not bad.true_count:
        return batch
    if action == "fail":
        offsets = batch.column("offset") if "offset" in batch.schema.names else None
        raise BadTimestampError(offsets and offsets[bad.index(True).as_py()].as_py())
    return batch.set_column(index, batch.schema.field(index), pc.if_else(bad, None, column))


def with_errors(batch: pa.RecordBatch, decoder: Decoder | None) -> pa.RecordBatch:
    """Decode the column `value`, and add a column with the reason for each value that cannot be decoded, else null.

    Such a value becomes null. `decoder` is None for values that stay bytes.
    """
    import pyarrow as pa

    index = batch.schema.get_field_index("value")
    values = batch.column(index)
    found = decode_column(decoder, values, _headers(batch), "value") if decoder else Decoded(values, {})
    reasons: list[str | None] = [None] * batch.num_rows
    for row, why in found.bad.items():
        reasons[row] = why
    batch = batch.set_column(index, "value", found.column)
    return batch.append_column(VALUE_ERROR, pa.array(reasons, pa.string()))


def decode(batch: pa.RecordBatch, decoders: Mapping[str, Decoder]) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    """Decode the columns that `decoders` names. Returns the decoded rows, and a dict for each row with an error.

    The dict contains `offset`, the undecoded `key` and `value` (if the batch has these columns), the `column` that
    cannot be decoded, and the `reason`.
    """
    import pyarrow as pa

    undecoded, headers, bad = batch, _headers(batch), dict[int, tuple[str, str]]()
    for name, decoder in decoders.items():
        index = batch.schema.get_field_index(name)
        found = decode_column(decoder, batch.column(index), headers, name)
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


def _headers(batch: pa.RecordBatch) -> pa.Array | None:
    """Returns the column `headers` if the batch has it. The ids of schemas may be there."""
    return batch.column("headers") if "headers" in batch.schema.names else None


def as_map(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the batch with the column `headers` converted to a map. The last value of a repeated key wins."""
    import pyarrow as pa

    index = batch.schema.get_field_index("headers")
    rows = batch.column(index).to_pylist()
    pairs = [None if row is None else list({item["key"]: item["value"] for item in row}.items()) for row in rows]
    return batch.set_column(index, schema.field("headers"), pa.array(pairs, schema.field("headers").type))
