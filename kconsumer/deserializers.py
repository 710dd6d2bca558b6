"""Makes one kind of callable out of the forms a deserializer may have.

Decides which form a user's object has; calls nothing. A null key or value never gets to a deserializer: the
record has None, as in Java.

    callable(data)                            json.loads, bytes.decode, a class
    object.deserialize(topic, headers, data)  as in Java and kafka-python
    callable(data, context)                   as in confluent-kafka; context has .topic, .field and .headers
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kconsumer.errors import ConfigError

Headers = tuple[tuple[str, bytes | None], ...]


class PlainDeserializer:
    """A callable that wants nothing but the bytes. `plain` is the callable itself, for loops to call
    directly."""

    __slots__ = ("plain",)

    def __init__(self, function: Callable[[bytes], object]) -> None:
        self.plain = function

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """What the callable makes of the data; None stays None."""
        return None if data is None else self.plain(data)


class ObjectDeserializer:
    """An object with a `deserialize(topic, headers, data)` method."""

    __slots__ = ("_deserialize",)

    def __init__(self, deserialize: Callable[[str, Headers, bytes], object]) -> None:
        self._deserialize = deserialize

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """What the method makes of the data; None stays None."""
        return None if data is None else self._deserialize(topic, headers, data)


class ContextDeserializer:
    """A callable that takes a context after the data, as confluent-kafka's deserializers do."""

    __slots__ = ("_field", "_function")

    def __init__(self, function: Callable[[bytes, object], object], field: str) -> None:
        self._function = function
        self._field = field

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """What the callable makes of the data; None stays None."""
        if data is None:
            return None
        return self._function(data, SerializationContext(topic, self._field, list(headers)))


class SerializationContext:
    """Where data comes from: has the attributes of confluent-kafka's class of the same name."""

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[tuple[str, bytes | None]]) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers


Deserializer = PlainDeserializer | ObjectDeserializer | ContextDeserializer


def adapt(deserializer: Any, field: str) -> Deserializer:
    """A callable `(topic, headers, data) -> object` for any form of deserializer.

    `field`: "key" or "value". Raises ConfigError for an object that has none of the forms.
    """
    option = f"{field}_deserializer"
    method = getattr(deserializer, "deserialize", None)
    if callable(method):
        if inspect.isclass(deserializer):
            raise ConfigError(f"{option} is the class {deserializer.__name__}; give an instance of it")
        return ObjectDeserializer(method)
    if not callable(deserializer):
        raise ConfigError(
            f"{option} must be a callable or have a method deserialize(topic, headers, data); "
            f"{deserializer!r} is neither"
        )
    if _wants_context(deserializer):
        return ContextDeserializer(deserializer, field)
    return PlainDeserializer(deserializer)


def _wants_context(function: Callable[..., object]) -> bool:
    """Whether a callable takes a second positional argument that is a context and not an option of its
    own."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in that does not say what it takes
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name in ("ctx", "context")
