"""Decodes Protocol Buffers messages to the types of Spark's `from_protobuf`, with wider types for unsigned integers.

A FileDescriptorSet describes the message, as `protoc --include_imports --descriptor_set_out=FILE` writes it. The file
is read where the query is planned, and its content is sent to executors with the query.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kconsumer.errors import ConfigError
from kconsumer.formats.column_types import SparkType, array_of, decimal, struct
from kconsumer.formats.decoders import Decoded, to_column
from kconsumer.formats.framing import read_indexes

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ProtobufDecoder", "load", "parsed", "type_of"]

# FieldDescriptor.cpp_type -> a type; `_single` handles the others.
PLAIN = {1: "int", 2: "bigint", 3: "bigint", 5: "double", 6: "float", 7: "boolean", 9: "string"}
TIMESTAMP = "google.protobuf.Timestamp"
Convert = Callable[[Any], Any] | None


class ProtobufDecoder:
    """Decodes messages of one type, given by its full name and a FileDescriptorSet in base 64."""

    def __init__(self, descriptors: str, message: str, framed: bool) -> None:
        from google.protobuf import message_factory

        descriptor = _descriptor(descriptors, message)
        self._kind, self._convert = _message(descriptor, ())
        self._class = message_factory.GetMessageClass(descriptor)
        self._framed = framed

    def decode(self, values: pa.Array) -> Decoded:
        """Decode the values one by one."""
        from google.protobuf.message import DecodeError

        rows: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else self._read(value))
            except (DecodeError, ValueError, OverflowError) as error:
                bad[row] = f"is not such a message: {error}"
                rows.append(None)
        return Decoded(to_column(rows, self._kind, bad), bad)

    def _read(self, value: bytes) -> Any:
        return self._convert(parsed(self._class, read_indexes(value)[1] if self._framed else value))


def parsed(kind: Any, data: bytes) -> Any:
    """Returns the message of a class. Raises DecodeError for other bytes, and ValueError without required fields."""
    message = kind.FromString(data)
    # Java's parser checks this. Classes that another program than protoc has generated may have no such method.
    if hasattr(message, "IsInitialized") and not message.IsInitialized():
        raise ValueError(f"required fields are missing: {', '.join(message.FindInitializationErrors())[:200]}")
    return message


def load(path: str) -> str:
    """Read a file with a FileDescriptorSet. Returns its content in base 64. Raises ConfigError if that fails."""
    try:
        return base64.b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise ConfigError(f"cannot read the file with a FileDescriptorSet: {error}") from None


def type_of(descriptors: str, message: str) -> SparkType:
    """Returns the Spark type of a message type. Raises ConfigError if there is none, or if `descriptors` is wrong."""
    return _message(_descriptor(descriptors, message), ())[0]


def _descriptor(descriptors: str, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors)).file
        missing = {name for file in files for name in file.dependency} - {file.name for file in files}
        if missing:  # the Python implementation of Protocol Buffers finds this only when it uses a type
            raise TypeError(f"it lacks {', '.join(sorted(missing))}")
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except (DecodeError, TypeError) as error:
        raise ConfigError(f"the file is not a FileDescriptorSet with all imports: {error}") from None
    except KeyError:
        names = sorted(f"{file.package}.{part.name}".lstrip(".") for file in files for part in file.message_type)
        raise ConfigError(f"the file has no message {message!r}; it has {', '.join(names)[:200]}") from None


# --- types -----------------------------------------------------------------------------------------------------------


def _message(descriptor: Any, within: tuple[str, ...]) -> tuple[SparkType, Callable[[Any], Any]]:
    """Returns the Spark type of a message type, and the function that converts a message for `pa.array`.

    `within` has the names of the message types that contain this one. Raises ConfigError if it is among them.
    """
    if descriptor.full_name in within:
        raise ConfigError(f"{descriptor.full_name} contains itself, and Spark has no recursive types")
    if descriptor.full_name == TIMESTAMP:
        return SparkType("timestamp"), lambda time: time.seconds * 1_000_000 + time.nanos // 1000
    within = (*within, descriptor.full_name)
    fields = [(field.name, field.has_presence, *_field(field, within)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: getattr(message, name) if convert_one is None else convert_one(getattr(message, name))
            for name, has_presence, _, convert_one in fields
            if not has_presence or message.HasField(name)
        }

    return struct([(name, kind) for name, _, kind, _ in fields]), convert


def _field(field: Any, within: tuple[str, ...]) -> tuple[SparkType, Convert]:
    if not field.is_repeated:
        return _single(field, within)
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, _ = _single(entry.fields_by_name["key"], within)
        kind, convert = _single(entry.fields_by_name["value"], within)
        return SparkType("map", (("key", key), ("value", kind))), _pairs(convert)
    kind, convert = _single(field, within)
    return array_of(kind), list if convert is None else lambda items: [convert(item) for item in items]


def _pairs(convert: Convert) -> Callable[[Any], Any]:
    if convert is None:
        return lambda items: list(items.items())
    return lambda items: [(key, convert(item)) for key, item in items.items()]


def _single(field: Any, within: tuple[str, ...]) -> tuple[SparkType, Convert]:
    if field.message_type is not None:
        return _message(field.message_type, within)
    if field.enum_type is not None:
        # Of several names of a number (`allow_alias`), protobuf uses the first.
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return SparkType("string"), lambda number: names.get(number, str(number))
    if field.type == field.TYPE_BYTES:
        return SparkType("binary"), None
    if field.cpp_type == field.CPPTYPE_UINT64:
        return decimal(20, 0), None
    return SparkType(PLAIN[field.cpp_type]), None
