"""One consumer of a random model run: every call is recorded with its duration and its outcome.

Decides what is recorded of each call and of each callback; which calls are made is drawn in `group_model.py`.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kconsumer import Consumer, OffsetAndMetadata, RebalanceListener, TopicPartition
from kconsumer.errors import KafkaError, RecordDeserializationError
from support.harnesses.stopwatch import Stopwatch
from support.model.group_model_events import EventLog, Run, runs_of
from support.model.group_model_load import POISON

T = TypeVar("T")
IMMEDIATE_S = 0.0  # the timeout of calls that do not wait
SHORT_POLL_INTERVAL_MS = 1500


class CallbackFailed(Exception):
    """The error that callbacks of the model raise."""


class BodyFailed(Exception):
    """The error that the body of a `with` statement raises."""


def deserialize(data: bytes) -> bytes:
    """Raise for the value POISON."""
    if data == POISON:
        raise ValueError("poison")
    return data


class Processed:
    """How far each partition was processed by any member: no call of the model skips a record beyond that."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()

    def advance(self, tp: TopicPartition, end: int) -> None:
        """Record that everything below `end` was processed."""
        with self._lock:
            self._ends[tp] = max(end, self._ends.get(tp, 0))

    def end(self, tp: TopicPartition) -> int:
        """Returns the offset after the last record that was processed."""
        return self._ends.get(tp, 0)


