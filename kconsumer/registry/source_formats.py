"""What the Spark source needs of a registry: the latest schema of a subject, and checks of values by their ids."""

from __future__ import annotations

from typing import NamedTuple

from kconsumer.formats import avro_columns, protobuf_columns
from kconsumer.formats.avro_schemas import parse
from kconsumer.formats.column_types import SparkType
from kconsumer.formats.decoders import Check
from kconsumer.formats.framing import SchemaId, read_indexes
from kconsumer.registry.columns import file_set
from kconsumer.registry.json_schema import JsonValidators
from kconsumer.registry.protobuf import ProtobufClasses
from kconsumer.registry.schemas import SERIALIZED, Schemas

__all__ = ["Latest", "json_check", "latest_avro", "latest_protobuf", "protobuf_check"]


class Latest(NamedTuple):
    """The latest schema of a subject. Picklable."""

    type: SparkType
    schema: str  # in the form that decoders take
    message: str = ""  # for Protocol Buffers
    referred: tuple[str, ...] = ()  # the Avro schemas that it refers to


def latest_avro(schemas: Schemas, subject: str, message: str) -> Latest:
    latest = schemas.latest(subject)
    referred = tuple(other.schema_str for _, other in schemas.references(latest))
    return Latest(avro_columns.type_of(parse(latest.schema_str, referred)), latest.schema_str, "", referred)


def latest_protobuf(schemas: Schemas, subject: str, message: str) -> Latest:
    """Returns the latest schema of a subject for a message, which is the first one of the file if `message` is ""."""
    file = ProtobufClasses(schemas).file(schemas.get(schemas.latest_version(subject).schema_id, fmt=SERIALIZED))
    message = message or next(iter(file.message_types_by_name.values())).full_name
    descriptors = file_set(file)
    return Latest(protobuf_columns.type_of(descriptors, message), descriptors, message)


def json_check(schemas: Schemas, message: str) -> Check:
    """Returns the function that validates JSON with the schema of its id."""
    return JsonValidators(schemas).check


def protobuf_check(schemas: Schemas, message: str) -> Check:
    """Returns the function that refuses messages of another type than `message`."""
    classes = ProtobufClasses(schemas)

    def check(key: SchemaId, data: bytes) -> None:
        name = classes.get(key, read_indexes(data)[0]).DESCRIPTOR.full_name
        if name != message:
            raise ValueError(f"is a message {name}, not {message}")

    return check
