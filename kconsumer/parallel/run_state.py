"""RunState: what the parts of a run share: its records, its commits, and why it ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kconsumer._common.deferred_calls import get_logger
from kconsumer.errors import KafkaError
from kconsumer.parallel.commits import Commits, too_long
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.flows import Flow
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.run_metrics import RunMetrics
from kconsumer.parallel.settings import Settings, Summary
from kconsumer.parallel.source import Source
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.types import TopicPartition

log = get_logger(__name__)

MIN_COMMIT_TIMEOUT_S = 5.0


class RunState:
    """The state of a run. Only the thread that polls changes it, except by `request_stop`."""

    def __init__(self, consumer: Any, settings: Settings, concurrency: Concurrency) -> None:
        self.consumer = consumer
        self.settings = settings
        self.clock = concurrency.clock
        self.source = Source(consumer, concurrency, self._on_wakeup)
        self.queue: WorkQueue = self._create_queue(concurrency)
        self.commits = Commits()
        self.trackers: dict[TopicPartition, OffsetTracker] = {}
        self.metrics: RunMetrics | None = None  # set when the run begins
        self.restored = 0  # records that an earlier run had finished
        self.abandoned = 0  # records whose handlers were not waited for
        self.reason = ""  # why the run ends
        self._drains_until: float | None = None  # ms; how long handlers are waited for, since the run ends
        self.next_commit = self.clock.now() + settings.commit_interval_s * 1000  # ms

    def _create_queue(self, concurrency: Concurrency) -> WorkQueue:
        return WorkQueue(self.settings, concurrency, self.consumer.wakeup)

    def request_stop(self, reason: str) -> None:
        """Let the run end. Any thread or signal handler may call this, so it takes no lock."""
        self._end(reason)
        self.consumer.wakeup()

    def _on_wakeup(self) -> None:
        if self.queue.error is None:  # otherwise the queue has called wakeup()
            self._end("wakeup")

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.queue.stopping = True
        self.begin_drain()

    def begin_drain(self) -> None:
        """Let the time begin for which handlers are waited for at the end of the run, if it has not begun."""
        if self._drains_until is None:
            self._drains_until = self.clock.now() + self.settings.drain_timeout_s * 1000

    def drain_left_s(self, timeout_s: float) -> float:
        """Returns how long handlers may be waited for: `timeout_s`, and no longer than the end of the run allows."""
        if self._drains_until is None:
            return timeout_s
        return min(timeout_s, (self._drains_until - self.clock.now()) / 1000)

    @property
    def commit_timeout_s(self) -> float:
        """How long a commit that is waited for may take."""
        return max(MIN_COMMIT_TIMEOUT_S, self.drain_left_s(self.settings.drain_timeout_s))

    def publish_metrics(self) -> None:
        """Add the metrics of the run to those of the consumer."""
        registry = self.consumer._engine.components.metrics
        self.metrics = RunMetrics(registry, self.clock, self.queue, self.source, self.commits, self.trackers)

    def update_metrics(self) -> None:
        """Record what has happened, for the metrics."""
        if self.metrics is not None:
            self.metrics.update()

    def commit_due(self) -> bool:
        """Returns True if a commit interval has passed, and begins the next one."""
        now = self.clock.now()
        if now < self.next_commit:
            return False
        self.next_commit = now + self.settings.commit_interval_s * 1000
        return True

    def start_commit(self) -> None:
        """Commit what has changed, without waiting. Raises the error of an earlier commit that cannot be repeated."""
        self.commits.start(list(self.trackers.values()), self.source.commit_async)
        if self.commits.error is not None:
            raise self.commits.error

    def commit_now(self, trackers: Collection[OffsetTracker]) -> Flow[KafkaError | None]:
        """Commit what has changed, and wait. Returns the error if it failed."""
        error: KafkaError | None = None
        while (offsets := self.commits.changed(trackers)) and (error is None or too_long(error)):
            try:
                yield from self.source.commit(offsets, self.commit_timeout_s)
            except KafkaError as failure:
                error = failure
                self.commits.failed(offsets, failure)
            else:
                self.commits.succeeded(offsets)
                return None
        return error

    def count_abandoned(self, trackers: Collection[OffsetTracker]) -> None:
        """Count the handlers of these closed partitions that have not returned."""
        running = self.queue.running(trackers)
        self.abandoned += running
        if running:
            log.warning(
                "%d handlers have not returned in time; their records are not committed, and will be processed again",
                running,
            )

    def summary(self) -> Summary:
        """Returns the figures until now. Any thread may call this."""
        queue = self.queue
        return Summary(
            processed=queue.processed,
            failed=queue.failed,
            retries=queue.retries,
            restored=self.restored,
            abandoned=self.abandoned,
            committed=dict(self.commits.committed),
            reason=self.reason,
        )
