"""Schemas of a registry by id, with the schemas that they refer to. Each is requested once.

Decides which error means that the registry does not have a schema. All other errors of the client are raised as they
are: the next attempt may succeed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from kconsumer.formats.avro_schemas import AvroSchema, parse
from kconsumer.formats.framing import SchemaId, UnknownSchemaError, id_hint
from kconsumer.registry.clients import client_of

__all__ = ["Schemas"]

NOT_FOUND = 404
SERIALIZED = "serialized"  # the format of Protocol Buffers schemas in which they are descriptors


class Schemas:
    """The schemas of a registry. Deserializers with the same `Schemas` share what it has loaded.

    `registry` is a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the address of a registry.
    """

    def __init__(self, registry: Any) -> None:
        self.client = client_of(registry)
        close = getattr(self.client, "close", None)
        if self.client is not registry and callable(close):  # else the application closes its client
            weakref.finalize(self, close)
        self._schemas: dict[SchemaId, Any] = {}
        self._avro: dict[SchemaId, AvroSchema] = {}

    @classmethod
    def of(cls, registry: Any) -> Schemas:
        """Returns `registry` itself if it is a `Schemas`, otherwise a new one."""
        return registry if isinstance(registry, cls) else cls(registry)

    def get(self, key: SchemaId) -> Any:
        """Returns confluent-kafka's `Schema` with an id or a GUID. Raises UnknownSchemaError if there is none."""
        found = self._schemas.get(key)
        if found is None:
            request = self.client.get_schema if isinstance(key, int) else self.client.get_schema_by_guid
            found = self._schemas[key] = _requested(f"schema with the id {key}{id_hint(key)}", request, key)
        return found

    def get_serialized(self, key: SchemaId) -> Any:
        """Returns the `Schema` with an id or a GUID, with a descriptor in base 64 as its text if the registry can."""
        request = self.client.get_schema if isinstance(key, int) else self.client.get_schema_by_guid
        return _requested(f"schema with the id {key}{id_hint(key)}", request, key, fmt=SERIALIZED)

    def latest(self, subject: str) -> Any:
        """Returns the latest `Schema` of a subject. Raises UnknownSchemaError if the registry does not have it."""
        return _requested(f"subject {subject!r}", self.client.get_latest_version, subject).schema

    def references(self, schema: Any, **options: Any) -> list[tuple[str, Any]]:
        """Returns the name and the `Schema` of each reference of a schema, after those that it refers to itself.

        `options` are those of the client's method `get_version`.
        """
        found: dict[str, Any] = {}

        def add(referring: Any) -> None:
            for reference in referring.references or ():
                if reference.name not in found:
                    what = f"version {reference.version} of the subject {reference.subject!r}"
                    version = _requested(what, self.client.get_version, reference.subject, reference.version, **options)
                    add(version.schema)
                    found[reference.name] = version.schema

        add(schema)
        return list(found.items())

    def avro(self, key: SchemaId) -> AvroSchema:
        """Returns the Avro schema with an id."""
        found = self._avro.get(key)
        if found is None:
            found = self._avro[key] = self.avro_schema(self.get(key))
        return found

    def avro_schema(self, schema: Any) -> AvroSchema:
        """Returns an Avro schema, parsed together with those that it refers to.

        `schema` is JSON text, parsed JSON, or a `Schema` of confluent-kafka.
        """
        if isinstance(schema, (str, dict, list)):
            return parse(schema)
        kind = schema.schema_type or "AVRO"
        if kind != "AVRO":
            raise UnknownSchemaError(f"the schema in the registry is of the type {kind}, not Avro")
        return parse(schema.schema_str, [other.schema_str for _, other in self.references(schema)])


def _requested(what: str, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return request(*arguments, **options)
    except Exception as error:
        if getattr(error, "http_status_code", None) == NOT_FOUND:
            raise UnknownSchemaError(f"the registry has no {what}: {error}") from error
        raise
