"""Deserializes JSON values with schemas of a registry into Python objects, and validates them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, id_hint, split
from kconsumer.registry.clients import required
from kconsumer.registry.schemas import Schemas

__all__ = ["JsonSchemaDeserializer", "JsonValidators"]


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
        self._validators = JsonValidators(self._schemas) if validate else None
        self._from_dict = from_dict

    def __repr__(self) -> str:
        return f"<JsonSchemaDeserializer of {self._schemas!r}, validate={self._validators is not None}>"

    def __call__(self, data: bytes, context: Any) -> object:
        """Returns the object. `context` is the `SerializationContext` of `kconsumer.deserializers`."""
        key, body = split(data, context.headers, context.field)
        try:
            found = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the bytes after the schema id {key}{id_hint(key)} are no JSON: {error}") from error
        if self._validators is not None:
            self._validators.get(key).validate(found)
        return found if self._from_dict is None else self._from_dict(found)


class JsonValidators:
    """The validators of the JSON schemas of a registry."""

    def __init__(self, schemas: Schemas) -> None:
        self._library = required("jsonschema", "a JSON schema")
        self._schemas = schemas
        self._validators: dict[SchemaId, Any] = {}

    def get(self, key: SchemaId) -> Any:
        """Returns the validator of the schema with an id, for the draft of JSON Schema that it names."""
        found = self._validators.get(key)
        if found is None:
            found = self._validators[key] = self._validator(self._schemas.get(key))
        return found

    def check(self, key: SchemaId, data: bytes) -> None:
        """Raise ValueError if data are not JSON that matches the schema with an id."""
        try:
            self.get(key).validate(json.loads(data))
        except self._library.ValidationError as error:
            raise ValueError(f"does not match the schema with the id {key}: {error.message}") from None
        except RecursionError:
            raise ValueError("is nested too deeply") from None

    def _validator(self, schema: Any) -> Any:
        referencing = required("referencing", "a JSON schema")
        drafts = required("referencing.jsonschema", "a JSON schema")
        if schema.schema_type != "JSON":
            raise ConfigError(f"the schema in the registry is of the type {schema.schema_type or 'AVRO'}, not JSON")
        document = json.loads(schema.schema_str)
        referred = {name: json.loads(other.schema_str) for name, other in self._schemas.references(schema)}
        known = required("jsonschema_specifications", "a JSON schema").REGISTRY
        default = self._library.Draft7Validator  # that of Confluent's serializers
        validator = self._library.validators.validator_for(document, default=default)
        draft = drafts.specification_with(validator.ID_OF(validator.META_SCHEMA))
        whole, *parts = [referencing.Resource.from_contents(each, draft) for each in (document, *referred.values())]
        # A schema refers to another one by its name, or relative to its own id.
        bases = ["", *filter(None, (each.id() for each in (whole, *parts)))]
        resources = [(urljoin(base, name), part) for base in bases for name, part in zip(referred, parts, strict=True)]
        return validator(document, registry=known.with_resources(resources))
