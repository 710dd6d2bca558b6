"""TopicTable: a compacted topic as a mapping in memory, which a thread keeps up to date."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from kconsumer._client.client_base import Timeout
from kconsumer._client.table_base import TableBase
from kconsumer._client.table_contents import K
from kconsumer._client.table_follower import ChangeCallback, Step, TableFollower
from kconsumer._common.closing import Closing
from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer.consumer import Consumer
from kconsumer.errors import KafkaError, TimeoutError, WakeupError
from kconsumer.listener import is_coroutine_function
from kconsumer.types import V

if TYPE_CHECKING:
    from kconsumer._client.table_base import TableKey, TableKeywords, TableValue
    from kconsumer.config.signature import Deserializer, Key, Value

log = logging.getLogger(__name__)


class TopicTable(TableBase[K, V], Closing):
    """The newest value of each key of a compacted topic, as a read-only mapping that follows the topic.

    Its first use, or `with`, starts a thread that reads all partitions from their beginnings, without a group. When it
    has read what they contained then, the table is ready; reads wait for this up to `default_api_timeout_ms`. Any
    thread may read. A loop over the table, its keys, values or items sees the entries of one moment.

    A record sets its key, and a record without a value deletes it. Records without a key are skipped. `options` are
    those of `Consumer`. The table ends with TableTooLargeError before it has more than `max_entries` entries, or more
    than `max_bytes` bytes of keys and values, as they are in the topic. Python objects take several times as much.

    If the thread fails, for example in a deserializer or without authorization, the next read raises its error, and so
    does `wait_ready`. Connection failures are retried. Raises ConfigError as `Consumer` does, and for `group_id` and
    `auto_offset_reset`.
    """

    _how_to_close = "use `with TopicTable(…)` or close()"

    if TYPE_CHECKING:  # as in `Consumer`

        @overload
        def __init__(
            self: TopicTable[TableKey, TableValue],
            topic: str,
            *,
            key_deserializer: Deserializer[TableKey] = ...,
            value_deserializer: Deserializer[TableValue] = ...,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: TopicTable[Key, Value],
            topic: str,
            *,
            key_deserializer: Deserializer[Key] | str | None,
            value_deserializer: Deserializer[Value] | str | None,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: TopicTable[Any, Any],
            topic: str,
            *,
            key_deserializer: str | None = ...,
            value_deserializer: str | None = ...,
            **options: Unpack[TableKeywords],
        ) -> None: ...
        @overload
        def __init__(
            self: TopicTable[Any, Any], topic: str, *, bootstrap_servers: Any, _in_a_dict: Any, **options: Any
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
        self._settled = threading.Event()  # the table is ready, has failed, or is closed
        self._closing = threading.Event()
        self._starting = SignalSafeLock()
        self._thread: threading.Thread | None = None
        options["bootstrap_servers"] = bootstrap_servers
        self._set_up(topic, max_entries, max_bytes, options, Consumer, self._settled.set)

    def _check_callback(self, callback: ChangeCallback[K, V]) -> None:
        if is_coroutine_function(callback):
            raise TypeError("on_change() got a coroutine function, which only kconsumer.aio.AsyncTopicTable can call")

    # --- waiting -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start reading the topic. The first read, `wait_ready` and `with` do it, too."""
        self._check()  # first: in a forked child, the lock may be held for ever
        with self._starting:
            self._check()
            if not self._started:
                self._started = True
                arguments = (self._consumer, self._follower, self._closing)
                name = f"kconsumer-table-{self._topic}"
                # The thread has no reference to the table, so that an unclosed table can be collected.
                self._thread = threading.Thread(target=_follow, args=arguments, name=name, daemon=True)
                self._thread.start()

    def wait_ready(self, timeout: Timeout = None) -> None:
        """Wait until the table has caught up with the topic.

        Raises TimeoutError, which says how many records are left, and the error that has ended the table.
        """
        timeout_s = self._consumer._timeout_ms(timeout) / 1000
        self.start()
        if threading.current_thread() is self._thread:  # a deserializer reads the table
            timeout_s = 0.0
        settled = self._settled.wait(min(timeout_s, threading.TIMEOUT_MAX))
        self._check()
        if not settled:
            raise self._not_ready(timeout_s) from self._follower.problem

    def _read(self) -> dict[K, V]:
        self._check()
        if not self._follower.ready:
            self.wait_ready()
        return self._contents.values

    # --- ending ------------------------------------------------------------------------------------------------------

    def close(self, timeout: Timeout = 30.0) -> None:
        """Stop following the topic, and close the connections. Later reads raise StateError. May be called repeatedly.

        Raises TimeoutError if the thread does not end within the timeout, because a callback or a deserializer runs.
        """
        timeout_s = self._consumer._timeout_ms(timeout) / 1000
        self._closed = True
        if self._forked:
            return
        with self._starting:  # no thread starts from here on
            self._stop()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(min(timeout_s, threading.TIMEOUT_MAX))
        if thread.is_alive():
            raise TimeoutError(f"the thread of the table of topic {self._topic} has not ended after {timeout_s:g} s")

    def _stop(self) -> None:
        self._closing.set()
        self._settled.set()
        if self._started:
            self._consumer.wakeup()
        else:
            self._consumer.close()

    def __enter__(self) -> Self:
        self.start()
        return self


def _follow(consumer: Consumer[Any, Any], follower: TableFollower[Any, Any], closing: threading.Event) -> None:
    """Run the steps of the follower until the table is closed or fails, and close the consumer."""
    try:
        _run_steps(consumer, follower, closing)
    except BaseException as error:  # also SystemExit of a deserializer: the next read raises it
        if not (closing.is_set() and isinstance(error, WakeupError)):
            follower.fail(error)
    finally:
        try:
            consumer.close()
        except KafkaError as error:  # the consumer is not used again
            log.info("closing %r: %s", consumer, error)


def _run_steps(consumer: Consumer[Any, Any], follower: TableFollower[Any, Any], closing: threading.Event) -> None:
    steps = follower.steps()
    step: Step = next(steps)
    while not closing.is_set():
        try:
            result = closing.wait(step) if isinstance(step, float) else step(consumer)
        except Exception as error:
            step = steps.throw(error)
        else:
            step = steps.send(result)
