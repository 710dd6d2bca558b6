"""Deserializes JSON values with schemas of a registry into Python objects, and validates them.

Schemas mean what they mean for Confluent's deserializer in Java: a reference is found by its name, also relative to
another reference, `$ref: "#/$defs/…"` finds what is in `definitions`, and patterns have the syntax of ECMAScript and
Java.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import Any
from urllib.parse import unquote, urljoin

from kconsumer.errors import ConfigError
from kconsumer.formats.framing import SchemaId, id_hint, split
from kconsumer.registry.clients import required
from kconsumer.registry.json_patterns import for_python
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
            found = _parsed(body)
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
        drafts = [getattr(self._library, f"Draft{name}Validator") for name in ("4", "6", "7", "201909", "202012")]
        self._drafts = {
            _draft(draft.ID_OF(draft.META_SCHEMA)): self._library.validators.extend(
                draft, {"multipleOf": self._multiple_of}
            )
            for draft in drafts
        }

    def _multiple_of(self, validator: Any, factor: Any, number: Any, schema: Any) -> Iterator[Any]:
        """Yields an error for a number that is not a multiple of another, by their digits: 4.35 is one of 0.01."""
        if not validator.is_type(number, "number"):
            return
        if not math.isfinite(number) or EXACT.remainder(Decimal(str(number)), Decimal(str(factor))):
            yield self._library.ValidationError(f"{number!r} is not a multiple of {factor}")

    def get(self, key: SchemaId) -> Any:
        """Returns the validator of the schema with an id, for the draft of JSON Schema that it names."""
        found = self._validators.get(key)
        if found is None:
            found = self._validators[key] = self._validator(self._schemas.get(key))
        return found

    def check(self, key: SchemaId, data: bytes) -> None:
        """Raise ValueError if data are not JSON that matches the schema with an id."""
        try:
            self.get(key).validate(_parsed(data))
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
        validator = self._class(document)
        draft = drafts.specification_with(validator.ID_OF(validator.META_SCHEMA))
        referred = dict(self._schemas.references(schema))
        names = _Names(validator, document, list(referred))
        resources = {
            address: referencing.Resource.from_contents(
                self._document(json.loads(referred[name].schema_str), names, name), draft
            )
            for name, address in names.addresses.items()
        }
        known = required("jsonschema_specifications", "a JSON schema").REGISTRY

        def retrieve(uri: str) -> Any:
            """Returns the schema for an address that is not in `resources`: a reference, or the schema of a draft."""
            path = uri.partition(".reference/")[2] or uri  # of a `$ref` that `for_python` does not find
            for address in (names.target(names.base, path), f"http://{_draft(uri)}", f"https://{_draft(uri)}"):
                if address in resources or address in known:
                    return resources.get(address) or known[address]
            raise referencing.exceptions.NoSuchResource(ref=uri)

        registry = referencing.Registry(retrieve=retrieve).with_resources(resources.items())
        return validator(self._document(document, names, ""), registry=registry)

    def _class(self, document: Any) -> Any:
        """Returns the class of validators for the draft that a schema names, or of Confluent's serializers' draft."""
        named = document.get("$schema") if isinstance(document, dict) else None
        return self._drafts.get(_draft(named), self._drafts[DEFAULT_DRAFT])

    def _document(self, document: Any, names: _Names, name: str) -> Any:
        """Returns a schema with what Confluent's Java adds to it, and with patterns and references for Python."""
        found = for_python(document, urljoin(names.base, name), names.validator.ID_OF, names.target)
        if isinstance(found, dict):
            if self._class(document) is names.validator:  # by its name, jsonschema would choose a class of its own
                found.pop("$schema", None)
            definitions, other = found.get("definitions"), found.get("$defs", {})
            if isinstance(definitions, dict) and isinstance(other, dict):
                found["$defs"] = {**definitions, **other}
        return found


class _Names:
    """Finds the references of a schema by the text of a `$ref`, as Confluent's deserializer in Java does.

    A name is relative to the id of the schema that has the references, and a `$ref` to the schema that contains it. In
    the newer drafts, a text that is a name comes first; in the older ones, for which Java then finds nothing, last.
    """

    def __init__(self, validator: Any, document: Any, names: list[str]) -> None:
        self.validator, meta = validator, validator.META_SCHEMA
        self._prefers_names = "/draft/20" in meta.get("$id", "")
        given = document.get("$id" if "$id" in meta else "id", "") if isinstance(document, dict) else ""
        self.base = urljoin("http://input.reference/", given) if self._prefers_names else given
        self.addresses = {name: f"http://{at}.reference/" for at, name in enumerate(names)}
        self._as_written = {_plain(name): address for name, address in self.addresses.items()}
        self._resolved = {_plain(urljoin(self.base, name)): address for name, address in self.addresses.items()}

    def target(self, base: str, reference: str) -> str:
        """Returns the address of the schema that a `$ref` refers to, or the text itself if no name fits."""
        path, hash_sign, fragment = reference.partition("#")
        found = [self._as_written.get(_plain(path)), self._resolved.get(_plain(urljoin(base, path)))]
        address = next(filter(None, found if self._prefers_names else reversed(found)), path) if path else ""
        return f"{address}{hash_sign}{fragment}"


def _plain(address: str) -> str:
    return unquote(address).removeprefix("./")


DEFAULT_DRAFT = "json-schema.org/draft-07/schema"
EXACT = Context(prec=10_000)


def _draft(address: object) -> str:
    """Returns the address of a draft without its scheme, which schemas often have wrong."""
    return str(address).partition("://")[2].removesuffix("#")


def _parsed(data: bytes) -> Any:
    return json.loads(data, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
