"""ShareEngine: what the public methods of a share consumer call. It polls, acknowledges, commits and closes.

Operations are generators, as in `engine/waiting.py`. Managers and network run on the calling thread, see `driver.py`,
or on the network thread of an `AsyncDriver`. Records that a poll has taken from the buffer, but that do not reach the
user because of an exception, are released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.decode import ConsumerRecord, ShareRecord, run_of
from kconsumer._core.lock import Timer
from kconsumer._internal.managers import Promise
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.client_engine import ClientEngine
from kconsumer.engine.close_sequence import TELEMETRY_CLOSE_TIMEOUT_MS
from kconsumer.engine.driver import Driver
from kconsumer.engine.environment import Environment
from kconsumer.engine.operations import TELEMETRY_DISABLED
from kconsumer.engine.waiting import Operation, Wait
from kconsumer.errors import KafkaError, StateError
from kconsumer.records import ConsumerRecords
from kconsumer.share.acknowledgements import (
    AcquiredBatch,
    Commit,
    PartitionAcknowledgements,
    check_acknowledged,
    not_acquired,
    offsets_of,
)
from kconsumer.share.buffer import CompletedShareFetch
from kconsumer.share.collector import Deserialize, plain_deserializers
from kconsumer.share.components import ShareComponents
from kconsumer.share.driver import ShareDriver
from kconsumer.share.fetch_ahead import MAX_POLLS_BUFFERED, FetchAhead
from kconsumer.share.metrics import SharePollMetrics
from kconsumer.share.run_access import RunAccess
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import MetricValues, TopicPartition

log = get_logger(__name__)

T = TypeVar("T")
Offsets = dict[TopicPartition, frozenset[int]]
AcknowledgeCallback = Callable[[Offsets, KafkaError | None], object]
Unreached = Callable[[], Iterable[ConsumerRecord]]
"""Returns the records of the last poll that a `for` loop over the consumer has not reached."""

Data = tuple[CompletedShareFetch, AcquiredBatch]
"""Data that a poll has taken from the buffer, and the batch for its records."""
Found = Data | ConsumerRecords | None

MAX_WAIT_SHARE = 3  # a poll that waits restarts the poll interval this many times within max_poll_interval_ms


class ShareEngine(ClientEngine):
    """One share consumer. The public methods call it, one thread at a time."""

    components: ShareComponents

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment,
        group_id: str,
        on_acknowledge: AcknowledgeCallback | None,
        make_driver: Callable[[ShareComponents, Callbacks], Driver] = ShareDriver,
        make_callbacks: Callable[[ShareComponents], Callbacks] = Callbacks,
    ) -> None:
        self.components = parts = ShareComponents(config, environment, group_id)
        self.callbacks = make_callbacks(parts)
        self.driver = make_driver(parts, self.callbacks)
        self.explicit = config.share_acknowledgement_mode == "explicit"
        self._config = config
        self._clock = parts.clock
        self._polls = SharePollMetrics(parts.metrics)
        self.polls = self._polls.polls
        self._ahead = FetchAhead()
        self._collecting = False  # deserializers are running
        #: The batches of the running poll, which are not acknowledged before it has returned them. A public method ends
        #: with a store of None, as `Delivery` explains. Another list: a poll of user code has released this batch.
        self.unreturned: list[AcquiredBatch] | None = None
        self._uncollected: Data | None = None  # data that was taken from the buffer and not decoded yet
        self._leaving = False  # unsubscribe() or close() is running: polls of callbacks and other tasks end
        self._batches: list[AcquiredBatch] = []  # of the last polls, until everything in them is acknowledged
        self.runs = RunAccess(parts, lambda: self._batches)
        parts.collector.deserialize = self._deserializers(config)
        if on_acknowledge is not None:
            parts.fetch.on_acknowledged = self._queue_callback(on_acknowledge)

    def _deserializers(self, config: ConsumerConfig) -> Deserialize | None:
        """Returns the function that runs deserializers, or None if there are none."""
        return plain_deserializers(config)

    def _queue_callback(
        self, callback: AcknowledgeCallback
    ) -> Callable[[PartitionAcknowledgements, KafkaError | None], None]:
        def queue(done: PartitionAcknowledgements, error: KafkaError | None) -> None:
            offsets = {done.topic_partition: done.offsets}
            self.callbacks.add(lambda: callback(offsets, error))

        return queue

    # --- subscription ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription. The next poll joins the group."""
        parts = self.components
        with parts.changing():
            parts.subscription.subscribe(topics)
            parts.metadata.request_new_topics()
            self.driver.request_manager_poll()

    def unsubscribe(self) -> Operation[None]:
        """Release what was acquired, leave the group, and drop the subscription."""
        timer = Timer(self._clock, self._config.default_api_timeout_ms)
        self._leaving = True
        self._ahead.reset()
        try:
            yield from self._end_sessions(timer)
            yield from self._leave(timer)
            with self.components.changing():
                self.components.subscription.unsubscribe()
        finally:
            self._leaving = False

    # --- poll ------------------------------------------------------------------------------------------------------

    def poll(
        self, timer: Timer, unreached: Unreached, taken: list[AcquiredBatch], *, deserialize: bool = True
    ) -> Operation[ConsumerRecords[Any, Any, Any]]:
        """Returns acquired records. Waits until there are some, or until the timer has expired.

        Acknowledges the records of the last poll first: those that a `for` loop has not reached are released, and in
        implicit mode all others are accepted. `unreached` is called once, when this happens. `taken` receives the
        batches of the returned records. If they do not reach the user, pass them to `release`. With `deserialize`
        False, deserializers do not run.
        """
        self._check_not_collecting()
        yield from self.callbacks.run_commits()
        parts = self.components
        if self.unreturned is not None:  # user code polls inside a poll
            self.release(self.unreturned)
        self.unreturned = taken
        if not parts.subscription.is_group_managed:
            self.driver._check_open()
            raise StateError("nothing to read from yet: subscribe() to topics first")
        if self._leaving:  # called by a callback
            return ConsumerRecords.EMPTY
        self.driver.keep_alive()
        with parts.changing():
            now = parts.changes.now
            self._finish_last_poll(unreached, now)
            self.driver.raise_wakeup()
            if (error := parts.membership.take_error()) is not None:  # it may be over before all managers are asked
                raise error
            found = self._find(taken, now)
            if found is None:
                self._send_requests()
        records = yield from self._collect(found, taken, deserialize=deserialize)
        while records is None:
            wait = self._wait(timer)
            yield wait
            self._polls.wait_ended(self._clock.now())
            yield from self.callbacks.run_commits()
            if self._leaving or not parts.subscription.is_group_managed:  # by a callback, a signal handler or a task
                return ConsumerRecords.EMPTY
            if wait.managers:
                self.driver.raise_errors()
            with parts.changing():
                now = parts.changes.now
                parts.membership.poll_started(now)
                self.unreturned = taken  # user code may have polled while this poll waited
                found = self._find(taken, now)
                self._send_requests()  # also if there are records: before the caller processes them
            records = yield from self._collect(found, taken, deserialize=deserialize)
            if records is None:
                if timer.expired:
                    return ConsumerRecords.EMPTY
                self.driver.raise_wakeup()
        return self._return(records)

    def _return(self, records: ConsumerRecords) -> ConsumerRecords:
        """Returns the records of a poll, after the next fetch was sent."""
        if self.driver.has_urgent_io:
            self.driver.yield_to_network(0.0)
        self._ahead.records_returned(len(records), self._config.max_poll_records, self._clock.now())
        return records

    def _wait(self, timer: Timer) -> Wait:
        """Returns the wait of a poll: for the fetches in flight, or if a manager is due, for any activity.

        It is shorter than the poll interval, which each wait restarts.
        """
        driver, fetch, now = self.driver, self.components.fetch, self._clock.now()
        deadline = min(timer.deadline, now + self._config.max_poll_interval_ms / MAX_WAIT_SHARE)
        due = min(driver.managers_due, fetch.due)
        if now < due and not driver.failed and self._fetches:
            return Wait(min(deadline, due), fetching=True, managers=False)
        return Wait(now if driver.failed else deadline, joining=True, fetching=self._fetches)

    def _finish_last_poll(self, unreached: Unreached, now: float) -> None:
        """Acknowledge the records of the last poll. The caller holds the lock."""
        parts = self.components
        left = offsets_of(unreached())
        for batch in self._batches if left else ():
            released = left.get(batch.topic_partition, set())
            batch.set_all(AcknowledgeType.RELEASE, batch.records.keys() & released)
        if not self.explicit:
            self._accept({})
        elif self.runs.room is None:
            check_acknowledged(batch for batch in self._batches if not batch.refused)
        if parts.membership.user_polled(now):
            self.driver.request_manager_poll()
        self._polls.poll_began(now)
        fetch_follows = self._fetch_ahead(now)
        self._send(None, flush=False)
        # A poll that waits sends the acknowledgements with its fetch. One that does not wait sends them now, unless one
        # of the next polls fetches soon.
        waits = not parts.buffer.has_data() and not parts.collector.error
        if not waits and not fetch_follows:
            self._send_requests()

    def _send_requests(self) -> None:
        """Send the fetches and acknowledgements that are due. The caller holds the lock."""
        parts = self.components
        if parts.fetch.needs_poll and not parts.closed:
            self.driver.flush_managers(parts.fetch)

    def _fetch_ahead(self, now: float) -> bool:
        """Let the manager fetch ahead if the caller is quick. The fetch carries the acknowledgements of the last polls.

        Returns True if the caller is quick, but has enough records for this poll and the next one. With record_limit, a
        poll returns at most `max_poll_records` records, and no others are locked.
        """
        parts, config = self.components, self._config
        quick = self._ahead.poll_began(now, parts.fetch.lock_timeout_ms)
        if not quick or config.share_acquire_mode == "record_limit" or self.runs.room is not None:
            return False
        if parts.buffer.records >= MAX_POLLS_BUFFERED * config.max_poll_records:
            return True
        parts.fetch.fetch_ahead()
        return False

    def _accept(self, unreached: Mapping[TopicPartition, Collection[int]]) -> None:
        """Accept the records of the last polls that have no acknowledgement yet, except these offsets.

        Those of the running poll are left out: they are not returned yet.
        """
        unreturned = self.unreturned or ()
        for batch in self._batches:
            if batch.refused or batch in unreturned:
                continue
            kept = unreached.get(batch.topic_partition)
            batch.set_all(AcknowledgeType.ACCEPT, [o for o in batch.records if o not in kept] if kept else None)

    def _send(self, commit: Commit | None, deadline: float | None = None, *, flush: bool = True) -> None:
        """Pass the acknowledgements that were not sent yet to the manager. The caller holds the lock.

        Unless `flush` is False, also poll the manager, so that it sends them.
        """
        now = self.components.changes.now
        for batch in self._batches if self.runs.room is None else ():
            if batch.refused:
                batch.set_all(AcknowledgeType.RELEASE)
        taken = [each for batch in self._batches for each in batch.take(now)]
        until = now + self._config.default_api_timeout_ms if deadline is None else deadline
        for each in taken:
            each.deadline, each.commit = until, commit
            if commit is not None:
                commit.add(each.topic_partition)
        unreturned = self.unreturned or ()  # one of them may get its records yet
        self._batches = [b for b in self._batches if not b.done or b in unreturned]
        if taken:
            self.components.fetch.acknowledge(taken)
            if flush and self.components.fetch.may_acknowledge:
                self.driver.flush_managers(self.components.membership, self.components.fetch)

    def release(self, batches: Iterable[AcquiredBatch]) -> None:
        """Release the records of these batches that have no acknowledgement: their poll has not returned them."""
        for batch in batches:
            batch.set_all(AcknowledgeType.RELEASE)
            if self._uncollected is not None and batch is self._uncollected[1]:
                batch.set_all(AcknowledgeType.RELEASE, self._uncollected[0].offsets())
                self._uncollected = None
        if self.unreturned is batches:
            self.unreturned = None

    def _find(self, taken: list[AcquiredBatch], now: float) -> Found:
        """Returns renewed records, or the next data of the buffer, or None. The caller holds the lock.

        While records are being renewed, no others are acquired: the poll returns the renewed ones.
        """
        if not self._fetches:
            records = self._take_renewed(taken, now)
            if records is not None or not self._fetches:
                return records
        if self.components.collector.error is not None:
            self._raise_collected()
        found = self._next_fetch(taken, now)
        if found is None:
            self.runs.want_records()
            self._send_gaps()
        return found

    @property
    def _fetches(self) -> bool:
        """True if a poll acquires records. It does not while it has to return renewed ones."""
        if not self.explicit or self.runs.room is not None:
            return True
        return not any(batch.has_renewals for batch in self._batches)

    def _raise_collected(self) -> None:
        """Raise the error of the record or batch after those that the last poll has returned, if there is one.

        If it is of a deserializer, the user may acknowledge the record from now on.
        """
        collector = self.components.collector
        refused = collector.take_refused()
        if refused is not None:
            self._batches.append(refused)
        error = collector.take_error()
        if error is not None:
            raise error

    def _take_renewed(self, taken: list[AcquiredBatch], now: float) -> ConsumerRecords | None:
        """Returns the renewed records, or None if there are none yet."""
        for batch in self._batches:
            batch.drop_expired(now)
        renewed = [batch for batch in self._batches if batch.renewed]
        taken += renewed
        return _as_records([list(batch.take_renewed()) for batch in renewed]) if renewed else None

    def _next_fetch(self, taken: list[AcquiredBatch], now: float) -> Data | None:
        """Returns the next data of the buffer, and the batch for its records. Returns None if the buffer is empty.

        Data of topics that are not subscribed to is released.
        """
        parts = self.components
        parts.buffer.drop_expired(now)
        while parts.buffer.has_data():
            fetch = parts.buffer.pop(self._config.max_poll_records)
            batch = AcquiredBatch(fetch.node_id, fetch.partition, fetch.topic_partition, fetch.locked_until)
            self._batches.append(batch)
            if fetch.topic_partition.topic in parts.subscription.subscribed_topics():
                taken.append(batch)
                self._uncollected = fetch, batch
                return fetch, batch
            parts.collector.dropped(fetch, now)
            batch.set_all(AcknowledgeType.RELEASE, fetch.offsets())
        return None

    def _collect(
        self, found: Found, taken: list[AcquiredBatch], *, deserialize: bool
    ) -> Operation[ConsumerRecords | None]:
        """Decode buffered data, up to about `max_poll_records` records: data of one response is not split.

        `found` is what `_find` has returned. Does not hold the lock while deserializers run. If these wait, and the
        consumer leaves the group meanwhile, returns no records.
        """
        parts = self.components
        if found is None or isinstance(found, ConsumerRecords):
            return found
        count = 0
        following: Data | None = found
        while following is not None:
            fetch, batch = following
            self._collecting = True
            try:
                steps = parts.collector.collect(fetch, batch, self._clock.now(), deserialize=deserialize)
                count += yield from steps
                self._uncollected = None
            finally:
                self._collecting = False
            if batch not in self._batches:
                return self._without(fetch, taken)
            if parts.collector.error or count >= self._config.max_poll_records or not parts.buffer.has_data():
                break
            with parts.changing():
                following = self._next_fetch(taken, parts.changes.now)
        self._send_gaps()
        if not count:
            self._raise_collected()
        return ConsumerRecords.from_runs([batch.returned() for batch in taken if batch.records]) if count else None

    def _without(self, fetch: CompletedShareFetch, taken: list[AcquiredBatch]) -> ConsumerRecords:
        """Drop what a poll has collected: the session has ended, and the group delivers the records again."""
        parts = self.components
        taken.clear()
        parts.collector.take_refused()
        parts.collector.take_error()
        with parts.changing():
            parts.buffer.drop(fetch, parts.changes.now)
        return ConsumerRecords.EMPTY

    def _send_gaps(self) -> None:
        """Acknowledge batches that have no records, but gaps, records that failed, or records not subscribed to."""
        for batch in self._batches:
            if batch.types and not batch.records:
                with self.components.changing():
                    self._send(None)
                return

    # --- acknowledgements ------------------------------------------------------------------------------------------

    def acknowledge(self, record: ConsumerRecord, kind: AcknowledgeType) -> None:
        """Set the acknowledgement of a record of the last polls. The next poll or commit sends it."""
        self._check_explicit()
        tp, offset = record.topic_partition, record.offset
        batches = [batch for batch in self._batches if batch.topic_partition == tp]
        for batch in [b for b in batches if b.contains(record)] or batches:
            if batch.acknowledge(offset, kind):
                return
        raise not_acquired(tp, offset)

    def _check_explicit(self) -> None:
        if not self.explicit:
            raise StateError(
                "acknowledging single records needs share_acknowledgement_mode='explicit'; in implicit mode the next"
                " poll or commit accepts all records of the last poll"
            )

    def acknowledge_offset(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Set the acknowledgement of a record of the last polls, or of one that a deserializer has refused."""
        self._check_explicit()
        for batch in reversed(self._batches):
            if batch.topic_partition == tp and offset in batch.records:
                if batch.refused and kind is AcknowledgeType.RENEW:
                    raise StateError("a record that a deserializer has refused cannot be renewed: no poll returns it")
                batch.acknowledge(offset, kind)
                return
        raise not_acquired(tp, offset)

    def commit(self, timer: Timer, unreached: Unreached) -> Operation[dict[TopicPartition, KafkaError | None]]:
        """Send all acknowledgements, and wait for the results. Returns the error of each partition, or None.

        In implicit mode, accepts the records of the last polls first, except those that a `for` loop has not reached.
        """
        self._check_not_collecting()
        yield from self.callbacks.run_commits()
        commit = Commit(timer.deadline)
        with self.components.changing():
            if not self.explicit:
                self._accept(offsets_of(unreached()))
            self._send(commit, timer.deadline)
        if commit.unfinished():
            yield from self._await(commit.promise, timer)
        yield from self.callbacks.run_commits()
        unfinished = commit.unfinished()
        if not unfinished:
            return dict(commit.results)
        late = self.driver.timeout_error("acknowledging records", unfinished, commit.promise.timeout_cause)
        return commit.results | dict.fromkeys(unfinished, late)

    def commit_async(self, unreached: Unreached) -> None:
        """Send all acknowledgements without waiting. `unreached` is as in `commit`."""
        self._check_not_collecting()
        self._run_callbacks_now()
        with self.components.changing():
            if not self.explicit:
                self._accept(offsets_of(unreached()))
            self._send(None)

    def _run_callbacks_now(self) -> None:
        """Run the callbacks of finished acknowledgements inside a method that does not wait."""
        self.run(self.callbacks.run_commits())

    def _check_not_collecting(self) -> None:
        """Raise StateError if a deserializer calls the consumer: the records of the running poll are incomplete."""
        if self._collecting:
            raise StateError("poll() and commits cannot be called inside a deserializer")

    def _await(self, promise: Promise[T], timer: Timer) -> Operation[None]:
        """Wait until the promise is done, or the timer has expired."""
        self.driver.raise_wakeup()
        while not promise.done and not timer.expired:
            yield Wait(timer.deadline, promise)
            self.driver.raise_wakeup()
            self.driver.raise_errors()

    # --- ending ----------------------------------------------------------------------------------------------------

    def close(self, timer: Timer) -> None:
        """Send acknowledgements, end the share sessions, leave the group, and close the connections.

        Each step runs, all of them within the timer. The first error is raised at the end.
        """
        self._leaving = True
        interrupted = self._release_interrupted()
        if self._take_network(timer):
            self.run(self._close_steps(timer, interrupted=interrupted))
        else:
            self.ended()

    def _close_steps(self, timer: Timer, *, interrupted: bool) -> Operation[None]:
        """Run the steps of close(). If an earlier change of the state was interrupted, nothing is sent."""
        parts = self.components
        steps: list[Callable[[], Operation[None] | None]]
        steps = [
            self._push_telemetry,
            partial(self._end_sessions, timer),
            partial(self._leave, timer),
            partial(self._await_telemetry, timer),
            self.callbacks.run_commits,
        ]
        first_error: Exception | None = None
        try:
            for step in [self.driver.end_threads] if interrupted else [*steps, self.driver.end_threads]:
                try:
                    waits = step()
                    if waits is not None:
                        yield from waits
                except Exception as error:  # the remaining steps must run after any error
                    log.warning("closing the consumer: %s", error)
                    first_error = first_error or error
        finally:  # also after Ctrl-C, which skips the remaining steps: end threads and close sockets
            self.driver.stop()
            with parts.changing():
                parts.subscription.unsubscribe()
                parts.buffer.clear(parts.changes.now)
                self.driver.close_connections()
            self.ended()
        if first_error is not None:
            raise first_error

    def _push_telemetry(self) -> None:
        """Send the last metrics if a broker has requested any."""
        parts = self.components
        with parts.changing():
            parts.telemetry.begin_close()
            if not parts.telemetry.ended:
                self.driver.push_telemetry(self._clock.now(), self.driver.submit_if_connected)

    def _await_telemetry(self, timer: Timer) -> Operation[None]:
        """Wait for the response to the last push of telemetry."""
        telemetry = self.components.telemetry
        limit = Timer(self._clock, min(timer.remaining_ms(), TELEMETRY_CLOSE_TIMEOUT_MS))
        while not telemetry.ended and not limit.expired:
            yield Wait(limit.deadline, managers=False)
        telemetry.end()

    def _end_sessions(self, timer: Timer) -> Operation[None]:
        """Send the last acknowledgements, and end the share sessions. The brokers then release all other records."""
        parts = self.components
        with parts.changing():
            self._send(None, timer.deadline)
            self._batches.clear()
            parts.buffer.clear(parts.changes.now)
            parts.fetch.close()
            self.driver.flush_managers(parts.membership, parts.fetch)
        limit = Timer(self._clock, min(timer.remaining_ms(), self._config.request_timeout_ms))
        while not parts.fetch.sessions_closed and not limit.expired:
            yield Wait(limit.deadline)
        yield from self.callbacks.run_commits()

    def _leave(self, timer: Timer) -> Operation[None]:
        """Leave the group. Waits for the response, at most as long as a request may take."""
        parts = self.components
        with parts.changing():
            promise = parts.membership.leave()
            self.driver.flush_managers(parts.membership, parts.coordinator)
        limit = Timer(self._clock, min(timer.remaining_ms(), self._config.request_timeout_ms))
        while not promise.done and not limit.expired:
            yield Wait(limit.deadline, promise)

    def _leave_dropped(self, driver: Driver, limit: Timer) -> Operation[None]:
        self.driver = driver
        return self._leave(limit)

    # --- telemetry -------------------------------------------------------------------------------------------------

    def client_instance_id(self, timer: Timer) -> Operation[str]:
        """Wait until a broker has assigned an id to this client for its telemetry. Returns the id."""
        parts = self.components
        with parts.changing():
            if not self._config.enable_metrics_push:
                raise StateError(TELEMETRY_DISABLED)
            promise = parts.telemetry.client_instance_id()
        yield from self._await(promise, timer)
        if not promise.done:
            raise self.driver.timeout_error("client_instance_id()", cause=promise.timeout_cause)
        return promise.result()

    # --- metrics ---------------------------------------------------------------------------------------------------

    def metrics(self) -> MetricValues:
        """Returns a snapshot of all metrics."""
        with self.components.lock:
            self._polls.settle()
            return self.components.metrics.snapshot(self._clock.now())


def _as_records(groups: Iterable[list[ShareRecord]]) -> ConsumerRecords:
    return ConsumerRecords.from_runs([run_of(list(group)) for group in groups if group])
