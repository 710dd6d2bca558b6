"""Source: the calls of a run on its consumer.

Decides what an interrupted call does: WakeupError is noted, and the
call is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Timer
from kconsumer.deserializers import adapt_any
from kconsumer.errors import (
    ConcurrentAccessError,
    ConfigError,
    KafkaError,
    RecordDeserializationError,
    StateError,
    WakeupError,
)
from kconsumer.listener import RebalanceListener
from kconsumer.parallel.commits import Offsets
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.finished_offsets import Ranges, decode
from kconsumer.parallel.flows import Flow, run_flow
from kconsumer.records import ConsumerRecords
from kconsumer.types import GroupMetadata, OffsetAndMetadata, TopicPartition

log = get_logger(__name__)

CONCURRENT_ACCESS_MS = 1000.0  # how long calls are repeated while another thread uses the consumer
T = TypeVar("T")


class Source:
    """The consumer of a run: a Consumer, or an AsyncConsumer. All methods are called on the thread that polls."""

    def __init__(self, consumer: Any, concurrency: Concurrency, on_wakeup: Callable[[], None]) -> None:
        self._consumer = consumer
        self._concurrency = concurrency
        self._on_wakeup = on_wakeup
        self._paused: set[TopicPartition] = set()  # by this run; what the application has paused stays paused
        self._blocked: set[TopicPartition] = set()  # those of them that stay paused when there is room again
        self._all_paused = False
        self._subscribed: frozenset[str] = frozenset()  # what the application has subscribed to, if this run reads more

    # --- reading -----------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float, *max_records: int) -> Flow[ConsumerRecords]:
        """Returns records. The result is empty if WakeupError ended the poll."""
        try:
            records: ConsumerRecords = yield from self.wait(
                lambda: self._consumer.poll(timeout_s, *max_records), repeat=False
            )
        except WakeupError:
            self._on_wakeup()
            return ConsumerRecords.EMPTY
        return records

    def finished(self, partitions: Collection[TopicPartition]) -> Flow[dict[TopicPartition, tuple[int, Ranges]] | None]:
        """Returns the committed offset of each partition, and the finished ranges in its metadata.

        Returns None if WakeupError ended the call.
        """
        found: dict[TopicPartition, tuple[int, Ranges]] = {}
        try:
            offsets = yield from self.wait(lambda: self._consumer.committed(partitions), repeat=False)
        except WakeupError:
            self._on_wakeup()
            return None
        for tp, committed in offsets.items():
            if committed is None:
                found[tp] = (0, [])
                continue
            ranges: Ranges = []
            try:
                ranges = decode(committed.metadata, committed.offset)
            except ValueError as error:
                log.warning("the metadata of the commit of %s are ignored: %s", tp, error)
            found[tp] = (committed.offset, ranges)
        return found

    def key_of(self, error: RecordDeserializationError) -> Flow[Any]:
        """Returns the key of a record that a deserializer refuses: what other records with these bytes have as key."""
        deserializer, data = self._consumer._config.key_deserializer, error.key
        if deserializer is None or data is None or error.origin == "key":
            return data
        try:
            function = adapt_any(deserializer, "key")
            return (yield partial(function, error.topic_partition.topic, error.headers, data))
        except Exception:  # user code; it has accepted these bytes before
            return data

    def subscribe(self, add_to: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Subscribe to what `add_to` returns for the present topics, until `end`. Raises ConfigError without names."""
        consumer = self._consumer
        if consumer._engine.components.subscription.kind.value != "topics":
            raise ConfigError("RetryTopics needs a consumer that is subscribed to topics by their names")
        self._subscribed = consumer.subscription()
        self._change_subscription(add_to(self._subscribed))

    def _change_subscription(self, topics: frozenset[str]) -> None:
        listener = self._consumer._engine.callbacks.listener
        self.call(lambda: self._consumer.subscribe(topics, listener=listener))

    def group_metadata(self) -> GroupMetadata:
        """Returns the present membership in the group."""
        found: GroupMetadata = self.call(self._consumer.group_metadata)
        return found

    def seek(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Set positions. Partitions that are no longer assigned are left out."""
        for tp, offset in offsets.items():
            with suppress(StateError):
                self.call(partial(self._consumer.seek, tp, offset))

    # --- pausing -----------------------------------------------------------------------------------------------------

    def pause_all(self) -> None:
        """Pause all partitions, also those that will be assigned."""
        self._all_paused = True
        self._pause(self.call(self._consumer.assignment))

    def resume_all(self) -> None:
        """Resume what this run has paused, except blocked partitions."""
        if self._all_paused:
            self._all_paused = False
            self._resume(self._paused - self._blocked)

    def block(self, partitions: set[TopicPartition]) -> None:
        """Pause exactly these partitions while others are read."""
        if partitions != self._blocked:
            unblocked, self._blocked = self._blocked - partitions, partitions
            self._pause(partitions)
            if not self._all_paused:
                self._resume(unblocked)

    @property
    def blocked(self) -> int:
        """The number of partitions that this run has paused alone."""
        return len(self._blocked)

    @property
    def all_blocked(self) -> bool:
        """True if all partitions would be paused if there was room, by this run or by the application."""
        until_room = self._paused - self._blocked
        return not set(self.call(self._consumer.assignment)) - (self.call(self._consumer.paused) - until_room)

    def _pause(self, partitions: Collection[TopicPartition]) -> None:
        chosen = (set(partitions) & self.call(self._consumer.assignment)) - self.call(self._consumer.paused)
        self.call(lambda: self._consumer.pause(*chosen))
        self._paused |= chosen

    def _resume(self, partitions: Collection[TopicPartition]) -> None:
        chosen = self._paused & set(partitions) & self.call(self._consumer.assignment)
        self._paused -= set(partitions)
        if chosen:
            self.call(lambda: self._consumer.resume(*chosen))

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Pause new partitions if all are paused. Called inside a rebalance callback."""
        if self._all_paused:
            self._pause(partitions)

    def on_removed(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the pauses of partitions that are no longer assigned."""
        self._paused.difference_update(partitions)
        self._blocked = self._blocked.difference(partitions)

    # --- commits, rebalances -----------------------------------------------------------------------------------------

    def commit_async(self, offsets: Offsets, callback: Callable[[Offsets, KafkaError | None], object]) -> None:
        """Commit without waiting. A later poll calls `callback`."""
        self.call(lambda: self._consumer.commit_async(offsets, callback))

    def commit(self, offsets: Offsets, timeout_s: float) -> Flow[None]:
        """Commit, and wait for the response."""
        yield from self.wait(lambda: self._consumer.commit(offsets, timeout=timeout_s))

    def observe(self, listener: RebalanceListener | None) -> None:
        """Set the listener that is called before that of the subscription."""
        self._consumer._observe_rebalances(listener)

    def end(self) -> None:
        """Undo what the run has changed."""
        self.observe(None)
        self._blocked = set()
        with suppress(StateError):  # a callback has closed the consumer
            self._resume(set(self._paused))
            if self._subscribed:
                self._change_subscription(self._subscribed)
        self._consumer._forget_wakeup()

    def call(self, method: Callable[[], T]) -> T:
        """Call a method of the consumer that does not wait."""
        result: T = run_flow(self.wait(method))
        return result

    def wait(self, method: Callable[[], Any], *, repeat: bool = True) -> Flow[Any]:
        """Call a method of the consumer. Repeats it after WakeupError, and while a handler uses the consumer."""
        timer: Timer | None = None
        while True:
            try:
                return (yield method)
            except WakeupError:
                if not repeat:
                    raise
                self._on_wakeup()
            except ConcurrentAccessError:
                timer = timer or Timer(self._concurrency.clock, CONCURRENT_ACCESS_MS)
                if timer.expired:
                    raise
                self._concurrency.sleep(0.001)
