"""RangeClient and read_range: read ranges over connections that are reused, look up offsets and topics, commit.

Decides when connections are made (at the first use, and again after a fork or `close`) and when they are closed (after
an idle time). Allows one thread and one open range at a time.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from kconsumer._client.client_base import Timeout
from kconsumer._client.consumer_base import Offsets, P, Partition
from kconsumer._common.closing import Closing
from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._core.lock import fork_count
from kconsumer.consumer import Consumer
from kconsumer.engine.access_guard import AccessGuard
from kconsumer.errors import KafkaError
from kconsumer.ranges.client_base import (
    CLOSE_S,
    RangeClientBase,
    TopicListing,
    abandon,
    commit_for,
    listed_topics,
    options_of,
    topic_names,
)
from kconsumer.ranges.limits import Limits, OnDataLoss, Schema
from kconsumer.ranges.offset_bounds import Point
from kconsumer.ranges.reader import RangeReader
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

log = logging.getLogger(__name__)

IDLE_CLOSE_S = 60.0
MAX_IDLE_CLIENTS = 8  # the maximum number of clients in the pool


class RangeClient(RangeClientBase, Closing):
    """Reads ranges one after the other over the same connections and fetch sessions.

    The client connects at its first use. It closes its connections after `idle_close_s` seconds without a call or an
    open range, in `close()`, and at the end of a `with` block; the next use connects again. A pickle contains only the
    options. After a fork, the child makes its own connections. Only one thread may use the client at a time; calls of
    a second thread raise ConcurrentAccessError.

    `options` are those of `Consumer`; dotted Java keys are accepted. Raises ConfigError for options that do not apply
    to ranges, such as `group_id`.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        isolation_level: str = "read_uncommitted",
        idle_close_s: float = IDLE_CLOSE_S,
        **options: Any,
    ) -> None:
        self._set_up(bootstrap_servers, isolation_level, options)
        self.idle_close_s = idle_close_s
        self._reset()

    def _reset(self) -> None:
        self._own_guard = AccessGuard()
        self._lock = SignalSafeLock()  # not held while a thread waits; reentrant for signal handlers
        self._reading: Consumer | None = None
        self._committing: dict[str, Consumer] = {}
        self._reader: weakref.ref[RangeReader] | None = None
        self._timer: _IdleTimer | None = None

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], *, idle_close_s: float = IDLE_CLOSE_S) -> Self:
        """Returns a client with the options of a mapping.

        Keys are dotted Java names or snake_case names. Values have the type of the option, or are text that is
        converted. Raises ConfigError if `bootstrap_servers` is missing, and for options that do not apply to ranges.
        """
        return cls(idle_close_s=idle_close_s, **options_of(mapping))

    def with_options(self, **options: Any) -> RangeClient:
        """Returns a new client with `options` changed and all other options kept."""
        return RangeClient(idle_close_s=self.idle_close_s, **{**self.options, **options})

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.options, self.idle_close_s)

    # --- ranges ----------------------------------------------------------------------------------------------------

    def read_range(
        self,
        partition: TopicPartition | tuple[str, int],
        start: Point,
        end: Point,
        *,
        columns: Iterable[str] | None = None,
        schema: Schema = "kconsumer",
        max_bytes: int = 4 << 20,
        max_rows: int = 20_000,
        on_data_loss: OnDataLoss = "error",
    ) -> RangeReader:
        """Returns a reader for a range, like the function `kconsumer.read_range`.

        Ends the range that is still open on this client, if there is one.
        """
        limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
        return self.open_range(TopicPartition(*partition), start, end, limits)

    def open_range(
        self, partition: TopicPartition, start: Point, end: Point, limits: Limits, *, owned: bool = False
    ) -> RangeReader:
        """Returns a reader for a range, like `read_range`. `limits` contains the other arguments.

        With `owned`, the client belongs to the reader, which closes it.
        """
        with self.in_use():
            self.end_range()
            reader = RangeReader(self, partition, start, end, limits, owns_client=owned)
            self._reader = weakref.ref(reader)
        return reader

    def end_range(self) -> None:
        """End the open range: drop its fetched data, but keep the connections."""
        reader = self._reader() if self._reader is not None else None
        self._reader = None
        if reader is not None:
            reader.ended = True
        if self._reading is not None:
            self._reading.unsubscribe()

    def close_range(self, reader: RangeReader) -> None:
        """End the open range if it belongs to this reader."""
        if self._reader is not None and self._reader() is reader and not self._own_guard.forked:
            with self.in_use():
                self.end_range()

    # --- offsets and topics ----------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        with self.in_use():
            return self.consumer.beginning_offsets(partitions, timeout)

    def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the high watermark of each partition. With read_committed, returns the last stable offset."""
        with self.in_use():
            return self.consumer.end_offsets(partitions, timeout)

    def offsets_for_times(
        self, timestamps: Mapping[P, int], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns, for each partition, the offset and timestamp of the first record at or after a time (ms since 1970).

        The value is None if there is no such record.
        """
        with self.in_use():
            return self.consumer.offsets_for_times(timestamps, timeout)

    def topics(self, names: Iterable[str] | None = None, timeout: Timeout = None) -> dict[str, TopicListing]:
        """Request metadata of the topics with these names (None: all topics). Returns the topics that exist."""
        wanted = topic_names(names)
        with self.in_use():
            return self.consumer._run(listed_topics(self.consumer, wanted, timeout))

    # --- committed offsets of a group without members --------------------------------------------------------------

    def commit(self, group_id: str, offsets: Offsets[P], *, timeout: Timeout = None) -> None:
        """Commit offsets for a group without joining it. Raises CommitFailedError if the group has members."""
        with self.in_use():
            committer = self._committer(group_id)
            committer._run(commit_for(committer, group_id, offsets, timeout))

    def committed(
        self, group_id: str, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of a group for each partition, or None if the partition has none."""
        with self.in_use():
            return self._committer(group_id).committed(partitions, timeout)

    def _committer(self, group_id: str) -> Consumer:
        consumer = self._committing.get(group_id)
        if consumer is None:
            consumer = Consumer(**self.committer_options(group_id))
            self._committing[group_id] = consumer
        return consumer

    # --- access and idle time --------------------------------------------------------------------------------------

    @property
    def _guard(self) -> AccessGuard:
        """The guard that raises ConcurrentAccessError if two threads use the client at the same time.

        After a fork, the first access in the child creates a new guard and drops the parent's consumers.
        """
        if self._own_guard.forked:
            self._reset()
        return self._own_guard

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads ranges and looks up offsets. It is created at the first use."""
        if self._reading is None:
            self._reading = Consumer(**self.options, auto_offset_reset="none")
        return self._reading

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Reserve the client for the calling thread during a `with` block. The idle timer is stopped meanwhile.

        Raises ConcurrentAccessError if another thread uses the client. After an exception that is not a KafkaError,
        such as a KeyboardInterrupt, the state of the consumers may be inconsistent. They are then discarded, and the
        next use connects again.
        """
        guard = self._guard
        outer = guard.enter()
        try:
            with self._lock:
                self._stop_timer()
            yield
        except (KafkaError, GeneratorExit):
            raise
        except BaseException:
            self._discard()
            raise
        finally:
            guard.holder = outer
            self.start_idle_timer()

    def _discard(self) -> None:
        """Discard all consumers after an exception. Closes their sockets without sending any request."""
        with self._lock:
            consumers = self._take_consumers()
        for consumer in consumers:
            abandon(consumer)

    def start_idle_timer(self) -> None:
        """Start the timer that closes the connections after `idle_close_s` seconds, if the client is idle now."""
        with self._lock:
            self._stop_timer()
            if self._is_idle() and self.connected:
                self._timer = _IdleTimer(self)
                with suppress(RuntimeError):  # at the end of the interpreter
                    self._timer.start()

    def _is_idle(self) -> bool:
        reader = self._reader() if self._reader is not None else None
        return not self._own_guard.holder and (reader is None or reader.ended)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_if_idle(self) -> list[Consumer]:
        """Remove the consumers if the client is idle, and return them. Otherwise return an empty list.

        Runs in the timer's thread.
        """
        with self._lock:
            return self._take_consumers() if self._is_idle() else []

    def _take_consumers(self) -> list[Consumer]:
        consumers = [*self._committing.values(), *([] if self._reading is None else [self._reading])]
        self._committing, self._reading = {}, None
        return consumers

    @property
    def connected(self) -> bool:
        """True if the client has consumers, and so may have open connections."""
        return not self._own_guard.forked and (self._reading is not None or bool(self._committing))

    def close(self) -> None:
        """Close the connections and end the open range. The next use connects again."""
        with self.in_use():
            self.end_range()
            with self._lock:
                consumers = self._take_consumers()
            _close_all(consumers)

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<RangeClient of {self.options['bootstrap_servers']} {state}>"


def read_range(
    partition: TopicPartition | tuple[str, int],
    start: Point,
    end: Point,
    *,
    bootstrap_servers: str | Sequence[str],
    columns: Iterable[str] | None = None,
    schema: Schema = "kconsumer",
    isolation_level: str = "read_uncommitted",
    max_bytes: int = 4 << 20,
    max_rows: int = 20_000,
    on_data_loss: OnDataLoss = "error",
    **options: Any,
) -> RangeReader:
    """Returns an iterator over the records of one partition from `start` up to, not including, `end`, as Arrow batches.

    `start` and `end` are each an offset, `EARLIEST`, `LATEST` or a `datetime` with a time zone. `LATEST` is the current
    end of the log (with read_committed the last stable offset). A `datetime` means the first record of that time or
    later. `columns` are columns of `kconsumer.arrow`. With `schema="spark"`, they are columns of Spark's Kafka source,
    with its types. A batch ends with the row that reaches `max_bytes`. `options` are those of `Consumer`.

    Raises OffsetOutOfRangeError or LogTruncationError for offsets that are not in the log, when the range is opened or
    when the iterator reaches them. With `on_data_loss="skip"`, such offsets are listed in `gaps` instead. With
    read_committed, the iterator waits for the last stable offset if the range ends beyond it. Raises TimeoutError if
    there is no progress for `default_api_timeout_ms`. To read many ranges, use a `RangeClient`.
    """
    limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
    client = RangeClient(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level, **options)
    try:
        return client.open_range(TopicPartition(*partition), start, end, limits, owned=True)
    except BaseException:
        client.close()
        raise


def _unpickle(options: Mapping[str, Any], idle_close_s: float) -> RangeClient:
    return RangeClient(idle_close_s=idle_close_s, **options)


class _IdleTimer(threading.Thread):
    """Closes the connections of an idle client after `idle_close_s` seconds, unless it is cancelled before.

    It is not a `threading.Timer`. If Ctrl-C interrupted the `cancel` of such a timer, its lock would stay locked.
    """

    def __init__(self, client: RangeClient) -> None:
        super().__init__(name="kconsumer-idle", daemon=True)
        self._timeout_s = client.idle_close_s
        self._client = weakref.ref(client)
        self._cancelled: queue.SimpleQueue[None] = queue.SimpleQueue()

    def cancel(self) -> None:
        """Stop the timer and end its thread."""
        self._cancelled.put(None)

    def run(self) -> None:
        """Wait until the timeout, and then close the connections. Returns early if the timer is cancelled."""
        try:
            self._cancelled.get(timeout=self._timeout_s)
        except queue.Empty:
            _close_idle(self._client)


def _close_idle(client: weakref.ref[RangeClient]) -> None:
    """Close the consumers of an idle client. Runs in the timer's thread.

    First removes the consumers from the client. So a call that begins meanwhile does not wait until they are closed.
    """
    found = client()
    if found is not None:
        _close_all(found.take_if_idle())


def _close_all(consumers: Iterable[Consumer]) -> None:
    for consumer in consumers:
        try:
            consumer.close(CLOSE_S)
        except KafkaError as error:  # such as a broker that cannot be reached; the consumer is not used again
            log.info("closing %r: %s", consumer, error)


# --- the pool of this process


_idle: list[RangeClient] = []
_idle_lock = SignalSafeLock()
_idle_forks = fork_count()


@contextmanager
def borrow(**options: Any) -> Iterator[RangeClient]:
    """Borrow a client from the pool for a `with` block. `options` are the arguments of RangeClient.

    If the pool contains a client with the same options, it is used again. So tasks that run one after the other in one
    process, as on the workers of a Spark cluster, use the same connections. The connections are closed after
    `idle_close_s` seconds without a task.
    """
    client = _take(options)
    try:
        yield client
    finally:
        try:
            with client.in_use():
                client.end_range()
            _give_back(client)
        except BaseException:
            client.close()
            raise


def _pool_lock() -> SignalSafeLock:
    """Returns the lock of the pool.

    After a fork, first empties the pool and creates a new lock, because a thread of the parent may have held the old
    one.
    """
    global _idle_lock, _idle_forks
    if _idle_forks != fork_count():
        _idle.clear()
        _idle_lock, _idle_forks = SignalSafeLock(), fork_count()
    return _idle_lock


def _take(options: dict[str, Any]) -> RangeClient:
    wanted = RangeClient(**options)
    with _pool_lock():
        for number, client in enumerate(_idle):
            if (client.options, client.idle_close_s) == (wanted.options, wanted.idle_close_s):
                return _idle.pop(number)
    return wanted


def _give_back(client: RangeClient) -> None:
    with _pool_lock():
        _idle.append(client)
        old = _idle.pop(0) if len(_idle) > MAX_IDLE_CLIENTS else None
    if old is not None:
        old.close()


@atexit.register
def _close_idle_clients() -> None:
    """Close the clients of the pool at the end of the program."""
    with _pool_lock():
        clients = [*_idle]
        _idle.clear()
    for client in clients:
        client.close()
