"""Schemas of a registry by id, with the schemas that they refer to. Each is requested once.

Decides which error means that the registry does not have a schema. All other errors of the client are raised as they
are: the next attempt may succeed.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, UnknownSchemaError, id_hint
from kconsumer.registry.clients import client_of

__all__ = ["Schemas"]

NOT_FOUND = 404
SERIALIZED = "serialized"  # the format of Protocol Buffers schemas in which they are descriptors
PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


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
        self._avro: dict[SchemaId, str] = {}

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

    def avro(self, key: SchemaId) -> str:
        """Returns the Avro schema with an id as JSON text, with its references in place."""
        text = self._avro.get(key)
        if text is None:
            text = self._avro[key] = self.avro_text(self.get(key))
        return text

    def avro_text(self, schema: Any) -> str:
        """Returns an Avro schema as JSON text, with its references in place.

        `schema` is JSON text, parsed JSON, or a `Schema` of confluent-kafka.
        """
        if isinstance(schema, (dict, list)):
            return json.dumps(schema)
        if not isinstance(schema, str):
            kind = schema.schema_type or "AVRO"
            if kind != "AVRO":
                raise UnknownSchemaError(f"the schema in the registry is of the type {kind}, not Avro")
            referred = self.references(schema)
            if referred:
                return _in_place(schema.schema_str, [other.schema_str for _, other in referred])
            schema = schema.schema_str
        try:
            json.loads(schema)
        except ValueError as error:
            if schema in PRIMITIVES:  # a registry may return the name of a primitive type without quotation marks
                return json.dumps(schema)
            raise ConfigError(f"an Avro schema must be JSON: {error}") from None
        return str(schema)


def _requested(what: str, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return request(*arguments, **options)
    except Exception as error:
        if getattr(error, "http_status_code", None) == NOT_FOUND:
            raise UnknownSchemaError(f"the registry has no {what}: {error}") from error
        raise


def _in_place(text: str, referred: list[str]) -> str:
    """Returns an Avro schema with the definitions of `referred` where their names are used first."""
    definitions: dict[str, Any] = {}
    for other in referred:
        definition = json.loads(other)
        definitions[_full_name(definition, "")] = definition
    return json.dumps(_defined(json.loads(text), "", definitions))


def _full_name(definition: dict[str, Any], namespace: str) -> str:
    name = str(definition["name"])
    space = definition.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _defined(schema: Any, namespace: str, left: dict[str, Any]) -> Any:
    """Returns a schema with the definitions of `left` in place of their names, each once. Empties `left`."""
    if isinstance(schema, str):
        name = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        definition = left.pop(name, None) or left.pop(schema, None)
        if definition is None:
            return schema
        # A definition without a namespace must not take the one that surrounds it.
        return _defined({"namespace": name.rpartition(".")[0], **definition}, "", left)
    if isinstance(schema, list):
        return [_defined(part, namespace, left) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "name" in schema:
        namespace = _full_name(schema, namespace).rpartition(".")[0]
    found = dict(schema)
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = _defined(found[key], namespace, left)
    if "fields" in found:
        found["fields"] = [{**field, "type": _defined(field["type"], namespace, left)} for field in found["fields"]]
    return found
