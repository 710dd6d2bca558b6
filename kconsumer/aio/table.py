"""AsyncTopicTable: a compacted topic as a mapping in memory, which a task keeps up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kconsumer._client.client_base import Timeout
from kconsumer._client.table_base import TableBase
from kconsumer._client.table_contents import K
from kconsumer._client.table_follower import Step, TableFollower
from kconsumer._common.closing import AsyncClosing
from kconsumer.aio.consumer import AsyncConsumer
from kconsumer.errors import KafkaError, StateError, WakeupError
from kconsumer.types import V

if TYPE_CHECKING:
    from kconsumer._client.table_base import TableKey, TableKeywords, TableValue
    from kconsumer.config.signature import AsyncDeserializer, Deserializer, Key, Value

log = logging.getLogger(__name__)


class AsyncTopicTable(TableBase[K, V], AsyncClosing):
    """The `TopicTable` for asyncio: the same options, entries and errors. A task of the event loop follows the topic.

    `async with` or `await table.wait_ready()` starts it. Reads do not wait: they raise StateError until the table is
    ready. Callbacks and deserializers may be coroutine functions.
    """

    _how_to_close = "use `async with AsyncTopicTable(…)` or await close()"

    if TYPE_CHECKING:  # as in `AsyncConsumer`

        @overload
        def __init__(
            self: AsyncTopicTable[TableKey, Value],
            topic: str,
            *,
            key_deserializer: Deserializer[TableKey] = ...,
            value_deserializer: AsyncDeserializer[Value],
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncTopicTable[TableKey, TableValue],
            topic: str,
            *,
            key_deserializer: Deserializer[TableKey] = ...,
            value_deserializer: Deserializer[TableValue] = ...,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncTopicTable[Key, Value],
            topic: str,
            *,
            key_deserializer: Deserializer[Key] | str | None,
            value_deserializer: Deserializer[Value] | str | None,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncTopicTable[Any, Any],
            topic: str,
            *,
            key_deserializer: str | None = ...,
            value_deserializer: str | None = ...,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: AsyncTopicTable[Any, Any], topic: str, *, bootstrap_servers: Any, _in_a_dict: Any, **options: Any
        ) -> None: ...

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str | Sequence[str],
        max_entries: int | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> None:
        self._settled = asyncio.Event()  # the table is ready, has failed, or is closed
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        options["bootstrap_servers"] = bootstrap_servers
        self._set_up(topic, max_entries, max_bytes, options, AsyncConsumer, self._settled.set)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start reading the topic in a task of the running event loop. `wait_ready` and `async with` do it, too."""
        self._check()
        if not self._started:
            self._started = True
            # The task has no reference to the table, so that an unclosed table can be collected.
            steps = _follow(self._consumer, self._follower, self._closing)
            self._task = asyncio.get_running_loop().create_task(steps, name=f"kconsumer-table-{self._topic}")

    async def wait_ready(self, timeout: Timeout = None) -> None:
        """Wait until the table has caught up with the topic.

        Raises TimeoutError, which says how many records are left, and the error that has ended the table.
        """
        timeout_s = self._consumer._timeout_ms(timeout) / 1000
        self.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            self._check()
            raise self._not_ready(timeout_s) from self._follower.problem
        self._check()

    def _read(self) -> dict[K, V]:
        self._check()
        if not self._follower.ready:
            raise StateError(f"{self!r} cannot be read yet: await wait_ready() first")
        return self._contents.values

    # --- ending ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: Timeout = 30.0) -> None:
        """Stop following the topic, and close the connections. Later reads raise StateError. May be called repeatedly.

        If a callback or a deserializer does not end within the timeout, it is cancelled.
        """
        timeout_s = self._consumer._timeout_ms(timeout) / 1000
        self._closed = True
        if self._forked:
            return
        self._stop()
        if self._task is None:
            await self._consumer.close(timeout_s)
        elif not self._task.done() and self._task is not asyncio.current_task():
            _, unfinished = await asyncio.wait([self._task], timeout=timeout_s)
            for task in unfinished:
                task.cancel()

    def _stop(self) -> None:
        self._closing.set()
        self._settled.set()
        self._consumer.wakeup()

    async def __aenter__(self) -> Self:
        self.start()
        return self


async def _follow(consumer: AsyncConsumer[Any, Any], follower: TableFollower[Any, Any], closing: asyncio.Event) -> None:
    """Run the steps of the follower until the table is closed or fails, and close the consumer."""
    try:
        await _run_steps(consumer, follower, closing)
    except asyncio.CancelledError:
        follower.fail(StateError("the task of the table was cancelled"))
        raise
    except BaseException as error:  # the next read raises it
        if not (closing.is_set() and isinstance(error, WakeupError)):
            follower.fail(error)
    finally:
        try:
            await consumer.close()
        except KafkaError as error:  # the consumer is not used again
            log.info("closing %r: %s", consumer, error)


async def _run_steps(
    consumer: AsyncConsumer[Any, Any], follower: TableFollower[Any, Any], closing: asyncio.Event
) -> None:
    steps = follower.steps()
    step: Step = next(steps)
    while not closing.is_set():
        try:
            result = asyncio.sleep(step) if isinstance(step, float) else step(consumer)
            if isawaitable(result):
                result = await result
        except Exception as error:
            step = steps.throw(error)
        else:
            step = steps.send(result)
