"""What a run needs: a consumer that leaves commits to it, and a handler that its executor can call."""

from __future__ import annotations

import inspect
from typing import Any

from kconsumer.config.options import ConsumerConfig
from kconsumer.consumer import Consumer
from kconsumer.errors import ConfigError
from kconsumer.listener import is_coroutine_function
from kconsumer.parallel.dead_letters import DeadLetters
from kconsumer.parallel.settings import Settings


def check_consumer(consumer: Any) -> None:
    """Raise TypeError or ConfigError if a run cannot use this consumer."""
    if not isinstance(consumer, Consumer):
        raise TypeError(f"Processor takes a kconsumer.Consumer, not {type(consumer).__name__}")
    check_config(consumer._config)


def check_config(config: ConsumerConfig) -> None:
    """Raise ConfigError if a run cannot use a consumer with this configuration."""
    if config.group_id is None:
        raise ConfigError("process() commits offsets, which needs a group: give group_id=… to Consumer")
    if config.enable_auto_commit:
        raise ConfigError(
            "process() commits what handlers have finished; auto-commit would commit records that they have not: give "
            "enable_auto_commit=False to Consumer"
        )


def check_handler(handler: Any, settings: Settings) -> None:
    """Raise TypeError if the executor cannot call this handler."""
    if not callable(handler):
        raise TypeError(f"the handler must be a callable that takes a record, not {handler!r}")
    for what, function in (("the handler", handler), ("on_failure", settings.on_failure)):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{what} is a generator function, over whose results nothing iterates: it must not yield")
    asynchronous = isinstance(settings.on_failure, DeadLetters) and settings.on_failure.asynchronous
    if asynchronous and settings.executor != "asyncio":
        raise TypeError("DeadLetters has a producer of aiokafka: use executor='asyncio'")
    if settings.executor != "asyncio":
        for what, function in (("the handler", handler), ("on_failure", settings.on_failure)):
            if _is_coroutine(function):
                raise TypeError(f"{what} is a coroutine function: use executor='asyncio'")


def _is_coroutine(function: Any) -> bool:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    return is_coroutine_function(function) or is_coroutine_function(type(function).__call__)
