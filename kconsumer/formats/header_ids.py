"""Schema ids in the column of record headers: puts them before the values, where decoders of columns expect them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kconsumer.formats.decoders import Decoded, Decoder
from kconsumer.formats.framing import HEADERS, frame_bytes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["decode_column", "reads_schema_ids"]


def reads_schema_ids(decoder: Decoder) -> bool:
    """Returns True if the values of a decoder begin with the id of a schema, which may be in a header instead."""
    return getattr(decoder, "reads_schema_ids", False) is True


def decode_column(decoder: Decoder, values: pa.Array, headers: pa.Array | None, field: str) -> Decoded:
    """Decode values, with the schema ids that are in headers. `field` is "key" or "value".

    `headers` is the column of the headers of the same records, or None if they are not known. A record with a malformed
    id in a header becomes null and is added to the dict `bad` of the result.
    """
    ids = {} if headers is None or not reads_schema_ids(decoder) else _ids(headers, HEADERS[field])
    if not ids:
        return decoder.decode(values)
    framed, bad = _framed(values, ids, HEADERS[field])
    found = decoder.decode(framed)
    return Decoded(found.column, {**found.bad, **bad})


def _ids(headers: pa.Array, name: str) -> dict[int, bytes | None]:
    """Returns the value of the last header of this name by row, for the rows that have one."""
    import pyarrow.compute as pc

    entries = headers.flatten()
    if not len(entries):
        return {}
    named = pc.equal(entries.field("key"), name)
    rows = pc.list_parent_indices(headers).filter(named).to_pylist()
    return dict(zip(rows, entries.field("value").filter(named).to_pylist(), strict=True))


def _framed(values: pa.Array, ids: dict[int, bytes | None], name: str) -> tuple[pa.Array, dict[int, str]]:
    """Returns the values with the ids before them, and why the id of a row is malformed. Such a row becomes null."""
    import pyarrow as pa

    rows: list[Any] = values.to_pylist()
    bad: dict[int, str] = {}
    for row, header in ids.items():
        value = rows[row]
        if value is None or header is None:  # as in Java, a null header means that the id is before the value
            continue
        if frame_bytes(header):
            rows[row] = header + value
        else:
            bad[row] = (
                f"has no id of a schema in the header {name}, which begins with {header[:5].hex(' ') or 'nothing'}"
            )
            rows[row] = None
    return pa.array(rows, pa.large_binary()), bad  # with the ids, the values may exceed 2 GiB
