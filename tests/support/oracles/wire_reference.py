"""A slow codec in plain Python, written from the protocol guide: the oracle for the compiled one.

It walks the field tables directly, knows neither plans nor programs, and fails with whatever Python raises.
"""

from __future__ import annotations

import struct
from typing import Any

from kconsumer.schema.dsl import Array, Field, Kind, Message

FORMATS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}


def uvarint(number: int) -> bytes:
    """Returns a varint: seven bits per byte, lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def zigzag(number: int) -> int:
    """Returns the zigzag form: 0, -1, 1, -2… become 0, 1, 2, 3…"""
    return 2 * number if number >= 0 else -2 * number - 1


class Writer:
    """Writes messages of one version."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def message(self, message: Message) -> bytes:
        """Returns the bytes of a struct: its fields and, if flexible, its tagged fields."""
        fields = [field for field in message.FIELDS if self.version in field.versions]
        out = b"".join(self.field(field, message) for field in fields if field.tag is None)
        if not self.flexible:
            return out
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        set_ones = [field for field in tagged if not is_default(field, getattr(message, field.name))]
        out += uvarint(len(set_ones))
        for field in set_ones:
            content = self.field(field, message)
            out += uvarint(field.tag or 0) + uvarint(len(content)) + content
        return out

    def field(self, field: Field, message: Message) -> bytes:
        """One field of a message."""
        value = getattr(message, field.name)
        if isinstance(field.kind, type) and self.version in field.null:
            return b"\xff" if value is None else b"\x01" + self.message(value)
        return self.value(field.kind, value)

    def value(self, kind: Kind, value: Any) -> bytes:
        """One value of any kind."""
        if isinstance(kind, Array):
            if value is None:
                return self.length(4, -1)
            return self.length(4, len(value)) + b"".join(self.value(kind.element, item) for item in value)
        if isinstance(kind, type):
            return self.message(value)
        if kind.name in FORMATS:
            return struct.pack(FORMATS[kind.name], value)
        if kind.name == "bool":
            return b"\x01" if value else b"\x00"
        if kind.name == "uuid":
            return bytes(value)
        prefix = 2 if kind.name == "string" else 4
        if value is None:
            return self.length(prefix, -1)
        data = value.encode() if kind.name == "string" else bytes(value)
        return self.length(prefix, len(data)) + data

    def length(self, prefix: int, length: int) -> bytes:
        """Returns the bytes of a length (-1 for null): length + 1 as a varint if flexible, otherwise `prefix` bytes."""
        return uvarint(length + 1) if self.flexible else length.to_bytes(prefix, "big", signed=True)


class Reader:
    """Reads messages of one version."""

    def __init__(self, version: int, flexible: bool, data: bytes) -> None:
        self.version = version
        self.flexible = flexible
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Returns the next bytes."""
        assert 0 <= size <= len(self.data) - self.at
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self) -> int:
        """Returns the inverse of `uvarint`."""
        byte = self.take(1)[0]
        return byte if byte < 128 else byte - 128 + 128 * self.uvarint()

    def message(self, cls: type[Message]) -> Message:
        """Returns a struct with all its fields."""
        message = cls()
        fields = [field for field in cls.FIELDS if self.version in field.versions]
        for field in fields:
            if field.tag is None:
                setattr(message, field.name, self.field(field))
        if self.flexible:
            by_tag = {field.tag: field for field in fields if field.tag is not None}
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                if tag in by_tag:
                    setattr(message, by_tag[tag].name, self.field(by_tag[tag]))
                else:
                    self.take(size)
        return message

    def field(self, field: Field) -> Any:
        """One field of a message."""
        if isinstance(field.kind, type) and self.version in field.null and self.take(1) == b"\xff":
            return None
        return self.value(field.kind)

    def value(self, kind: Kind) -> Any:
        """One value of any kind."""
        if isinstance(kind, Array):
            count = self.length(4)
            return None if count < 0 else [self.value(kind.element) for _ in range(count)]
        if isinstance(kind, type):
            return self.message(kind)
        if kind.name in FORMATS:
            layout = FORMATS[kind.name]
            return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        if kind.name == "bool":
            return self.take(1) != b"\x00"
        if kind.name == "uuid":
            return self.take(16)
        size = self.length(2 if kind.name == "string" else 4)
        if size < 0:
            return None
        return self.take(size).decode() if kind.name == "string" else self.take(size)

    def length(self, prefix: int) -> int:
        """Returns the inverse of `Writer.length`."""
        return self.uvarint() - 1 if self.flexible else int.from_bytes(self.take(prefix), "big", signed=True)


def is_default(field: Field, value: Any) -> bool:
    """Returns whether a tagged field has its default and is not written."""
    return bool(value == (field.fresh() if field.fresh else field.default))


def reference_encode(message: Message, version: int, flexible: bool) -> bytes:
    """Returns the bytes that `encode` must return."""
    return Writer(version, flexible).message(message)


def reference_decode(cls: type[Message], version: int, flexible: bool, data: bytes) -> Message:
    """Returns the message that `decode` must return. Raises AssertionError if bytes remain."""
    reader = Reader(version, flexible, data)
    message = reader.message(cls)
    assert reader.at == len(data)
    return message
