"""Batches whose keys or values are decoded into typed columns: `poll_arrow(decode=…)`.

Decides what a decoder may be, and which record is to blame if a value cannot be decoded. `Decoder` objects are made by
`kconsumer.registry`, or by the application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer.arrow import RecordBatch
from kconsumer.formats.decoders import Decoder
from kconsumer.formats.header_ids import decode_column, reads_schema_ids

if TYPE_CHECKING:
    import pyarrow

    from kconsumer.records import ConsumerRecords

__all__ = ["BadRow", "DecodedBatch", "Decoders", "checked", "decode_batch", "decode_records"]

Decoders = Decoder | Mapping[str, Decoder]  # one decoder of values, or decoders by column
DECODED = ("key", "value")


class BadRow(NamedTuple):
    """The first row of a batch that cannot be decoded."""

    row: int
    column: str
    reason: str


class DecodedBatch(RecordBatch):
    """The rows of a batch, with typed columns in place of bytes. Exchanged through pyarrow."""

    __slots__ = ("_decoded",)

    def __init__(self, batch: RecordBatch, decoded: pyarrow.RecordBatch) -> None:
        super().__init__(batch._columns, batch._next_offsets)
        self._decoded = decoded

    def __arrow_c_schema__(self) -> Any:
        """Returns the names and types of the columns, as an `arrow_schema` capsule."""
        return self._decoded.schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Returns a capsule of the schema and one of the rows. May be called repeatedly."""
        capsules: tuple[Any, Any] = self._decoded.__arrow_c_array__(requested_schema)
        return capsules

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Returns the rows, as a stream of one array."""
        return self._decoded.__arrow_c_stream__(requested_schema)


def checked(decode: Decoders | None, columns: Sequence[str]) -> dict[str, Decoder]:
    """Returns the decoders by column. Raises TypeError or ValueError for what is no decoder of these columns."""
    if decode is None:
        return {}
    decoders = dict(decode) if isinstance(decode, Mapping) else {"value": decode}
    for name, decoder in decoders.items():
        if name not in DECODED:
            raise ValueError(f"decode has the column {name!r}; only key and value can be decoded")
        if name not in columns:
            raise ValueError(f"decode needs the column {name}: add it to columns")
        if (
            isinstance(decoder, type)
            or not callable(getattr(decoder, "decode", None))
            or isinstance(decoder, bytes | str)
        ):
            raise TypeError(
                f"decode takes an object such as kconsumer.registry.AvroColumns(…), or a dict of them, not {decoder!r}"
            )
    return decoders


def decode_records(
    records: ConsumerRecords, columns: Sequence[str], decoders: Mapping[str, Decoder]
) -> DecodedBatch | BadRow:
    """Returns these columns of records, decoded where there is a decoder, or the first row that cannot be decoded."""
    headers = None
    if any(map(reads_schema_ids, decoders.values())):
        headers = records.to_arrow(["headers"]).to_pyarrow().column(0)
    return decode_batch(records.to_arrow(columns), decoders, headers)


def decode_batch(
    batch: RecordBatch, decoders: Mapping[str, Decoder], headers: pyarrow.Array | None = None
) -> DecodedBatch | BadRow:
    """Returns the batch with these columns decoded, or the first row that cannot be decoded.

    `headers` is the column of the headers of its records, in which schema ids may be.
    """
    decoded = batch.to_pyarrow()
    first: BadRow | None = None
    for name, decoder in decoders.items():
        index = decoded.schema.get_field_index(name)
        found = decode_column(decoder, decoded.column(index), headers, name)
        decoded = decoded.set_column(index, name, found.column)
        if found.bad:
            row = min(found.bad)
            if first is None or row < first.row:
                first = BadRow(row, name, found.bad[row])
    return DecodedBatch(batch, decoded) if first is None else first
