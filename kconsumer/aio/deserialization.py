"""Runs deserializers of an AsyncConsumer that are coroutine functions, or that have returned an awaitable.

They cannot run inside `Collector.collect`, which does not wait. They run after it, on the collected runs, one record
after the other. The engine decides what happens to the records if a deserializer raises, or if the task is cancelled.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Self

from kconsumer._core.record import ConsumerRecord
from kconsumer._core.record_run import RecordRun, deserialization_error
from kconsumer.config.options import ConsumerConfig
from kconsumer.deserializers import Deserializer, adapt_any, is_coroutine_function
from kconsumer.errors import RecordDeserializationError


class AsyncDeserializers:
    """The deserializers of keys and values. Their results are awaited if they are awaitable."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self | None:
        """Returns the deserializers of a configuration, or None if no deserializer is a coroutine function."""
        key, value = config.key_deserializer, config.value_deserializer
        if not is_coroutine_function(key) and not is_coroutine_function(value):
            return None
        return cls.create(config)

    @classmethod
    def create(cls, config: ConsumerConfig) -> Self:
        """Returns the deserializers of a configuration."""
        key, value = config.key_deserializer, config.value_deserializer
        return cls(None if key is None else adapt_any(key, "key"), None if value is None else adapt_any(value, "value"))

    async def deserialize(self, run: RecordRun) -> RecordDeserializationError | None:
        """Replace the keys and values of a run by the results of the deserializers.

        If a deserializer raises, cuts the run off before that record, and returns the error.
        """
        keys: list[object] | None = None if self._key is None else []
        values: list[object] | None = None if self._value is None else []
        failure: RecordDeserializationError | None = None
        done, last = 0, -1
        for record in run:
            origin = "key"
            try:
                if self._key is not None and keys is not None:
                    keys.append(await _call(self._key, record, record.key))
                origin = "value"
                if self._value is not None and values is not None:
                    values.append(await _call(self._value, record, record.value))
            except Exception as error:
                failure = deserialization_error(origin, record, error)
                failure.__cause__ = error
                break
            done, last = done + 1, record.offset
        run.set_objects(done, last, keys, values)
        return failure


async def _call(deserializer: Deserializer, record: ConsumerRecord, data: bytes | None) -> object:
    result = deserializer(record.topic, record.headers, data)
    return await result if isinstance(result, Awaitable) else result
