"""The arguments of `kconsumer consume` that decode keys and values by the schemas of a registry: -s and -r."""

from __future__ import annotations

import argparse
import contextlib
import traceback
from collections.abc import Iterator, Mapping, Sequence

from kconsumer import errors
from kconsumer.cli.arguments import UsageError, setting
from kconsumer.config.options import canonical_name

FORMATS = ("avro", "jsonschema", "protobuf")
OPTIONS = {"key": "key_deserializer", "value": "value_deserializer"}


def decoded_part(text: str) -> tuple[str, str]:
    """Split the argument of -s, such as `value=avro`. Raises ArgumentTypeError for other text."""
    part, _, found = text.partition("=")
    if part not in OPTIONS or found not in FORMATS:
        known = ", ".join(f"{name}={FORMATS[0]}" for name in OPTIONS)
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {known}; the formats are {', '.join(FORMATS)}")
    return part, found


def registry_option(text: str) -> tuple[str, str]:
    """Split the argument of -r: the address of a registry, or an option of its client as `key=value`."""
    return ("url", text) if "://" in text.partition("=")[0] else setting(text)


@contextlib.contextmanager
def registry_deserializers(
    parts: Sequence[tuple[str, str]], registry: Sequence[tuple[str, str]]
) -> Iterator[dict[str, object]]:
    """Yields the options with the deserializers of -s, whose client is closed afterwards.

    Raises UsageError if -s or -r is missing, or if -r is wrong.
    """
    if not parts and not registry:
        yield {}
        return
    if not parts or "url" not in dict(registry):
        raise UsageError("-s value=avro and the like need the address of a registry with -r, and -r needs -s")
    _check_once("-s", parts)
    _check_once("-r", registry)
    from kconsumer.registry import AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer, Schemas

    classes = dict(zip(FORMATS, (AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer), strict=True))
    try:
        schemas = Schemas(dict(registry))
    except errors.ConfigError as error:
        raise UsageError(f"-r: {error}") from None
    with schemas.client:
        yield {OPTIONS[part]: classes[found](schemas) for part, found in parts}


def _check_once(argument: str, given: Sequence[tuple[str, str]]) -> None:
    """Raise UsageError if two values of an argument set the same."""
    names = [name for name, _ in given]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise UsageError(f"{argument} sets {repeated} twice")


def is_of_registry_client(error: errors.RecordDeserializationError) -> bool:
    """Returns whether a record was not decoded because the client of the registry failed: later it may decode."""
    cause = error.__cause__
    if isinstance(cause, OSError):  # also if a proxy has responded in place of the registry
        return True
    frames = () if cause is None else traceback.walk_tb(cause.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("confluent_kafka.") for frame, _ in frames)


def decoded_parts(options: Mapping[str, object]) -> frozenset[str]:
    """Returns which of key and value have a deserializer, other than Java's for bytes."""
    set_options = {canonical_name(key): value for key, value in options.items() if not _is_for_bytes(value)}
    return frozenset(part for part, option in OPTIONS.items() if option in set_options)


def _is_for_bytes(value: object) -> bool:
    return isinstance(value, str) and value.endswith(("ByteArrayDeserializer", "BytesDeserializer"))
