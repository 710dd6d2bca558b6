"""Communication between the calling thread and the network thread, with its metrics (KIP-1068).

The calling thread puts application events into a queue, and the network thread takes them. In the other direction, the
network thread sets a signal when state that the engine's lock guards has changed. Examples are records, rebalance
callbacks, errors and finished promises. Adding an event and setting the signal never block on a lock, so signal
handlers and finalizers may do both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

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

    def wait_began(self) -> None:
        """Mark that the call waits again, after `wait_ended`. A new event is marked already."""
        self.active = True

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


class Signal:
    """Notifies the calling thread that something has changed since its last wait.

    It is a lock that `notify` releases and `wait` acquires. It is not a SimpleQueue, because before CPython 3.13,
    `SimpleQueue.get(timeout)` waits without limit after a signal that arrives at the end of the timeout.
    """

    def __init__(self, metrics: Metrics, clock: Clock, lock: Lock, max_wait_ms: float = MAX_WAIT_MS) -> None:
        self._clock = clock
        self._max_wait_ms = min(max_wait_ms, MAX_WAIT_MS)  # the longest single wait, see `Environment`
        self._lock = lock
        self._lock.acquire()
        self._given_at = 0.0
        self._waited = metrics.sensor(GROUP, BACKGROUND)
        name = metrics.name("background-event-queue-size", GROUP, "Changes that the caller's thread has not seen")
        metrics.gauge(name, lambda _now: float(self.is_set))

    def notify(self) -> None:
        """End the current `wait`, or the next one if none is running. Any thread or signal handler may call this."""
        if self._lock.locked():
            self._given_at = self._clock.now()
            try:  # not `suppress`, which costs four calls for each response
                self._lock.release()
            except RuntimeError:
                return  # another thread has released it first

    @property
    def is_set(self) -> bool:
        """True if `notify` was called since the last `wait`."""
        return not self._lock.locked()

    def wait(self, timeout_ms: float) -> bool:
        """Wait until `notify` is called. Returns True then, and False after `timeout_ms`.

        If `notify` was called since the last `wait`, returns True at once.
        """
        left = timeout_ms
        while not self._lock.acquire(left > 0, min(left, self._max_wait_ms) / 1000 if left > 0 else -1):
            left -= self._max_wait_ms
            if left <= 0:
                return False
        now = self._clock.now()
        self._waited.record(max(0.0, now - self._given_at), now)
        return True
