"""Schemas of a registry by id, with the schemas that they refer to. Each is requested once by a process.

Decides which error means that the registry does not have a schema; this is remembered for a time. All other errors of
the client are raised as they are: the next attempt may succeed.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kconsumer._core.lock import Clock
from kconsumer.formats.avro_schemas import AvroSchema, parse, with_valid_defaults
from kconsumer.formats.framing import SchemaId, UnknownSchemaError, id_hint
from kconsumer.registry.clients import client_of, resolved

__all__ = ["SERIALIZED", "Schemas"]

NOT_FOUND = 404
SERIALIZED = "serialized"  # the format of Protocol Buffers schemas in which they are descriptors
UNKNOWN_MS = 30_000  # how long an id that the registry does not have is not requested again
MAX_SHARED = 16
MAX_UNKNOWN = 10_000  # ids in damaged values may be any number

#: The schemas of a registry that is given by its address or options, for each process: (process, options) -> schemas.
SHARED: dict[object, Schemas] = {}


class Schemas:
    """The schemas of a registry. Deserializers with the same `Schemas` share what it has loaded.

    `registry` is a `SchemaRegistryClient` of confluent-kafka, a dict with its options, or the address of a registry.
    """

    def __init__(self, registry: Any, *, clock: Clock | None = None) -> None:
        if isinstance(registry, (str, Mapping)):
            registry = resolved({"url": registry} if isinstance(registry, str) else registry)
        self.client = client_of(registry)
        close = getattr(self.client, "close", None)
        if self.client is not registry and callable(close):  # else the application closes its client
            weakref.finalize(self, close)
        self._clock = clock or Clock()
        self._lock = threading.RLock()  # one request for each schema, whatever number of threads needs it
        self._loaded: dict[object, Any] = {}
        self._unknown: dict[object, tuple[float, str]] = {}  # until when it is not requested again, and why
        self._avro: dict[SchemaId, AvroSchema] = {}

    def __repr__(self) -> str:
        return f"<Schemas: {len(self._loaded)} loaded by {type(self.client).__name__}>"

    @classmethod
    def of(cls, registry: Any) -> Schemas:
        """Returns `registry` itself if it is a `Schemas`, otherwise that of the process for an address or options."""
        if isinstance(registry, cls):
            return registry
        if not isinstance(registry, (str, Mapping)):
            return cls(registry)
        options = resolved({"url": registry} if isinstance(registry, str) else registry)
        key = (os.getpid(), tuple(sorted(options.items())))  # a connection does not work in a forked child
        try:
            found = SHARED.get(key)
        except TypeError:  # a value that is not hashable
            return cls(options)
        if found is None:
            found = SHARED.setdefault(key, cls(options))
            while len(SHARED) > MAX_SHARED:
                SHARED.pop(next(iter(SHARED)), None)
        return found

    def get(self, key: SchemaId, **options: Any) -> Any:
        """Returns confluent-kafka's `Schema` with an id or a GUID. Raises UnknownSchemaError if there is none.

        `options` are those of the client's method. With `fmt=SERIALIZED`, the text of a schema of Protocol Buffers is a
        descriptor in base 64 if the registry can return it.
        """
        request = self.client.get_schema if isinstance(key, int) else self.client.get_schema_by_guid
        return self._load(f"schema with the id {key}{id_hint(key)}", request, key, **options)

    def _load(self, what: str, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        key = (arguments, tuple(options.items()))
        found = self._loaded.get(key)
        if found is not None:
            return found
        with self._lock:
            until, why = self._unknown.get(key, (0.0, ""))
            if self._clock.now() < until:
                raise UnknownSchemaError(why)
            if key not in self._loaded:
                try:
                    self._loaded[key] = _requested(what, request, *arguments, **options)
                except UnknownSchemaError as error:
                    if len(self._unknown) >= MAX_UNKNOWN:
                        self._unknown.clear()
                    self._unknown[key] = (self._clock.now() + UNKNOWN_MS, str(error))
                    raise
            return self._loaded[key]

    def latest(self, subject: str) -> Any:
        """Returns the latest `Schema` of a subject. Raises UnknownSchemaError if the registry does not have it."""
        return self.latest_version(subject).schema

    def latest_version(self, subject: str) -> Any:
        """Returns the latest version of a subject, with its id. It is requested each time."""
        forget = getattr(self.client, "clear_latest_caches", None)
        if forget is not None:
            forget()
        return _requested(f"subject {subject!r}", self.client.get_latest_version, subject)

    def references(self, schema: Any, **options: Any) -> list[tuple[str, Any]]:
        """Returns the name and the `Schema` of each reference of a schema, after those that it refers to itself.

        A version that was deleted since is found, as in Java, if the client can. `options` are those of `get_version`.
        """
        found: dict[str, Any] = {}

        def add(referring: Any) -> None:
            for reference in referring.references or ():
                if reference.name not in found:
                    what = f"version {reference.version} of the subject {reference.subject!r}"
                    place = (reference.subject, reference.version)
                    version = self._load(what, self.client.get_version, *place, deleted=True, **options)
                    add(version.schema)
                    found[reference.name] = version.schema

        add(schema)
        return list(found.items())

    def avro(self, key: SchemaId) -> AvroSchema:
        found = self._avro.get(key)
        if found is None:
            found = self._avro[key] = self.avro_schema(self.get(key))
        return found

    def avro_schema(self, schema: Any) -> AvroSchema:
        """Returns an Avro schema, parsed together with those that it refers to.

        `schema` is JSON text, parsed JSON, or a `Schema` of confluent-kafka.
        """
        if isinstance(schema, (str, dict, list)):
            return with_valid_defaults(parse(schema))
        kind = schema.schema_type or "AVRO"
        if kind != "AVRO":
            raise UnknownSchemaError(f"the schema in the registry is of the type {kind}, not Avro")
        return parse(schema.schema_str, [other.schema_str for _, other in self.references(schema)])


def _requested(what: str, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a method of the client, without the options that it does not have, as in older versions of the library."""
    with contextlib.suppress(ValueError):  # a method that is not written in Python may have no signature
        parameters = inspect.signature(request).parameters
        if all(each.kind != each.VAR_KEYWORD for each in parameters.values()):
            options = {name: value for name, value in options.items() if name in parameters}
    try:
        return request(*arguments, **options)
    except Exception as error:
        is_missing = getattr(error, "http_status_code", None) == NOT_FOUND
        if is_missing and (getattr(error, "error_code", 1) or -1) > 0:  # else it is not the registry that responds
            raise UnknownSchemaError(f"the registry has no {what}: {error}") from error
        if isinstance(error, ValueError):  # a page of a proxy, for example; it says nothing about the record
            raise ConnectionError(f"the registry's response cannot be read: {error}") from error
        raise