class Member:
    """A consumer and its recorded state. `done` has each partition's next unprocessed offset, if known."""

    def __init__(
        self, name: str, options: Mapping[str, Any], log: EventLog, processed: Processed, drawn: random.Random
    ) -> None:
        self.name = name
        self.log = log
        self.random = drawn
        self.processed = processed
        self.done: dict[TopicPartition, int] = {}
        self.consumer = Consumer(**options)
        self.patterns = False  # whether it subscribes to patterns
        self.error: Exception | None = None  # what the last call raised
        self.too_slow_s = 0.0  # longer than its max_poll_interval_ms, if that is short
        if options.get("max_poll_interval_ms") == SHORT_POLL_INTERVAL_MS:
            self.too_slow_s = SHORT_POLL_INTERVAL_MS / 1000 + 0.5
        self.in_progress = False  # positions are after records that were not processed
        self._callbacks_s = 0.0  # spent in callbacks of the model
        protocol = options.get("group_protocol", "classic")
        static = "group_instance_id" in options
        log.add(
            name,
            "opened",
            protocol=protocol,
            static=static,
            options={k: v for k, v in options.items() if "servers" not in k},
        )

    # --- calls -----------------------------------------------------------------------------------------------------

    def call(self, name: str, function: Callable[[], T], bound_s: float = IMMEDIATE_S) -> T | None:
        """Call a method and record how it went. Returns its result, None if it raised.

        What callbacks of the model took is not counted, except in the calls that they make.
        """
        result, error = None, None
        callbacks_s, watch = self._callbacks_s, Stopwatch()
        try:
            result = function()
        except Exception as raised:
            error = raised
        self.error = error
        took_s = watch.seconds() - (self._callbacks_s - callbacks_s)
        kind = None if error is None else type(error).__name__
        self.log.add(
            self.name, "call", name=name, bound_s=bound_s, took_s=round(took_s, 3), error=kind, text=str(error or "")
        )
        return result

    def succeeds(self, name: str, function: Callable[[], object], bound_s: float = IMMEDIATE_S) -> bool:
        """Call a method that returns nothing. Returns whether it did not raise."""
        return self.call(name, lambda: (function(), True)[1], bound_s) is True

    def assignment(self) -> list[TopicPartition]:
        """Returns the assigned partitions, in order."""
        return sorted(self.call("assignment", self.consumer.assignment) or ())

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe with a listener that is recorded."""
        listener = Listener(self)
        chosen = re.compile("|".join(topics)) if self.patterns else topics
        if self.succeeds("subscribe", lambda: self.consumer.subscribe(chosen, listener=listener)):
            self.log.add(self.name, "subscribed", topics=sorted(topics))

    def leave(self, name: str, function: Callable[[], object], bound_s: float) -> None:
        """Call what ends the membership."""
        self.log.add(self.name, "leaving")
        self.call(name, function, bound_s)
        self.log.add(self.name, "left")
        self.done.clear()

    # --- records ---------------------------------------------------------------------------------------------------

    def poll(self, name: str, function: Callable[[], T], bound_s: float) -> T | None:
        """Call what returns records. A record that cannot be deserialized counts as processed, and is skipped."""
        records = self.call(name, function, bound_s)
        if isinstance(self.error, RecordDeserializationError):
            tp, offset = self.error.topic_partition, self.error.offset
            self.returned([(tp, offset, offset)])
            self.finished([(tp, offset, offset)])
            self.seek(tp, offset + 1)
        return records

    def returned(self, runs: list[Run]) -> None:
        """Record what a poll returned."""
        if runs:
            self.log.add(self.name, "returned", runs=runs)

    def finished(self, runs: list[Run]) -> None:
        """Record what was processed."""
        if not runs:
            return
        self.log.add(self.name, "finished", runs=runs)
        for partition, _, last in runs:
            tp = TopicPartition(*partition)
            self.done[tp] = last + 1
            self.processed.advance(tp, last + 1)

    # --- offsets ---------------------------------------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek to an offset."""
        self.log.add(self.name, "sought", partition=tp, offset=offset)
        if self.succeeds("seek", lambda: self.consumer.seek(tp, offset)):
            self.done[tp] = offset

    def position(self, tp: TopicPartition, timeout: float) -> None:
        """Record where a partition continues."""
        offset = self.call("position", lambda: self.consumer.position(tp, timeout), timeout)
        if offset is not None:
            self.log.add(self.name, "position", partition=tp, offset=offset)

    def committed(self, partitions: Collection[TopicPartition], timeout: float) -> None:
        """Record what is committed."""
        began = self.log.now()
        found = self.call("committed", lambda: self.consumer.committed(partitions, timeout), timeout)
        if found is not None:
            offsets = {tp: 0 if known is None else known.offset for tp, known in found.items()}
            self.log.add(self.name, "observed", began=began, offsets=offsets)

    def commit(self, timeout: float, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all positions."""
        if offsets is not None:
            self.log.add(self.name, "commit", offsets=offsets)
        known = {tp: self.done[tp] for tp in self.assignment() if tp in self.done} if offsets is None else offsets
        called_at = self.log.now()
        if self.succeeds("commit", lambda: self.consumer.commit(offsets, timeout=timeout), timeout):
            self.log.add(self.name, "acknowledged", called_at=called_at, offsets=known)

    def commit_async(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all positions, without waiting."""
        if offsets is not None:
            self.log.add(self.name, "commit", offsets=offsets)
        called_at = self.log.now()

        def finished(chosen: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
            if error is None:
                values = {tp: known.offset for tp, known in chosen.items()}
                self.log.add(self.name, "acknowledged", called_at=called_at, offsets=values)
                return
            kind = type(error).__name__
            self.log.add(
                self.name, "call", name="commit_async callback", bound_s=0.0, took_s=0.0, error=kind, text=str(error)
            )

        self.call("commit_async", lambda: self.consumer.commit_async(offsets, finished))

    # --- callbacks -------------------------------------------------------------------------------------------------

    @contextmanager
    def in_callback(self) -> Iterator[None]:
        """While the block runs, no time is counted for the call that runs the callback."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._callbacks_s += time.monotonic() - began

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the positions of partitions whose ownership begins or ends."""
        for tp in partitions:
            self.done.pop(tp, None)


class Listener(RebalanceListener):
    """Does in callbacks what applications do there: commits, seeks, takes its time, raises."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Look for the position, seek, commit, or raise."""
        member, drawn = self._member, self._member.random.random()
        with member.in_callback():
            member.forget(partitions)
            member.log.add(member.name, "assigned", partitions=partitions, raises=drawn < 0.03)
            if drawn < 0.03:
                raise CallbackFailed("on_assign")
            if partitions and drawn < 0.15:
                member.position(partitions[-1], 1.0)
            elif partitions and drawn < 0.20:
                tp = partitions[0]
                member.seek(tp, member.random.randint(0, member.processed.end(tp)))
            elif drawn < 0.25:
                member.committed(partitions, 1.0)
            elif drawn < 0.30:
                time.sleep(0.2)

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Commit, take time, or raise."""
        self._gone("revoked", partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Record the callback, or raise."""
        self._gone("lost", partitions)

    def _gone(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        member, drawn = self._member, self._member.random.random()
        raises = drawn < 0.03
        with member.in_callback():
            if kind == "revoked":
                self._before_revocation(partitions, drawn)
            if not raises:
                member.forget(partitions)
            member.log.add(member.name, kind, partitions=partitions, raises=raises)
            if raises:
                raise CallbackFailed(f"callback of partitions {kind}")

    def _before_revocation(self, partitions: tuple[TopicPartition, ...], drawn: float) -> None:
        member = self._member
        if drawn < 0.20:
            member.commit(1.0, {tp: member.done[tp] for tp in partitions if tp in member.done})
        elif drawn < 0.30 and not member.in_progress:
            member.commit(1.0)
        elif drawn < 0.35 and not member.in_progress:
            member.commit_async()
        elif drawn < 0.40:
            time.sleep(0.2)


def runs_in(records: Any) -> list[Run]:
    """Returns the runs of offsets in what `poll` or `poll_arrow` returned."""
    if hasattr(records, "to_pyarrow"):
        table = records.to_pyarrow()
        names = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
        return runs_of(zip(names, table["offset"].to_pylist(), strict=True))
    return runs_of((record.topic_partition, record.offset) for record in records)
