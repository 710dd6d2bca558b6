"""Turns any supported form of deserializer into a callable `(topic, headers, data) -> object`.

Decides which form an object of the application has, but does not call it. Deserializers are not called for null keys
and values: the record has None, as in Java. Those of an AsyncConsumer or AsyncShareConsumer may also be
coroutine functions, or return awaitables.

    callable(data)                            json.loads, bytes.decode, a class
    object.deserialize(topic, headers, data)  as in Java and kafka-python
    callable(data, context)                   as in confluent-kafka; context has .topic, .field and .headers
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from kconsumer.errors import ConfigError

Headers = tuple[tuple[str, bytes | None], ...]


class PlainDeserializer:
    """Calls a callable of the application with the data as its only argument."""

    __slots__ = ("plain",)  # the callable itself, so that loops can call it directly

    def __init__(self, function: Callable[[bytes], object]) -> None:
        self.plain = function

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """Returns the result of the callable, or None if `data` is None."""
        return None if data is None else self.plain(data)


class ObjectDeserializer:
    """Calls the `deserialize(topic, headers, data)` method of an object of the application."""

    __slots__ = ("_deserialize",)

    def __init__(self, deserialize: Callable[[str, Headers, bytes], object]) -> None:
        self._deserialize = deserialize

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """Returns the result of the method, or None if `data` is None."""
        return None if data is None else self._deserialize(topic, headers, data)


class ContextDeserializer:
    """Calls a callable of the application with the arguments (data, context), as in confluent-kafka."""

    __slots__ = ("_field", "_function")

    def __init__(self, function: Callable[[bytes, object], object], field: str) -> None:
        self._function = function
        self._field = field

    def __call__(self, topic: str, headers: Headers, data: bytes | None) -> object:
        """Returns the result of the callable, or None if `data` is None."""
        if data is None:
            return None
        return self._function(data, SerializationContext(topic, self._field, list(headers)))


class SerializationContext:
    """Describes where the data come from. Has the attributes of the class of this name in confluent-kafka."""

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[tuple[str, bytes | None]]) -> None:
        self.topic = topic
        self.field = field  # "key" or "value"
        self.headers = headers


Deserializer = PlainDeserializer | ObjectDeserializer | ContextDeserializer


def adapt(deserializer: Any, field: str) -> Deserializer:
    """Returns a callable `(topic, headers, data) -> object` for a deserializer of any form.

    `field` is "key" or "value". Raises ConfigError for an object that has none of the forms, and for a coroutine
    function.
    """
    if is_coroutine_function(deserializer):
        raise ConfigError(
            f"{field}_deserializer is a coroutine function, which only AsyncConsumer and AsyncShareConsumer of "
            "kconsumer.aio can call"
        )
    return adapt_any(deserializer, field)


def is_coroutine_function(deserializer: Any) -> bool:
    """Returns True if a deserializer, or the method of it that is called, is a coroutine function."""
    called = getattr(deserializer, "deserialize", deserializer)
    while isinstance(called, partial):
        called = called.func
    if inspect.isclass(called) or not callable(called):  # calling a class creates an instance
        return False
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


def adapt_any(deserializer: Any, field: str) -> Deserializer:
    """Returns the same as `adapt`. The result of a coroutine function must be awaited."""
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
    """Returns True if a callable takes a context as its second positional argument.

    An argument with a default is taken for an option of the callable, unless its name is ctx or context.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a built-in function without a signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name in ("ctx", "context")
