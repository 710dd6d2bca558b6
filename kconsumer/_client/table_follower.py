"""TableFollower: the steps that read a compacted topic into a table and follow it. Does no I/O.

Decides which partitions are read and from where, when a table is ready, and which errors end it. The steps are a
generator of calls of a consumer, which a thread (`kconsumer/table.py`) or a task (`kconsumer/aio/table.py`) makes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from types import TracebackType
from typing import Any, Generic, TypeAlias

from kconsumer._client.table_contents import Change, K, TableContents
from kconsumer._common.error_codes import Errors
from kconsumer._core.lock import Clock, Timer
from kconsumer.errors import InvalidOffsetError, KafkaError, RecordDeserializationError, error_for
from kconsumer.types import TopicPartition, V

# A call to make with the consumer, whose result (awaited, if it is awaitable) is sent back, or a pause in seconds.
Step: TypeAlias = Callable[[Any], Any] | float
Steps: TypeAlias = Generator[Step, Any, None]
ChangeCallback: TypeAlias = Callable[[K, V | None], object]

POLL_S = 0.1
LOOKUP_S = 2.0
PAUSE_S = 0.5
IDLE_MS = 5000.0  # then the fetches of partitions that are not read to their ends begin again: see `_ask_again`
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Loading:
    """A partition that is being read from its beginning."""

    end: int | None = None  # the end offset when this began; None until it was looked up
    position: int = 0
    asked_at: int | None = None  # the position at which its fetches began again


class TableFollower(Generic[K, V]):
    """Reads a topic into `contents`. `steps` is run once, by the thread or task of the table."""

    def __init__(
        self, topic: str, contents: TableContents[K, V], refresh_ms: float, settled: Callable[[], object]
    ) -> None:
        self.contents = contents
        self.ready = False  # True from the moment at which all partitions have been read once to their ends
        self.problem: KafkaError | None = None  # the last error that is being retried
        self.failure: BaseException | None = None  # what has ended the table
        self.trace: TracebackType | None = None  # where `failure` was raised
        self.callbacks: list[ChangeCallback[K, V]] = []
        self.partitions: set[TopicPartition] = set()
        self._topic = topic
        self._clock = Clock()
        self._refresh_ms = refresh_ms
        self._next_refresh = Timer(self._clock, 0.0)
        self._settled = settled  # called when the table becomes ready or fails
        self._loading: dict[TopicPartition, Loading] = {}
        self._gone: set[TopicPartition] = set()  # not in the last response about the topic
        self._idle = Timer(self._clock, IDLE_MS)  # expires if no partition of `_loading` makes progress
        self._warned = False  # about records without a key

    @property
    def records_left(self) -> int | None:
        """How many offsets must be read until all partitions are caught up. None if an end is not known yet."""
        if not self.partitions:
            return None
        left = 0
        for loading in list(self._loading.values()):
            if loading.end is None:
                return None
            left += max(0, loading.end - loading.position)
        return left

    def fail(self, error: BaseException) -> None:
        """End the table with an error, which all later reads raise."""
        log.error("the table of topic %s ended with %s: %s", self._topic, type(error).__name__, error)
        self.failure, self.trace = error, error.__traceback__
        self._settled()

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(self) -> Steps:
        """Read the topic and follow it, without an end. Raises the error that ends the table."""
        while True:
            try:
                if self._next_refresh.expired:
                    yield from self._find_partitions()
                yield from self._poll()
                yield from self._look_up_ends()
                self.problem = None
            except InvalidOffsetError as error:  # deleted by retention, truncated, or another topic of this name
                log.warning("the table of topic %s reads partitions again: %s", self._topic, error)
                self._next_refresh = Timer(self._clock, 0.0)
                yield from self._read_again(error.partitions)
            except KafkaError as error:
                if not error.retriable:
                    _remove_seek_advice(error)
                    raise
                self.problem = error
                yield PAUSE_S

    def _find_partitions(self) -> Steps:
        self._next_refresh = Timer(self._clock, IDLE_MS if self.partitions else 0.0)  # if this one fails
        infos = yield lambda consumer: consumer.partitions_for(self._topic, LOOKUP_S)
        found = {TopicPartition(self._topic, info.partition) for info in infos}
        if not found:  # the entries of a topic that was deleted stay
            if not self.partitions:
                raise error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic {self._topic} does not exist")
            return
        self._next_refresh = Timer(self._clock, self._refresh_ms)
        # One response without a partition is not enough: the broker may lag behind.
        missing = self.partitions - found
        lost, self._gone = missing & self._gone, missing
        new = found - self.partitions
        if not (new or lost):
            return
        self.partitions = (self.partitions | new) - lost
        chosen = sorted(self.partitions)
        yield lambda consumer: consumer.assign(chosen)
        changes: list[Change[K, V]] = []
        for tp in lost:  # the topic was created again with fewer partitions
            self._loading.pop(tp, None)
            self.contents.restart(tp.partition)
            changes += self.contents.finish(tp.partition)
        yield from self._read_again(new)
        yield from self._notify(changes)

    def _read_again(self, partitions: Iterable[TopicPartition]) -> Steps:
        self._idle = Timer(self._clock, IDLE_MS)
        for tp in sorted(partitions):
            self.contents.restart(tp.partition)
            self._loading[tp] = Loading()
            yield methodcaller("seek_to_beginning", tp)

    def _look_up_ends(self) -> Steps:
        unknown = [tp for tp, loading in self._loading.items() if loading.end is None]
        if unknown:
            begins = yield lambda consumer: consumer.beginning_offsets(unknown, LOOKUP_S)
            ends = yield lambda consumer: consumer.end_offsets(unknown, LOOKUP_S)
            for tp in unknown:
                loading = self._loading[tp]
                loading.end, loading.position = ends[tp], max(loading.position, begins[tp])
            yield from self._advance([])

    def _poll(self) -> Steps:
        records = yield lambda consumer: consumer.poll(POLL_S)
        skipped = self.contents.skipped
        changes = self.contents.apply(records)
        if skipped < self.contents.skipped and not self._warned:
            self._warned = True
            log.warning("the table of topic %s skips records without a key", self._topic)
        for tp, offset in records.next_offsets().items():
            loading = self._loading.get(tp)
            if loading is not None:
                loading.position = offset.offset
                self._idle = Timer(self._clock, IDLE_MS)
        yield from self._advance(changes)
        if self._loading:
            yield from self._check_idle()

    def _advance(self, changes: list[Change[K, V]]) -> Steps:
        """Note which partitions have been read to their ends, and call the callbacks with the changes."""
        for tp, loading in list(self._loading.items()):
            if loading.end is not None and loading.position >= loading.end:
                del self._loading[tp]
                changes += self.contents.finish(tp.partition)
        if not (self.ready or self._loading):
            self.ready = True
            self._settled()
            changes = list(self.contents.values.items())
        yield from self._notify(changes)

    def _notify(self, changes: list[Change[K, V]]) -> Steps:
        callbacks = tuple(self.callbacks) if self.ready else ()
        for key, value in changes if callbacks else ():
            for callback in callbacks:
                try:
                    yield partial(_call_back, callback, key, value)
                except Exception:
                    log.exception("a callback of the table of topic %s failed for the key %r", self._topic, key)

    # --- offsets without records at the end of a partition -----------------------------------------------------------

    # Compaction can remove the last records of a log, for example tombstones. Then a fetch at the position returns
    # nothing for ever, although the end of the log is further ahead. It is not distinguished from a broker that is slow
    # by waiting. So all fetches begin again: a partition that is assigned again has no high watermark until a response
    # to a fetch at this very position has arrived. If that response brought no records, there are none.

    def _check_idle(self) -> Steps:
        if self._idle.expired:
            self._idle = Timer(self._clock, IDLE_MS)
            yield from self._ask_again()
        asked = {tp: loading for tp, loading in self._loading.items() if loading.asked_at is not None}
        states = (yield lambda consumer: consumer.partition_states()) if asked else {}
        for tp, loading in asked.items():
            state = states[tp]
            responded = state.high_watermark is not None and state.position == loading.asked_at
            if responded and not state.buffered_bytes and loading.end is not None:
                loading.position = loading.end

    def _ask_again(self) -> Steps:
        """Begin all fetches again, once for each position of the partitions that are not read to their ends."""
        states = yield lambda consumer: consumer.partition_states()
        positions = {tp: states[tp].position for tp in self.partitions}
        if all(loading.asked_at == positions[tp] for tp, loading in self._loading.items()):
            return
        for tp, loading in self._loading.items():
            loading.asked_at = positions[tp]
        yield lambda consumer: consumer.unsubscribe()
        yield lambda consumer: consumer.assign(positions)
        for tp, position in positions.items():
            if position is None:
                yield methodcaller("seek_to_beginning", tp)
            else:
                yield methodcaller("seek", tp, position)


def _remove_seek_advice(error: KafkaError) -> None:
    """Give the error of a record advice for tables, whose users cannot seek."""
    text, advice, _ = str(error).partition("; seek to offset")
    if advice:
        drops = type(error) is RecordDeserializationError
        hint = ", but record_filter drops records before deserializers run" if drops else ""
        error.args = (f"{text}; a table cannot skip it{hint}", *error.args[1:])


def _call_back(callback: Callable[[Any, Any], Any], key: object, value: object, _consumer: object) -> object:
    """Returns the result of a callback for the change of one key."""
    return callback(key, value)
