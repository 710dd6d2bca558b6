"""The formats of the option `valueFormat`, in one table: how the values are decoded, and to which Spark type.

`executor.py` decides what happens to a value that cannot be decoded. To add a format, write a module with its decoder
and add an entry to `FORMATS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kconsumer.errors import ConfigError
from kconsumer.formats import avro_columns, json_columns, protobuf_columns
from kconsumer.formats.avro_schemas import parse
from kconsumer.formats.column_types import SparkType, parse_type
from kconsumer.formats.decoders import ConfluentDecoder, Decoder, TextDecoder
from kconsumer.registry import Schemas

__all__ = ["FORMATS", "Format", "ValueFormat", "value_format"]


@dataclass(frozen=True)
class ValueFormat:
    """The format that a query has selected, with its options. It is created on the driver and is picklable."""

    name: str  # a key of FORMATS
    type: SparkType  # of the column `value`
    schema: str = ""  # in the form that the decoder takes
    message: str = ""  # the option valueMessage
    framed: bool = False  # True: each value begins with the header of Confluent's serializers
    registry: str = ""  # the address of the registry with the schemas of the writers; empty: they are not requested

    @property
    def keys_are_text(self) -> bool:
        """True if keys are decoded to strings, like the values."""
        return self.name == "string"

    def decoder(self) -> Decoder | None:
        """Create the decoder of the values. Returns None if they stay bytes."""
        make = FORMATS[self.name].decoder
        if make is None:
            return ConfluentDecoder(None) if self.framed else None
        if self.registry:  # this decoder needs the header
            return make(self)
        return ConfluentDecoder(make(self)) if self.framed else make(self)


class Format(NamedTuple):
    """A supported format: an entry of the table `FORMATS`."""

    decoder: Callable[[ValueFormat], Decoder] | None  # creates the decoder; None: values stay bytes
    #: (valueSchema, valueMessage) -> (type of the values, schema for the decoder); None: no valueSchema is allowed
    read: Callable[[str, str], tuple[SparkType, str]] | None = None
    fixed: str = ""  # if `read` is None: the type of the values
    has_message: bool = False  # True: valueMessage is required; False: it is not allowed
    module: str = ""  # a module that the decoder imports and that may be missing
    package: str = ""  # the package with this module, as `pip install` names it


def _json(given: ValueFormat) -> Decoder:
    return json_columns.JsonDecoder(given.type)


def _avro(given: ValueFormat) -> Decoder:
    return avro_columns.AvroDecoder(parse(given.schema), Schemas(given.registry).avro if given.registry else None)


def _read_avro(schema: str, message: str) -> tuple[SparkType, str]:
    return avro_columns.type_of(parse(schema)), schema


def _read_protobuf(schema: str, message: str) -> tuple[SparkType, str]:
    descriptors = protobuf_columns.load(schema)
    return protobuf_columns.type_of(descriptors, message), descriptors


def _protobuf(given: ValueFormat) -> Decoder:
    return protobuf_columns.ProtobufDecoder(given.schema, given.message, given.framed)


FORMATS: dict[str, Format] = {
    "raw": Format(None, fixed="binary"),
    "string": Format(lambda given: TextDecoder(), fixed="string"),
    "json": Format(_json, lambda schema, message: (parse_type(schema), schema)),
    "avro": Format(_avro, _read_avro, module="fastavro", package="fastavro"),
    "protobuf": Format(_protobuf, _read_protobuf, has_message=True, module="google.protobuf", package="protobuf"),
}


def value_format(values: Mapping[str, Any]) -> ValueFormat:
    """Returns the format that options select. `values`: name of an option in lower case -> its value.

    Raises ConfigError if the options do not fit the format, the schema is wrong, or a package is not installed.
    """
    name, schema, message = values["valueformat"], values["valueschema"], values["valuemessage"]
    entry = FORMATS[name]
    framed = values["valueframing"] == "confluent"
    if message is not None and not entry.has_message:
        raise ConfigError(f"valueMessage has no meaning with valueFormat={name}; omit it")
    registry = values["valueregistry"]
    if registry is not None and not (name == "avro" and framed):
        raise ConfigError("valueRegistry needs valueFormat=avro and valueFraming=confluent")
    if entry.read is None:
        if schema is not None:
            raise ConfigError(f"valueSchema has no meaning with valueFormat={name}; omit it")
        return ValueFormat(name, parse_type(entry.fixed), framed=framed)
    if schema is None:
        raise ConfigError(f"valueFormat={name} needs valueSchema, the schema of the values")
    if entry.has_message and message is None:
        raise ConfigError(f"valueFormat={name} needs valueMessage, the full name of the message")
    if entry.module:
        _require(f"valueFormat={name}", entry.module, entry.package)
    try:
        kind, read = entry.read(schema, message or "")
    except ConfigError as error:
        raise ConfigError(f"option valueSchema={_shorten(schema)} cannot be used: {error}") from None
    if registry is not None:
        _require("valueRegistry", "confluent_kafka.schema_registry", "confluent-kafka[schemaregistry]")
    return ValueFormat(name, kind, read, message or "", framed, registry or "")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def _require(option: str, module: str, package: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError:
        raise ConfigError(
            f"{option} needs the module {module}, which is not installed;"
            f" run pip install {package} on the driver and on all executors"
        ) from None
