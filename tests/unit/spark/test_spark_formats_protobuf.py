"""Protocol Buffers messages decoded to Arrow columns."""

from __future__ import annotations

import base64
import datetime
import zoneinfo
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer.errors import ConfigError
from kconsumer.formats.protobuf_columns import ProtobufDecoder, load, type_of
from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection

Field = descriptor_pb2.FieldDescriptorProto
KINDS = [
    ("d", Field.TYPE_DOUBLE),
    ("f", Field.TYPE_FLOAT),
    ("i", Field.TYPE_INT32),
    ("l", Field.TYPE_SINT64),
    ("u", Field.TYPE_UINT32),
    ("ul", Field.TYPE_FIXED64),
    ("b", Field.TYPE_BOOL),
    ("s", Field.TYPE_STRING),
    ("y", Field.TYPE_BYTES),
]
SIMPLE = (
    "struct<d:double,f:float,i:int,l:bigint,u:bigint,ul:decimal(20,0),b:boolean,s:string,y:binary,"
    "e:string,maybe:int,part:struct<x:int>,many:array<struct<x:int>>,m:map<int,struct<x:int>>,at:timestamp,tags:array<string>>"
)


def described() -> descriptor_pb2.FileDescriptorSet:
    """Returns a file with a message that has every kind of field, and a message that contains itself."""
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    color = file.enum_type.add(name="Color")
    color.options.allow_alias = True
    for number, name in ((0, "RED"), (1, "BLUE"), (1, "AZURE"), (0, "SCARLET")):  # the first name of a number counts
        color.value.add(name=name, number=number)
    file.message_type.add(name="Part").field.add(name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(KINDS, 1):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    order.field.add(name="e", number=20, type=Field.TYPE_ENUM, type_name=".shop.Color", label=Field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_maybe")
    order.field.add(
        name="maybe", number=21, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    message = {"type": Field.TYPE_MESSAGE, "type_name": ".shop.Part"}
    order.field.add(name="part", number=22, label=Field.LABEL_OPTIONAL, **message)
    order.field.add(name="many", number=23, label=Field.LABEL_REPEATED, **message)
    entry = order.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL, **message)
    message["type_name"] = ".shop.Order.MEntry"
    order.field.add(name="m", number=24, label=Field.LABEL_REPEATED, **message)
    message["type_name"] = ".google.protobuf.Timestamp"
    order.field.add(name="at", number=25, label=Field.LABEL_OPTIONAL, **message)
    order.field.add(name="tags", number=26, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    tree = file.message_type.add(name="Tree")
    message["type_name"] = ".shop.Tree"
    tree.field.add(name="down", number=1, label=Field.LABEL_OPTIONAL, **message)
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    return descriptor_pb2.FileDescriptorSet(file=[timestamp, file])


SET = base64.b64encode(described().SerializeToString()).decode()


def order() -> Any:
    """Returns an empty message."""
    pool = descriptor_pool.DescriptorPool()
    for file in described().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()


def decode(values: list[bytes | None], framed: bool = False) -> tuple[list[Any], dict[int, str]]:
    """Returns the rows and the invalid ones, and checks that the column is valid and has the expected type."""
    column, bad = ProtobufDecoder(SET, "shop.Order", framed).decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert (type_of(SET, "shop.Order").arrow(), len(values)) == (column.type, len(column))
    return column.to_pylist(), bad


def test_each_type() -> None:
    """Each type has its value, up to the largest unsigned ones; an enum is its name, or its number if it
    has no name.
    """
    full = order()
    full.d, full.f, full.i, full.l, full.u, full.ul = 0.1, 0.5, -1, -(2**63), 2**32 - 1, 2**64 - 1
    full.b, full.s, full.y, full.e, full.maybe = True, "olé", b"\xff", 1, 0
    full.part.x, full.m[7].x = 3, 5
    full.many.add().x = 4
    full.at.seconds, full.at.nanos = 1, 2500
    full.tags.extend(["a", "b"])
    other = order()
    other.e = 9
    assert SIMPLE == type_of(SET, "shop.Order").simple
    rows, bad = decode([full.SerializeToString(), None, other.SerializeToString(), b""])
    assert {} == bad
    moment = datetime.datetime(1970, 1, 1, 0, 0, 1, 2, zoneinfo.ZoneInfo("UTC"))
    assert [0.1, 0.5, -1, -(2**63), 2**32 - 1, Decimal(2**64 - 1), True, "olé", b"\xff", "BLUE", 0] == list(
        rows[0].values()
    )[:11]
    assert [{"x": 3}, [{"x": 4}], [(7, {"x": 5})], moment, ["a", "b"]] == list(rows[0].values())[11:]
    assert (None, "9") == (rows[1], rows[2]["e"])


def test_fields_that_are_not_set() -> None:
    """Missing fields have their default, or are null if the message distinguishes a default from a missing field."""
    (row,), _ = decode([b""])
    assert {"i": 0, "s": "", "e": "RED", "maybe": None, "part": None, "many": [], "m": [], "at": None} == {
        name: row[name] for name in ("i", "s", "e", "maybe", "part", "many", "m", "at")
    }


def test_garbage() -> None:
    """Only bytes that are not a message are invalid; unknown fields are ignored."""
    rows, bad = decode([b"\xff", b"\x18", b"\x42\x02\xff\xfe", None, b"\xa0\x06\x01"])
    assert [0, 1, 2] == sorted(bad)
    assert "is not such a message" in bad[0]
    assert (None, 0) == (rows[3], rows[4]["i"])


def test_indexes_of_confluent_frames(tmp_path: Path) -> None:
    """A frame has the path to the message in its file: one byte for the first message, else count and indexes."""
    path = tmp_path / "set"
    path.write_bytes(described().SerializeToString())
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "valueFormat": "protobuf", "valueSchema": str(path)}
    options |= {"valueMessage": "shop.Part", "valueFraming": "confluent"}
    decoder = default_projection(parse(options, "batch")).decoders()["value"]
    head, part = b"\0\0\0\0\7", b"\x08\x05"
    values = [head + b"\0" + part, head + b"\2\2" + part, head + b"\4\2\x80\1" + part, head, head + b"\2", part]
    column, bad = decoder.decode(pa.array(values, pa.binary()))
    assert [{"x": 5}] * 3 == column.to_pylist()[:3]
    assert [3, 4, 5] == sorted(bad)


def test_what_is_no_schema(tmp_path: Path) -> None:
    """Missing or invalid files, and messages that are missing or contain themselves, are refused."""
    with pytest.raises(ConfigError, match="cannot read the file with a FileDescriptorSet"):
        load(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="not a FileDescriptorSet with all imports"):
        type_of(base64.b64encode(b"\xff\xff").decode(), "x")
    alone = descriptor_pb2.FileDescriptorSet(file=[described().file[1]]).SerializeToString()
    with pytest.raises(ConfigError, match=r"with all imports: it lacks google/protobuf/timestamp\.proto"):
        type_of(base64.b64encode(alone).decode(), "shop.Order")
    with pytest.raises(ConfigError, match=r"no message 'Order'; it has google\.protobuf\.Timestamp, shop\.Order"):
        type_of(SET, "Order")
    with pytest.raises(ConfigError, match=r"shop\.Tree contains itself"):
        type_of(SET, "shop.Tree")


@settings(deadline=None)  # the first one imports
@given(st.lists(st.binary(max_size=30)))
def test_any_bytes(values: list[bytes]) -> None:
    """Any bytes are either a row or invalid."""
    rows, bad = decode(list(values))
    assert all((rows[row] is None) == (row in bad) for row in range(len(values)))
