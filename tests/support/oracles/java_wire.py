"""Kafka's own wire code, asked through a Java process, and messages in the JSON form it reads.

Knows how our messages are called and spelled in Java; which messages to compare is the tests' business.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import zipfile
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import Any, Self

from kconsumer.schema import APIS
from kconsumer.schema.dsl import Api, Array, Field, Kind, Message
from support.brokers.kafka_jars import DEFAULT_VERSION, kafka_jars, program

SOURCE = Path(__file__).parents[1] / "java" / "ProtocolDump.java"
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Every API at every version, each way.
CASES = [
    (api, version, direction)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for direction in ("request", "response")
]


def message_class(api: Api, direction: str) -> type[Message]:
    """Returns the API's request or response class."""
    return api.request if direction == "request" else api.response


class Java:
    """A running ProtocolDump, or another program of one line in, one line out."""

    def __init__(self, source: Path = SOURCE) -> None:
        class_path = ":".join(map(str, kafka_jars(DEFAULT_VERSION)))
        command = [program("java"), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", class_path, str(source)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, *words: object) -> str:
        """Returns the response to a line. Raises AssertionError if that is an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        response = self._process.stdout.readline().rstrip("\n")
        assert response.startswith("ok "), f"{' '.join(map(str, words))}: {response or 'the process has ended'}"
        return response.removeprefix("ok ")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)  # its input ends, so it does


def message_definitions() -> dict[str, Any]:
    """Returns Kafka's machine-readable definitions of all messages, by name, from the clients jar."""
    jar = next(path for path in kafka_jars(DEFAULT_VERSION) if path.name.startswith("kafka-clients-"))
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                text = archive.read(name).decode()
                definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                found[definition["name"]] = definition
    return found


def camel_case(name: str) -> str:
    """Returns Java's spelling of a field name."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def as_json(message: Message, version: int) -> dict[str, Any]:
    """Returns a message as Java's JSON converters read it."""
    out = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version in field.versions and not (field.tag is not None and value == field.default):
            out[camel_case(field.name)] = _value_as_json(field.kind, value, version)
    return out


def _value_as_json(kind: Kind, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value_as_json(kind.element, item, version) for item in value]
    if isinstance(kind, type):
        return as_json(value, version)
    if kind.name == "uuid":
        return urlsafe_b64encode(value).decode().rstrip("=")
    if kind.name in ("bytes", "records"):
        return b64encode(value).decode()
    return value


def random_message(cls: type[Message], version: int, rng: random.Random) -> Message:
    """Returns a message with values in every field that the version carries, sometimes null or at the default."""
    values = {
        field.name: _random_value(field, version, rng)
        for field in cls.FIELDS
        if version in field.versions and not (field.tag is not None and rng.random() < 0.3)
    }
    return cls(**values)


def _random_value(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.null and rng.random() < 0.3:
        return None
    return _random_kind(field.kind, version, rng)


def _random_kind(kind: Kind, version: int, rng: random.Random) -> Any:
    if isinstance(kind, Array):
        return [_random_kind(kind.element, version, rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    if isinstance(kind, type):
        return random_message(kind, version, rng)
    if kind.name in INTEGERS:
        bits = rng.randint(1, INTEGERS[kind.name])
        return rng.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if kind.name == "bool":
        return rng.random() < 0.5
    if kind.name == "uuid":
        return rng.randbytes(16)
    if kind.name == "string":
        return "".join(rng.choice("abc-_.Käé漢😀") for _ in range(rng.choice((0, 1, 5, 70, 200))))
    return rng.randbytes(rng.choice((0, 1, 5, 130)))
