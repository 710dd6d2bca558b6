"""Communication between the calling thread and the network thread, with its metrics (KIP-1068).

The calling thread puts application events into a queue, and the network thread takes them. In the other direction, the
network thread sets a signal when state that the engine's lock guards has changed. Examples are records, rebalance
callbacks, errors and finished promises. Adding an event and setting the signal never block on a lock, so signal
handlers and finalizers may do both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kconsumer._core.cycle import SignalState
from kconsumer._core.lock import Clock
from kconsumer.engine.environment import Lock
from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-metrics"
MAX_WAIT_MS = 3_600_000.0
"""The longest single wait (ms). select() and locks do not accept timeouts as long as a caller may give."""

QUEUED: tuple[Row, ...] = (
    ("application-event-queue-time-avg", Stat.AVG, "Mean time events of the caller's thread waited, ms"),
    ("application-event-queue-time-max", Stat.MAX, "Longest time an event of the caller's thread waited, ms"),
)
PROCESSED: tuple[Row, ...] = (
    ("application-event-queue-processing-time-avg", Stat.AVG, "Mean time to process all waiting events, ms"),
    ("application-event-queue-processing-time-max", Stat.MAX, "Longest time to process all waiting events, ms"),
)
BACKGROUND: tuple[Row, ...] = (
    ("background-event-queue-time-avg", Stat.AVG, "Mean time until the caller's thread saw what had changed, ms"),
    ("background-event-queue-time-max", Stat.MAX, "Longest time until the caller's thread saw what had changed, ms"),
)
HANDLED: tuple[Row, ...] = (
    ("background-event-queue-processing-time-avg", Stat.AVG, "Mean time the listener's calls of one poll took, ms"),
    ("background-event-queue-processing-time-max", Stat.MAX, "Longest time the listener's calls of one poll took, ms"),
)
UNSENT: tuple[Row, ...] = (
    ("unsent-requests-queue-time-avg", Stat.AVG, "Mean time requests waited until they were sent, ms"),
    ("unsent-requests-queue-time-max", Stat.MAX, "Longest time a request waited until it was sent, ms"),
)
EXPIRED: tuple[Row, ...] = (
    ("application-events-expired-count", Stat.COUNT, "Calls that ended because their time was over"),
)
BETWEEN: tuple[Row, ...] = (
    ("time-between-network-thread-poll-avg", Stat.AVG, "Mean time between two rounds of the network thread, ms"),
    ("time-between-network-thread-poll-max", Stat.MAX, "Longest time between two rounds of the network thread, ms"),
)


class ApplicationEvent:
    """Reports to the network thread that a call has begun to wait, and which work is allowed during the wait."""

    __slots__ = ("active", "fetching", "joining")

    def __init__(self, joining: bool = False, fetching: bool = False, active: bool = True) -> None:
        self.joining = joining  # the member may join the group
        self.fetching = fetching  # records may be fetched
        self.active = active  # False once the call no longer waits

    def wait_ended(self) -> None:
        """Mark that the call no longer waits."""
        self.active = False


class ApplicationEvents:
    """The queue of events for the network thread."""

    def __init__(self, metrics: Metrics) -> None:
        self._queue: deque[tuple[ApplicationEvent, float]] = deque()
        self._waited = metrics.sensor(GROUP, QUEUED)
        self._processed = metrics.sensor(GROUP, PROCESSED)
        name = metrics.name("application-event-queue-size", GROUP, "Events of the caller's thread that wait")
        metrics.gauge(name, lambda _now: float(len(self._queue)))

    def put(self, event: ApplicationEvent, now: float) -> None:
        """Add an event. Does not wake the network thread."""
        self._queue.append((event, now))

    def drain(self, now: float) -> Iterator[ApplicationEvent]:
        """Remove and yield the queued events."""
        while self._queue:
            event, queued_at = self._queue.popleft()
            self._waited.record(max(0.0, now - queued_at), now)
            yield event

    def processed(self, took_ms: float, now: float) -> None:
        """Record how long (ms) it took to process the events that `drain` has yielded."""
        self._processed.record(took_ms, now)


class Signal(SignalState):
    """Notifies the calling thread that something has changed since its last wait.

    It is a lock that `notify` releases and `wait` acquires (`SignalState`). It is not a SimpleQueue, because before
    CPython 3.13, `SimpleQueue.get(timeout)` waits without limit after a signal that arrives at the end of the timeout.
    """

    def __init__(self, metrics: Metrics, clock: Clock, lock: Lock, max_wait_ms: float = MAX_WAIT_MS) -> None:
        super().__init__(clock, lock, min(max_wait_ms, MAX_WAIT_MS), metrics.sensor(GROUP, BACKGROUND))
        name = metrics.name("background-event-queue-size", GROUP, "Changes that the caller's thread has not seen")
        metrics.gauge(name, lambda _now: float(self.is_set))
