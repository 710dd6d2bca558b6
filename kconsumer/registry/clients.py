"""The client of the schema registry, which is confluent-kafka's, and the optional packages of the deserializers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from kconsumer._common.extras import how_to_install
from kconsumer.config.kinds import reveal
from kconsumer.errors import ConfigError

__all__ = ["client_of", "required", "resolved"]

#: Options of the client that may be `env:NAME` or `file:PATH` in place of a secret.
SECRETS = (
    "url",
    "basic.auth.user.info",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.token",
    "ssl.key.password",
)
#: Options that are numbers for the client, also if they are given as text.
NUMBERS = ("cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.max.wait.ms", "retries.wait.ms", "timeout")


def required(module: str, purpose: str) -> Any:
    """Import a module of an optional package. Returns it. Raises ConfigError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{purpose} needs the module {error.name or module}, which is not installed: install the extra registry"
            f" ({how_to_install('registry')})"
        ) from error


def resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of a client with the secrets that they refer to, and with numbers in place of text.

    Raises ConfigError if a secret cannot be read, or a number is none.
    """
    found = dict(options)
    for name in SECRETS:
        if isinstance(found.get(name), str):
            try:
                found[name] = reveal(found[name])
            except ValueError as error:
                raise ConfigError(f"{name} of a registry: {error}") from None
    for name in NUMBERS:
        if isinstance(found.get(name), str):
            try:
                found[name] = int(found[name]) if found[name].isdecimal() else float(found[name])
            except ValueError:
                raise ConfigError(f"{name} of a registry must be a number, not {found[name]!r}") from None
    return found


def client_of(registry: Any) -> Any:
    """Returns the client: `registry` itself, or a new `SchemaRegistryClient` for a dict of options.

    Raises ConfigError if `registry` is neither, or if confluent-kafka or its extra for registries is missing.
    """
    if isinstance(registry, Mapping):
        library = required("confluent_kafka.schema_registry", "a schema registry")
        try:
            # This method also creates confluent-kafka's client for tests, for an address that begins with mock://.
            return library.SchemaRegistryClient.new_client(dict(registry))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"not the options of a SchemaRegistryClient: {error}") from None
    request = getattr(registry, "get_schema", None)
    if not callable(request) or inspect.iscoroutinefunction(request):  # a deserializer cannot await
        raise ConfigError(
            "registry must be a SchemaRegistryClient of confluent-kafka, a dict with its options, or the address of a"
            f" registry such as http://localhost:8081, not {registry!r}"
        )
    return registry
