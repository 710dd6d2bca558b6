"""RangeClient: what is kept between ranges, and queries about topics that need no group.

Decides when connections are made (at the first use, and again after a fork or after `close`), when they are closed
(after a time without use), and who may use them: one thread at a time, for one range at a time.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kconsumer.config.options import ConsumerConfig
from kconsumer.consumer import Consumer, Offsets, P, Partition, Timeout
from kconsumer.engine.access_guard import AccessGuard, fork_count
from kconsumer.errors import CommitFailedError, ConfigError, KafkaError
from kconsumer.ranges.offset_bounds import Point
from kconsumer.types import OffsetAndMetadata, OffsetAndTimestamp, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    from kconsumer.ranges.reader import Limits, OnDataLoss, RangeReader, Schema

log = logging.getLogger(__name__)

RESERVED_OPTIONS = ("auto_offset_reset", "group_id", "group_instance_id", "enable_auto_commit", "consumer_timeout_ms")
# The fetch that is sent while the last records are decoded requests offsets beyond the range, maybe beyond the log. The
# broker keeps such a fetch for this time, and the next range waits for its response.
FETCH_MAX_WAIT_MS = 20
CLOSE_S = 5.0
IDLE_CLOSE_S = 60.0
MAX_IDLE_CLIENTS = 8  # in the pool


class TopicListing(NamedTuple):
    """A topic as its cluster describes it. `internal`: created by Kafka for itself, such as `__consumer_offsets`."""

    name: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class RangeClient:
    """Reads ranges one after the other over the same connections and fetch sessions.

    Nothing is connected before the first use. A pickle contains the options only; after a fork the child makes its own
    connections. Connections are closed after `idle_close_s` seconds without a call or an open range, by `close()` or
    `with`, and are made again at the next use. For one thread at a time: a second one gets ConcurrentAccessError.

    `options` are those of `Consumer`, also as dotted Java keys. Raises ConfigError for options that do not apply.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        isolation_level: str = "read_uncommitted",
        idle_close_s: float = IDLE_CLOSE_S,
        **options: Any,
    ) -> None:
        given = {name.replace(".", "_"): value for name, value in options.items()}
        for name in RESERVED_OPTIONS:
            if name in given:
                raise ConfigError(f"{name} is not an option of ranges: they are read without a group, between offsets")
        self.options: dict[str, Any] = {
            "allow_auto_create_topics": False,
            "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
            **given,
            "bootstrap_servers": bootstrap_servers,
            "isolation_level": isolation_level,
        }
        self.idle_close_s = idle_close_s
        self.config = ConsumerConfig(**self.options)
        self.read_committed = self.config.read_committed
        self.timeout_ms = float(self.config.default_api_timeout_ms)
        self._reset()

    def _reset(self) -> None:
        self._own_guard = AccessGuard()
        self._lock = threading.RLock()  # never locked during a wait; reentrant for signal handlers
        self._reading: Consumer | None = None
        self._committing: dict[str, Consumer] = {}
        self._reader: weakref.ref[RangeReader] | None = None
        self._timer: _IdleTimer | None = None

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], *, idle_close_s: float = IDLE_CLOSE_S) -> Self:
        """Returns a client with dotted Java keys or snake_case ones, in any mix, values typed or as text."""
        options = {name.replace(".", "_"): value for name, value in mapping.items()}
        if "bootstrap_servers" not in options:
            raise ConfigError('bootstrap_servers is required, for example bootstrap_servers="localhost:9092"')
        return cls(idle_close_s=idle_close_s, **options)

    def with_options(self, **options: Any) -> RangeClient:
        """Returns another client, with some options changed."""
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
        """Like the function `kconsumer.read_range`. It ends a range that is still open on this client."""
        from kconsumer.ranges.reader import Limits

        limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
        return self.open_range(TopicPartition(*partition), start, end, limits)

    def open_range(self, partition: TopicPartition, start: Point, end: Point, limits: Limits) -> RangeReader:
        """Like `read_range`, with checked limits."""
        from kconsumer.ranges.reader import RangeReader

        with self.in_use():
            self.end_range()
            reader = RangeReader(self, partition, start, end, limits)
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
        """End the range of this reader if it is the open one."""
        if self._reader is not None and self._reader() is reader and not self._own_guard.forked:
            with self.in_use():
                self.end_range()

    # --- offsets and topics ----------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        with self.in_use():
            return self.consumer.beginning_offsets(partitions, timeout)

    def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Returns the end of each partition: the high watermark, or with read_committed the last stable offset."""
        with self.in_use():
            return self.consumer.end_offsets(partitions, timeout)

    def offsets_for_times(
        self, timestamps: Mapping[P, int], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record of each partition at or after a time (ms since the epoch); None where there is
        none."""
        with self.in_use():
            return self.consumer.offsets_for_times(timestamps, timeout)

    def topics(self, names: Iterable[str] | None = None, timeout: Timeout = None) -> dict[str, TopicListing]:
        """Returns these topics, or all, as their cluster describes them now; those that do not exist are left out."""
        if isinstance(names, str):
            raise TypeError(f"topics() takes a list of names, not one string; write topics([{names!r}])")
        wanted = None if names is None else list(names)
        with self.in_use():
            engine = self.consumer._engine
            found = engine.run(engine.operations.topics(wanted, self.consumer._timer(timeout), fresh=True))
        return {name: TopicListing(name, name in found.internal, rows) for name, rows in found.items()}

    # --- committed offsets of a group without members --------------------------------------------------------------

    def commit(self, group_id: str, offsets: Offsets[P], *, timeout: Timeout = None) -> None:
        """Commit offsets for a group without joining it. Raises CommitFailedError if the group has members."""
        with self.in_use():
            try:
                self._committer(group_id).commit(offsets, timeout=timeout)
            except CommitFailedError as error:
                raise CommitFailedError(
                    f"group {group_id!r} has members, and only they may commit its offsets; stop them, or commit to"
                    " another group"
                ) from error

    def committed(
        self, group_id: str, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns what a group committed for these partitions; None for those without a commit."""
        with self.in_use():
            return self._committer(group_id).committed(partitions, timeout)

    def _committer(self, group_id: str) -> Consumer:
        consumer = self._committing.get(group_id)
        if consumer is None:
            consumer = Consumer(**self.options, group_id=group_id, enable_auto_commit=False, auto_offset_reset="none")
            self._committing[group_id] = consumer
        return consumer

    # --- access and idle time --------------------------------------------------------------------------------------

    @property
    def _guard(self) -> AccessGuard:
        """The access guard; in a forked child a new one, with nothing connected."""
        if self._own_guard.forked:
            self._reset()
        return self._own_guard

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads ranges."""
        if self._reading is None:
            self._reading = Consumer(**self.options, auto_offset_reset="none")
        return self._reading

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep other threads and the idle timer out.

        An exception that is no KafkaError (Ctrl-C, MemoryError, an exception from a signal handler) may have
        interrupted a consumer between any two calls, so the consumers are discarded; the next use connects again.
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
        """Close the sockets of consumers that an exception interrupted, without sending anything."""
        with self._lock:
            consumers = self._take_consumers()
        for consumer in consumers:
            _abandon(consumer)

    def start_idle_timer(self) -> None:
        """Close the connections after a time without use, counted from now."""
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
        """Returns the consumers to close because they are not used; runs in the timer's thread."""
        with self._lock:
            return self._take_consumers() if self._is_idle() else []

    def _take_consumers(self) -> list[Consumer]:
        consumers = [*self._committing.values(), *([] if self._reading is None else [self._reading])]
        self._committing, self._reading = {}, None
        return consumers

    def wakeup(self) -> None:
        """Make the running, or else the next, blocking call of another thread raise WakeupError."""
        consumer = self._reading
        if consumer is not None:
            consumer.wakeup()

    @property
    def connected(self) -> bool:
        """Whether anything is open that `close` would close."""
        return not self._own_guard.forked and (self._reading is not None or bool(self._committing))

    def close(self) -> None:
        """Close the connections and end the open range. The next use connects again."""
        with self.in_use():
            self.end_range()
            with self._lock:
                consumers = self._take_consumers()
            _close_all(consumers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "connected" if self.connected else "not connected"
        return f"<RangeClient of {self.options['bootstrap_servers']} {state}>"


def _unpickle(options: Mapping[str, Any], idle_close_s: float) -> RangeClient:
    return RangeClient(idle_close_s=idle_close_s, **options)


class _IdleTimer(threading.Thread):
    """Closes the connections of an idle client after `idle_close_s`, unless it is cancelled before.

    It is not a `threading.Timer`: Ctrl-C during its `cancel` would leave its lock locked for ever.
    """

    def __init__(self, client: RangeClient) -> None:
        super().__init__(name="kconsumer-idle", daemon=True)
        self._timeout_s = client.idle_close_s
        self._client = weakref.ref(client)
        self._cancelled: queue.SimpleQueue[None] = queue.SimpleQueue()

    def cancel(self) -> None:
        """End the thread."""
        self._cancelled.put(None)

    def run(self) -> None:
        """Wait, then close."""
        try:
            self._cancelled.get(timeout=self._timeout_s)
        except queue.Empty:
            _close_idle(self._client)


def _close_idle(client: weakref.ref[RangeClient]) -> None:
    """Close the consumers of an idle client; runs in the timer's thread. The client no longer has these consumers, so a
    call that comes now does not wait."""
    found = client()
    if found is not None:
        _close_all(found.take_if_idle())


def _abandon(consumer: Consumer) -> None:
    """Close the sockets and end the threads of an interrupted consumer. Further errors are logged."""
    consumer._guard.closed = True
    try:
        consumer._engine.abandon()
    except Exception:
        log.warning("an interrupted consumer could not be closed", exc_info=True)


def _close_all(consumers: Iterable[Consumer]) -> None:
    for consumer in consumers:
        try:
            consumer.close(CLOSE_S)
        except KafkaError as error:  # such as a broker that cannot be reached; nothing more is needed from it
            log.info("closing %r: %s", consumer, error)


# --- the pool of this process


_idle: list[RangeClient] = []
_idle_lock = threading.Lock()
_idle_forks = fork_count()


@contextmanager
def borrow(**options: Any) -> Iterator[RangeClient]:
    """A client with these options for this thread alone; one that was returned before is used again.

    For tasks that run one after the other in one process, as on the workers of a cluster: connections are shared over
    time, and closed after `idle_close_s` without a task. Takes the arguments of RangeClient.
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


def _pool_lock() -> threading.Lock:
    """Returns the lock of the pool; after a fork a new one, because a thread of the parent may have locked the old
    one."""
    global _idle_lock, _idle_forks
    if _idle_forks != fork_count():
        _idle.clear()
        _idle_lock, _idle_forks = threading.Lock(), fork_count()
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
