"""Deserializes JSON values with schemas of a registry into Python objects, and validates them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, id_hint, split
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import Schemas

__all__ = ["JsonSchemaDeserializer"]


class JsonSchemaDeserializer:
    """Deserializes JSON keys or values that have the id of a JSON schema, as Confluent's serializers write them.

    `registry` is a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the address of a registry.
    With `validate`, a value that does not match its schema raises an error. Without, the registry is not asked.
    `from_dict` turns the result into an object of yours, for example `lambda row: Order(**row)`.

    Raises ConfigError for a wrong registry, and if a package is not installed.
    """

    def __init__(
        self, registry: Any, *, validate: bool = True, from_dict: Callable[[Any], object] | None = None
    ) -> None:
        self._schemas = Schemas.of(registry)
        self._library = required("jsonschema", "JsonSchemaDeserializer") if validate else None
        self._from_dict = from_dict
        self._validators: dict[SchemaId, Any] = {}

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the object. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, body = split(data, context.headers, context.field)
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the bytes after the schema id {key}{id_hint(key)} are no JSON: {error}") from error
        if self._library is not None:
            validator = self._validators.get(key)
            if validator is None:
                validator = self._validators[key] = self._validator(self._schemas.get(key))
            validator.validate(found)
        return found if self._from_dict is None else self._from_dict(found)

    def _validator(self, schema: Any) -> Any:
        """Returns the validator of a schema, for the draft of JSON Schema that it names."""
        referencing = required("referencing", "JsonSchemaDeserializer")
        drafts = required("referencing.jsonschema", "JsonSchemaDeserializer")
        assert self._library is not None
        if schema.schema_type != "JSON":
            raise ConfigError(f"the schema in the registry is of the type {schema.schema_type or 'AVRO'}, not JSON")
        resources = [
            (name, referencing.Resource.from_contents(json.loads(other.schema_str), drafts.DRAFT7))
            for name, other in self._schemas.references(schema)
        ]
        document = json.loads(schema.schema_str)
        default = self._library.Draft7Validator  # that of Confluent's serializers
        validator = self._library.validators.validator_for(document, default=default)
        return validator(document, registry=referencing.Registry().with_resources(resources))
