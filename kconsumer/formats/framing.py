"""Confluent's framing: the id of a schema before a value, or in a header of the record.

A frame begins with a zero and the id in four bytes, or with a one and the GUID of the schema in 16 bytes. Since
confluent-kafka 2.10, a serializer may write the same bytes into the header `__key_schema_id` or `__value_schema_id`;
the value then has no frame. In Protocol Buffers, message indexes follow the id. They describe where in its file the
message type is defined: zigzag varints, after their count. A count of zero stands for the first message.
"""

from __future__ import annotations

import uuid

__all__ = ["HEADERS", "SchemaId", "UnknownSchemaError", "frame_bytes", "id_hint", "read_id", "read_indexes", "split"]

SchemaId = int | str  # a number of this registry, or a GUID

#: The header with the id, for the keys and the values of records.
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}
ID_BYTES = 5
GUID_BYTES = 17
FRAME_BYTES = {b"\0": ID_BYTES, b"\1": GUID_BYTES}  # the first byte of a frame -> the number of its bytes
MAX_INDEXES = 100  # the depth of nested message types; more indexes cannot be an intact frame


class UnknownSchemaError(ValueError):
    """The registry has no schema with this id."""


def frame_bytes(data: bytes) -> int:
    """Returns the number of bytes of the frame at the beginning of `data`, or 0 if there is none."""
    size = FRAME_BYTES.get(data[:1], 0)
    return size if len(data) >= size else 0


def id_hint(key: SchemaId) -> str:
    """Returns advice for an id that no registry assigns, or ""."""
    if key != 0:
        return ""
    return (
        " (no registry assigns 0: Apicurio's serializers write ids of 8 bytes, unless they are configured to write 4,"
        " for example with Legacy4ByteIdHandler)"
    )


def read_id(data: bytes) -> tuple[SchemaId, int]:
    """Returns the id at the beginning of `data`, and where the bytes after it begin.

    Raises ValueError if there is none.
    """
    size = frame_bytes(data)
    if size == ID_BYTES:
        return int.from_bytes(data[1:ID_BYTES], "big"), size
    if size == GUID_BYTES:
        return str(uuid.UUID(bytes=data[1:GUID_BYTES])), size
    raise ValueError(
        f"has no Confluent header with the id of a schema; it begins with {data[:5].hex(' ') or 'nothing'}"
    )


def split(
    data: bytes, headers: tuple[tuple[str, bytes | None], ...] | list[tuple[str, bytes | None]], field: str
) -> tuple[SchemaId, bytes]:
    """Returns the id of the schema, and the bytes without it. `field` is "key" or "value".

    The id is in the last header of its name if it has a value, otherwise before the data, as in Java. Raises ValueError
    if it is in neither.
    """
    name = HEADERS[field]
    for key, header in reversed(headers):
        if key == name:
            if header is None:
                break
            # In Protocol Buffers, message indexes follow the id in the header, too.
            key_id, end = read_id(header)
            return key_id, header[end:] + data
    key_id, start = read_id(data)
    return key_id, data[start:]


def read_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """Returns the message indexes at the beginning of `data`, and the bytes after them.

    Raises ValueError if `data` does not begin with message indexes.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while at < len(data) and shift < 35:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (number >> 1) ^ -(number & 1)
        raise ValueError("the frame has no message indexes")

    count = varint()
    if not 0 <= count <= MAX_INDEXES:
        raise ValueError(f"the frame has {count} message indexes; 0 to {MAX_INDEXES} are possible")
    indexes = tuple(varint() for _ in range(count)) or (0,)
    if min(indexes) < 0:
        raise ValueError(f"the message indexes {list(indexes)} are not all positive")
    return indexes, data[at:]
