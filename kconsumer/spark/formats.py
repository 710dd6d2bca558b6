"""The formats of the options `valueFormat` and `keyFormat`, in one table: the decoder, and the Spark type.

`executor.py` decides what happens to a value that cannot be decoded. To add a format, write a module with its decoder
and add an entry to `FORMATS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kconsumer.errors import ConfigError
from kconsumer.formats import avro_columns, json_columns, protobuf_columns
from kconsumer.formats.avro_schemas import parse, with_valid_defaults
from kconsumer.formats.column_types import SparkType, parse_type
from kconsumer.formats.decoders import Check, ConfluentDecoder, Decoder, TextDecoder
from kconsumer.registry import Schemas
from kconsumer.registry.source_formats import Latest, json_check, latest_avro, latest_protobuf, protobuf_check

__all__ = ["FORMATS", "REGISTRY_PREFIXES", "Format", "ValueFormat", "value_format"]

REGISTRY_PREFIXES = ("keyregistry.", "valueregistry.")  # of the options of the registry's client, in lower case
SUBJECT = "subject"  # the only one of them that is not an option of the client


@dataclass(frozen=True)
class ValueFormat:
    """The format of keys or values that a query has selected, with its options.

    It is created on the driver and is picklable.
    """

    name: str  # a key of FORMATS
    type: SparkType  # of the column
    schema: str = ""  # in the form that the decoder takes
    message: str = ""  # the full name of the message, for protobuf
    framed: bool = False  # True: each value begins with the header of Confluent's serializers
    referred: tuple[str, ...] = ()  # the Avro schemas that `schema` refers to
    #: Options of the client of the registry with the schemas of the writers; empty: they are not requested. Secrets are
    #: read on the executor.
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def decoder(self) -> Decoder | None:
        """Create the decoder. Returns None if the values stay bytes."""
        entry = FORMATS[self.name]
        inner = None if entry.decoder is None else entry.decoder(self)
        if not self.framed or (self.registry and self.name == "avro"):  # that decoder reads the header
            return inner
        schemas = Schemas.of(dict(self.registry)) if self.registry else None
        return ConfluentDecoder(inner, entry.check(schemas, self.message) if schemas and entry.check else None)


class Format(NamedTuple):
    """A supported format: an entry of the table `FORMATS`."""

    decoder: Callable[[ValueFormat], Decoder] | None  # creates the decoder; None: values stay bytes
    #: (schema, message) -> (type of the values, schema for the decoder); None: no schema is allowed
    read: Callable[[str, str], tuple[SparkType, str]] | None = None
    fixed: str = ""  # if `read` is None: the type of the values
    has_message: bool = False  # True: a message is required; False: it is not allowed
    module: str = ""  # a module that the decoder imports and that may be missing
    package: str = ""  # the package with this module, as `pip install` names it
    #: Creates the function that compares a value with the schema of its id; None: the decoder does what is needed
    check: Callable[[Schemas, str], Check] | None = None
    #: (schemas, subject, message) -> the latest schema, in place of a given one; None: one must be given
    latest: Callable[[Schemas, str, str], Latest] | None = None


def _json(given: ValueFormat) -> Decoder:
    return json_columns.JsonDecoder(given.type)


def _avro(given: ValueFormat) -> Decoder:
    writers = Schemas.of(dict(given.registry)).avro if given.registry else None
    return avro_columns.AvroDecoder(parse(given.schema, given.referred), writers)


def _read_avro(schema: str, message: str) -> tuple[SparkType, str]:
    return avro_columns.type_of(with_valid_defaults(parse(schema))), schema


def _read_protobuf(schema: str, message: str) -> tuple[SparkType, str]:
    descriptors = protobuf_columns.load(schema)
    return protobuf_columns.type_of(descriptors, message), descriptors


def _protobuf(given: ValueFormat) -> Decoder:
    return protobuf_columns.ProtobufDecoder(given.schema, given.message, given.framed)


FORMATS: dict[str, Format] = {
    "raw": Format(None, fixed="binary"),
    "string": Format(lambda given: TextDecoder(), fixed="string"),
    "json": Format(_json, lambda schema, message: (parse_type(schema), schema), check=json_check),
    "avro": Format(_avro, _read_avro, module="fastavro", package="fastavro", latest=latest_avro),
    "protobuf": Format(
        _protobuf,
        _read_protobuf,
        has_message=True,
        module="google.protobuf",
        package="protobuf",
        check=protobuf_check,
        latest=latest_protobuf,
    ),
}


def value_format(values: Mapping[str, Any], column: str = "value") -> ValueFormat:
    """Returns the format of a column that options select. `values`: name of an option in lower case -> its value.

    `column` is "key" or "value". If no schema is given, and the registry is, the latest one of a subject is requested.

    Raises ConfigError if the options do not fit the format, the schema is wrong, or a package is not installed.
    """
    name, schema, message, framing = (values[f"{column}{part}"] for part in ("format", "schema", "message", "framing"))
    if name is None:  # keys are text if the values are, unless keyFormat is set
        name = "string" if values["valueformat"] == "string" else "raw"
    entry, selected = FORMATS[name], f"{column}Format={name}"
    registry = _registry_options(values, column)
    if message is not None and not entry.has_message:
        raise ConfigError(f"{column}Message has no meaning with {selected}; omit it")
    if registry:
        if entry.check is None and entry.latest is None:
            raise ConfigError(f"{column}Registry needs {column}Format=avro, json or protobuf")
        if framing == "none":
            raise ConfigError(f"{column}Registry needs the ids of schemas: omit {column}Framing=none")
    framed = framing == "confluent" or bool(registry)
    if entry.read is None:
        if schema is not None:
            raise ConfigError(f"{column}Schema has no meaning with {selected}; omit it")
        return ValueFormat(name, parse_type(entry.fixed), framed=framed)
    if schema is None and not (registry and entry.latest):
        raise ConfigError(f"{selected} needs {column}Schema, the schema of the {column}s")
    if schema is not None and entry.has_message and message is None:
        raise ConfigError(f"{selected} needs {column}Message, the full name of the message")
    if entry.module:
        _require(selected, entry.module, entry.package)
    if registry:
        _require(f"{column}Registry", "confluent_kafka.schema_registry", "confluent-kafka[schemaregistry]")
    subject = registry.pop(SUBJECT, None)
    options = tuple(sorted(registry.items()))
    if schema is None:
        return _of_latest(entry, name, subject or _subject(values, column), message or "", options)
    try:
        kind, read = entry.read(schema, message or "")
    except ConfigError as error:
        raise ConfigError(f"option {column}Schema={_shorten(schema)} cannot be used: {error}") from None
    return ValueFormat(name, kind, read, message or "", framed, registry=options)


def _registry_options(values: Mapping[str, Any], column: str) -> dict[str, str]:
    """Returns the options of the registry's client, which have the prefix `keyRegistry.` or `valueRegistry.`."""
    prefix = f"{column}registry."
    found = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
    if values[f"{column}registry"] is not None:
        found["url"] = values[f"{column}registry"]
    if found and "url" not in found:
        raise ConfigError(f"{column}Registry is missing, the address of the registry")
    return found


def _subject(values: Mapping[str, Any], column: str) -> str:
    topics = [topic.strip() for topic in (values["subscribe"] or "").split(",")]
    if len(topics) != 1 or not topics[0]:
        raise ConfigError(f"set {column}Schema, or {column}Registry.{SUBJECT}, the subject whose schema is used")
    return f"{topics[0]}-{column}"


def _of_latest(
    entry: Format, name: str, subject: str, message: str, options: tuple[tuple[str, str], ...]
) -> ValueFormat:
    assert entry.latest is not None
    try:
        latest = entry.latest(Schemas.of(dict(options)), subject, message)
    except Exception as error:  # the client raises exceptions of many classes
        raise ConfigError(
            f"cannot use the latest schema of the subject {subject!r}: {type(error).__name__} {error}"
        ) from error
    return ValueFormat(name, latest.type, latest.schema, latest.message, True, latest.referred, options)


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
