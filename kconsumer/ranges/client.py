"""RangeClient: what is kept between one range and the next, and questions about topics that need no group.

Decides when connections are made (at the first use, and again after a fork or after `close`), when they are closed
(after a while without use), and who may use them: one thread at a time, one range at a time.
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

OURS = ("auto_offset_reset", "group_id", "group_instance_id", "enable_auto_commit", "consumer_timeout_ms")
# The fetch that goes out while the last records are decoded asks for what is beyond the range, maybe beyond the log:
# the connection should not wait long for its answer.
FETCH_MAX_WAIT_MS = 20
CLOSE_S = 5.0
IDLE_CLOSE_S = 60.0
MOST_IDLE = 8  # clients that wait to be borrowed again


class TopicListing(NamedTuple):
    """A topic as its cluster describes it. `internal`: made by Kafka for itself, as `__consumer_offsets` is."""

    name: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class RangeClient:
    """Reads ranges one after the other over the same connections and fetch sessions.

    Nothing is connected before the first use. Pickles as its options alone; a process that forked makes connections
    of its own. Connections are closed after `idle_close_s` seconds without a call or an open range, by `close()` or
    `with`, and made again if they are needed after all. From one thread at a time: a second one gets
    ConcurrentAccessError.

    `options` are those of `Consumer`, also as dotted Java keys. Raises ConfigError for those that have no place here.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str],
        isolation_level: str = "read_uncommitted",
        idle_close_s: float = IDLE_CLOSE_S,
        **options: Any,
    ) -> None:
        chosen = {name.replace(".", "_"): value for name, value in options.items()}
        for name in OURS:
            if name in chosen:
                raise ConfigError(f"{name} has no place here: ranges are read without a group, from where you say")
        self.options: dict[str, Any] = {
            "allow_auto_create_topics": False,
            "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
            **chosen,
            "bootstrap_servers": bootstrap_servers,
            "isolation_level": isolation_level,
        }
        self.idle_close_s = idle_close_s
        self.config = ConsumerConfig(**self.options)
        self.read_committed = self.config.read_committed
        self.patience_ms = float(self.config.default_api_timeout_ms)
        self._begin()

    def _begin(self) -> None:
        self._own_guard = AccessGuard()
        self._lock = threading.RLock()  # never held while anything waits; a signal handler may take it again
        self._reading: Consumer | None = None
        self._committing: dict[str, Consumer] = {}
        self._reader: weakref.ref[RangeReader] | None = None
        self._timer: _IdleTimer | None = None

    @classmethod
    def from_config(cls, mapping: Mapping[str, Any], *, idle_close_s: float = IDLE_CLOSE_S) -> Self:
        """A client from dotted Java keys or snake_case ones, mixed as they come, values typed or as text."""
        options = {name.replace(".", "_"): value for name, value in mapping.items()}
        if "bootstrap_servers" not in options:
            raise ConfigError('bootstrap_servers is required, for example bootstrap_servers="localhost:9092"')
        return cls(idle_close_s=idle_close_s, **options)

    def with_options(self, **options: Any) -> RangeClient:
        """Another client, with some options changed."""
        return RangeClient(idle_close_s=self.idle_close_s, **{**self.options, **options})

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.options, self.idle_close_s)

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
        """What the function `kconsumer.read_range` does. A range that is still open on this client ends with it."""
        from kconsumer.ranges.reader import Limits

        limits = Limits(columns, schema, max_rows, max_bytes, on_data_loss)
        return self.open_range(TopicPartition(*partition), start, end, limits)

    def open_range(self, partition: TopicPartition, start: Point, end: Point, limits: Limits) -> RangeReader:
        """`read_range` with checked limits."""
        from kconsumer.ranges.reader import RangeReader

        with self.in_use():
            self.end_range()
            reader = RangeReader(self, partition, start, end, limits)
            self._reader = weakref.ref(reader)
        return reader

    def end_range(self) -> None:
        """Let go of the range that is open: its fetched data, not its connections."""
        reader = self._reader() if self._reader is not None else None
        self._reader = None
        if reader is not None:
            reader.ended = True
        if self._reading is not None:
            self._reading.unsubscribe()

    def closed_by(self, reader: RangeReader) -> None:
        """The range has come to its end."""
        if self._reader is not None and self._reader() is reader and not self._own_guard.forked:
            with self.in_use():
                self.end_range()

    # --- questions -------------------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        with self.in_use():
            return self.consumer.beginning_offsets(partitions, timeout)

    def end_offsets(self, partitions: Iterable[Partition], timeout: Timeout = None) -> dict[TopicPartition, int]:
        """Where each partition ends: the high watermark, with read_committed the last stable offset."""
        with self.in_use():
            return self.consumer.end_offsets(partitions, timeout)

    def offsets_for_times(
        self, timestamps: Mapping[P, int], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time (ms since the epoch); None where there is none."""
        with self.in_use():
            return self.consumer.offsets_for_times(timestamps, timeout)

    def topics(self, names: Iterable[str] | None = None, timeout: Timeout = None) -> dict[str, TopicListing]:
        """These topics, or all, as their cluster describes them now; those that do not exist are left out."""
        if isinstance(names, str):
            raise TypeError(f"topics() takes a list of names, not one string; write topics([{names!r}])")
        wanted = None if names is None else list(names)
        with self.in_use():
            engine = self.consumer._engine
            found = engine.run(engine.operations.topics(wanted, self.consumer._timer(timeout), fresh=True))
        return {name: TopicListing(name, name in found.internal, rows) for name, rows in found.items()}

    # --- offsets of a group that has no members --------------------------------------------------------------------

    def commit(self, group_id: str, offsets: Offsets[P], *, timeout: Timeout = None) -> None:
        """Commit offsets for a group without joining it. CommitFailedError if it has members: theirs would clash."""
        with self.in_use():
            try:
                self._committer(group_id).commit(offsets, timeout=timeout)
            except CommitFailedError as error:
                raise CommitFailedError(
                    f"group {group_id!r} has members, and only they may commit its offsets; stop them, or commit to a"
                    " group of your own"
                ) from error

    def committed(
        self, group_id: str, partitions: Iterable[Partition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What a group committed for these partitions; None for those without a commit."""
        with self.in_use():
            return self._committer(group_id).committed(partitions, timeout)

    def _committer(self, group_id: str) -> Consumer:
        consumer = self._committing.get(group_id)
        if consumer is None:
            consumer = Consumer(**self.options, group_id=group_id, enable_auto_commit=False, auto_offset_reset="none")
            self._committing[group_id] = consumer
        return consumer

    # --- who may use it, and for how long it is kept ---------------------------------------------------------------

    @property
    def _guard(self) -> AccessGuard:
        """The lock; a new one, and nothing connected, in a process that forked."""
        if self._own_guard.forked:
            self._begin()
        return self._own_guard

    @property
    def consumer(self) -> Consumer:
        """What ranges are read with."""
        if self._reading is None:
            self._reading = Consumer(**self.options, auto_offset_reset="none")
        return self._reading

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep other threads and the idle timer out.

        An exception that is no KafkaError (Ctrl-C, MemoryError, what a signal handler raised) may have interrupted a
        consumer between any two calls, so the consumers are discarded; the next use connects again.
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
            self.watch()

    def _discard(self) -> None:
        """Close the sockets of consumers that an exception interrupted, without sending anything."""
        with self._lock:
            consumers = self._take_consumers()
        for consumer in consumers:
            _abandon(consumer)

    def watch(self) -> None:
        """From now on, close the connections if they are not used for a while."""
        with self._lock:
            self._stop_timer()
            if self._needless() and self.connected:
                self._timer = _IdleTimer(self)
                with suppress(RuntimeError):  # the interpreter is ending
                    self._timer.start()

    def _needless(self) -> bool:
        reader = self._reader() if self._reader is not None else None
        return not self._own_guard.holder and (reader is None or reader.ended)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_if_idle(self) -> list[Consumer]:
        """What is to be closed because nobody uses it; in a timer's thread."""
        with self._lock:
            return self._take_consumers() if self._needless() else []

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
        """Close the connections, and end the range that is open. They are made again if the client is used again."""
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


def _unpickled(options: Mapping[str, Any], idle_close_s: float) -> RangeClient:
    return RangeClient(idle_close_s=idle_close_s, **options)


class _IdleTimer(threading.Thread):
    """Closes what an idle client has open after `idle_close_s`, unless it is cancelled before.

    Not a `threading.Timer`: Ctrl-C in the middle of its `cancel` would leave its lock held for ever.
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
        """Wait, and close."""
        try:
            self._cancelled.get(timeout=self._timeout_s)
        except queue.Empty:
            _close_idle(self._client)


def _close_idle(client: weakref.ref[RangeClient]) -> None:
    """Runs in a timer's thread; nobody has these consumers any more, so a call that comes now does not wait."""
    found = client()
    if found is not None:
        _close_all(found.take_if_idle())


def _abandon(consumer: Consumer) -> None:
    """Close the sockets and end the threads of an interrupted consumer. What else goes wrong is logged."""
    consumer._guard.closed = True
    try:
        consumer._engine.abandon()
    except Exception:
        log.warning("an interrupted consumer could not be closed", exc_info=True)


def _close_all(consumers: Iterable[Consumer]) -> None:
    for consumer in consumers:
        try:
            consumer.close(CLOSE_S)
        except KafkaError as error:  # of a broker that is gone, while nothing is asked of it any more
            log.info("closing %r: %s", consumer, error)


# --- clients of this process


_idle: list[RangeClient] = []
_idle_lock = threading.Lock()
_idle_forks = fork_count()


@contextmanager
def borrow(**options: Any) -> Iterator[RangeClient]:
    """A client with these options for this thread alone, one that served before if there is one.

    For tasks that come one after the other in one process, as on the workers of a cluster: connections are shared
    over time, and closed when no task came for `idle_close_s`. Takes what RangeClient takes.
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


def _lock_of_this_process() -> threading.Lock:
    """After a fork a new one, and nobody waits: another thread of the parent may have held the lock."""
    global _idle_lock, _idle_forks
    if _idle_forks != fork_count():
        _idle.clear()
        _idle_lock, _idle_forks = threading.Lock(), fork_count()
    return _idle_lock


def _take(options: dict[str, Any]) -> RangeClient:
    wanted = RangeClient(**options)
    with _lock_of_this_process():
        for number, client in enumerate(_idle):
            if (client.options, client.idle_close_s) == (wanted.options, wanted.idle_close_s):
                return _idle.pop(number)
    return wanted


def _give_back(client: RangeClient) -> None:
    with _lock_of_this_process():
        _idle.append(client)
        old = _idle.pop(0) if len(_idle) > MOST_IDLE else None
    if old is not None:
        old.close()


@atexit.register
def _close_waiting() -> None:
    """The program ends: nobody will borrow these."""
    with _lock_of_this_process():
        clients = [*_idle]
        _idle.clear()
    for client in clients:
        client.close()
