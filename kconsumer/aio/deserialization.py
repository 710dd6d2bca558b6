"""Runs the deserializers of consumers in an event loop, which may be coroutine functions, or return awaitables.

Those of an AsyncConsumer do not run inside `Collector.collect`, which does not wait. They run after it, on the
collected runs, one record after the other, and other tasks run meanwhile. The engine decides what happens to the
records if a deserializer raises, or if the task is cancelled.
"""

from __future__ import annotations

from typing import Self

from kconsumer._core.decode import RecordRun
from kconsumer.aio.callbacks import AwaitingWait
from kconsumer.aio.turn import Turn
from kconsumer.config.options import ConsumerConfig
from kconsumer.deserializers import Deserializer, adapt_any
from kconsumer.engine.waiting import Operation
from kconsumer.errors import RecordDeserializationError


class AsyncDeserializers:
    """The deserializers of keys and values. Their results are awaited if they are awaitable."""

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self | None:
        """Returns the deserializers of a configuration, or None if there are none."""
        key, value = config.key_deserializer, config.value_deserializer
        if key is None and value is None:
            return None
        return cls(None if key is None else adapt_any(key, "key"), None if value is None else adapt_any(value, "value"))

    async def deserialize(self, run: RecordRun, turn: Turn) -> RecordDeserializationError | None:
        """Replace the keys and values of a run by the results of the deserializers.

        Lets other tasks run whenever the turn is over. If a deserializer raises, cuts the run off before that record,
        and returns the error. If the task is cancelled, the run is unchanged.
        """
        steps = run.deserialize_steps(self._key, self._value, turn.over)
        try:
            awaitable = next(steps)
            while True:
                if awaitable is None:
                    await turn.pass_on()
                    awaitable = next(steps)
                    continue
                try:
                    result = await awaitable
                except Exception as error:
                    awaitable = steps.throw(error)
                else:
                    awaitable = steps.send(result)
        except StopIteration as end:
            failure: RecordDeserializationError | None = end.value
            return failure
        finally:
            steps.close()

    def operation(self, turn: Turn, run: RecordRun) -> Operation[RecordDeserializationError | None]:
        """Do the same as `deserialize`, in an operation."""
        wait = AwaitingWait(self.deserialize(run, turn))
        yield wait
        failure: RecordDeserializationError | None = wait.result
        return failure
