"""Decoders of values with the id of a schema into Arrow columns: for `poll_arrow(decode=…)`, and for `decode`.

A column has one type, so each decoder is created for one schema. The values of older and newer Avro schemas are
converted to it by Avro's rules. They need pyarrow.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from kconsumer.errors import ConfigError, RecordDeserializationError
from kconsumer.formats.avro_columns import AvroDecoder
from kconsumer.formats.column_types import parse_type
from kconsumer.formats.decoders import ConfluentDecoder, Decoded, Decoder
from kconsumer.formats.header_ids import decode_column
from kconsumer.formats.json_columns import JsonDecoder
from kconsumer.formats.protobuf_columns import ProtobufDecoder
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import Schemas
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AvroColumns", "JsonColumns", "ProtobufColumns", "decode", "file_set"]

PLACE = ("topic", "partition", "offset")
HEADERS_COLUMN = "headers"


class _Columns:
    reads_schema_ids = True  # see formats/header_ids.py

    def __init__(self, decoder: Decoder, shown: str) -> None:
        self._decoder, self._shown = decoder, shown

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._shown[:200]}>"

    def decode(self, values: pyarrow.Array) -> Decoded:
        """Decode values into a column. Raises the errors of the registry's client."""
        return self._decoder.decode(values)


class AvroColumns(_Columns):
    """Decodes Avro values to a column of the type of one schema.

    `registry` is a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the address of a registry.
    `schema` is the reader's schema, as JSON text, parsed JSON or a `Schema`. In its place, `subject` names a subject of
    the registry, whose latest schema is requested once, now.

    Raises ConfigError for wrong arguments, for a schema without an Arrow type, and if a package is not installed.
    """

    def __init__(self, registry: Any, schema: Any = None, *, subject: str | None = None) -> None:
        required("fastavro", "AvroColumns")
        required("pyarrow", "AvroColumns")
        if (schema is None) == (subject is None):
            raise ConfigError("AvroColumns needs either the schema of the column, or the subject that has it")
        schemas = Schemas.of(registry)
        decoder = AvroDecoder(schemas.avro_schema(schema if subject is None else schemas.latest(subject)), schemas.avro)
        super().__init__(decoder, repr(decoder.type))


class JsonColumns(_Columns):
    """Decodes JSON values to a column of one type. Skips the id of the schema, which JSON does not need.

    `fields` lists the fields in the notation of Spark, such as `id long, tags array<string>`. Other fields are left
    out, and missing ones are null.
    """

    def __init__(self, fields: str) -> None:
        required("pyarrow", "JsonColumns")
        super().__init__(ConfluentDecoder(JsonDecoder(parse_type(fields))), fields)


class ProtobufColumns(_Columns):
    """Decodes Protocol Buffers messages to a column with the fields of a generated class.

    Skips the id of the schema, which Protocol Buffers do not need.
    """

    def __init__(self, message_type: Any) -> None:
        required("pyarrow", "ProtobufColumns")
        required("google.protobuf", "ProtobufColumns")
        descriptor = getattr(message_type, "DESCRIPTOR", None)
        if descriptor is None:
            raise ConfigError(
                f"message_type must be a class of messages that protoc has generated, not {message_type!r}"
            )
        name = descriptor.full_name
        super().__init__(ConfluentDecoder(ProtobufDecoder(file_set(descriptor.file), name, True)), name)


def file_set(file: Any) -> str:
    """Returns a FileDescriptorSet in base 64: a file and all files that it imports."""
    from google.protobuf import descriptor_pb2

    found: dict[str, bytes] = {}

    def add(part: Any) -> None:
        if part.name not in found:
            for imported in part.dependencies:
                add(imported)
            found[part.name] = part.serialized_pb

    add(file)
    files = [descriptor_pb2.FileDescriptorProto.FromString(content) for content in found.values()]
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()


def decode(
    records: Any,
    *,
    key: Decoder | None = None,
    value: Decoder | None = None,
    on_error: Literal["raise", "null"] = "raise",
) -> pyarrow.Table:
    """Returns a `pyarrow.Table` with decoded keys, values, or both.

    `records` is the result of `read_topic`, a batch of `scan_topic` or `read_range`, or any other object with
    `__arrow_c_stream__` that has these columns. Schema ids in headers are found if it has the column headers.

    A value that cannot be decoded raises RecordDeserializationError, or ValueError if the columns topic, partition and
    offset are missing. With `on_error="null"` it becomes null.
    """
    if on_error not in ("raise", "null"):
        raise ValueError(f"on_error is raise or null, not {on_error!r}")
    table = required("pyarrow", "decode").table(records)
    records = table
    for name, decoder in (("key", key), ("value", value)):
        if decoder is not None:
            index = table.schema.get_field_index(name)
            if index < 0:
                raise ValueError(f"there is no column {name}; there are {', '.join(table.schema.names)}")
            table = table.set_column(index, name, _column(records, name, decoder, on_error == "raise"))
    return table


def _column(table: pyarrow.Table, name: str, decoder: Decoder, raises: bool) -> pyarrow.ChunkedArray:
    import pyarrow as pa

    start, parts = 0, []
    columns = table.select([each for each in (name, HEADERS_COLUMN) if each in table.schema.names])
    for batch in columns.to_batches() or [pa.record_batch([pa.array([], pa.binary())], [name])]:
        found = decode_column(decoder, batch.column(0), batch.column(1) if batch.num_columns > 1 else None, name)
        if raises and found.bad:
            row = min(found.bad)
            raise _error(name, found.bad[row], start + row, table.slice(start + row, 1).to_pylist()[0])
        parts.append(found.column)
        start += len(batch)
    return pa.chunked_array(parts)


def _error(name: str, reason: str, row: int, record: Mapping[str, Any]) -> Exception:
    if any(column not in record for column in PLACE):
        return ValueError(
            f"the {name} of row {row} {reason}; read topic, partition and offset, too, to see where it is"
        )
    tp = TopicPartition(record["topic"], record["partition"])
    return RecordDeserializationError(
        f"the {name} of the record of {tp} at offset {record['offset']} {reason};"
        " on_error='null' decodes the records around it",
        topic_partition=tp,
        offset=record["offset"],
        key=record.get("key") if name == "key" else None,
        value=record.get("value") if name == "value" else None,
        origin=name,
    )
