"""Records what each manager waits for, since when, and the last error. Logs a warning while a wait lasts too long.

A manager has one `Progress` for each thing without which the consumer cannot continue, such as the coordinator, and
reports requests, failures and success to it. `ProgressMonitor` is polled with the managers. It decides which waits are
logged, and how often. `repr(consumer)` and `consumer.status()` show the same texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kconsumer._common.deferred_calls import get_logger
from kconsumer._internal.managers import FOREVER, PollResult
from kconsumer.errors import BrokerError, KafkaError

WARNING_AFTER_MS = 8_000.0  # a warning follows within 10 s, which includes the backoff and a wait for the next poll
WARNING_INTERVAL_MS = 60_000.0  # a warning with the same cause is repeated at most once in this time
MIN_FAILURES = 3  # one or two failures are normal, for example when the coordinator moves
RECHECK_MS = 50.0

_log = get_logger("kconsumer.progress")


class WaitStatus(NamedTuple):
    """What a manager waits for, as `consumer.status()` shows it."""

    subject: str  # whose wait it is, such as "group 'orders'"
    waiting_for: str  # such as "the coordinator"
    since: float  # ms of the consumer's clock: when the first request was sent, or when the first one failed
    failures: int  # the failed attempts since then
    last_error: KafkaError | None
    hint: str = ""  # what the reader can change; empty if nothing is known

    def describe(self, now: float) -> str:
        """Returns one line with the duration at `now` (ms), the last error and the hint."""
        waiting = f"{self.subject}: waiting for {self.waiting_for} for {max(0.0, now - self.since) / 1000:.0f} s"
        if self.last_error is None:
            return f"{waiting}: no response yet" + (f"; {self.hint}" if self.hint else "")
        return f"{waiting}: {self.last_error}" + (f"; {self.hint}" if self.hint else "")


class Progress:
    """The progress of one manager: whether it waits, for what, since when, and why.

    A wait begins with `begin`, `requested` or `failed`, and ends with `done`. While `after` waits, this wait is not
    logged, because that one is its cause: nothing can be sent to a coordinator that is unknown.
    """

    __slots__ = ("_after", "_hints", "_quiet", "_sent_at", "failures", "last_error", "since", "subject", "waiting_for")

    def __init__(
        self, subject: str, waiting_for: str, hints: Mapping[int, str] | None = None, after: Progress | None = None
    ) -> None:
        """Create the progress of a manager. `hints` maps error codes to advice; code 0 is for a missing response."""
        self.subject = subject
        self.waiting_for = waiting_for
        self._hints = hints or {}
        self._after = after
        self.done()

    def done(self) -> None:
        """End the wait, because the manager has made progress or needs nothing any more."""
        self.since: float | None = None  # ms; None: nothing is waited for
        self.failures = 0
        self.last_error: KafkaError | None = None
        self._sent_at: float | None = None  # when the request in flight was sent (ms)
        self._quiet = False

    def begin(self, now: float) -> None:
        """Start the wait at `now` (ms), unless it has started."""
        self._quiet = False
        if self.since is None:
            self.since = now

    def requested(self, now: float, *, blocks: bool = True) -> None:
        """Record that a request was sent at `now` (ms). Starts the wait.

        If the consumer can continue without the response, `blocks` is False, and a missing response is not logged.
        """
        self.begin(now)
        self._sent_at = now if blocks else None

    def responded(self) -> None:
        """Record a response without an error that does not end the wait."""
        self._sent_at = None

    def succeeded(self) -> None:
        """End the wait, unless attempts have failed. Then the success must last, which a later `done` confirms.

        Until then the wait is not logged. If the next attempt fails, the wait continues. So a member that is removed
        from the group after each join is reported.
        """
        if self.failures:
            self._sent_at, self._quiet = None, True
        else:
            self.done()

    def failed(self, error: KafkaError, now: float) -> None:
        """Record that an attempt has failed at `now` (ms). Starts the wait."""
        self.begin(now)
        self._sent_at = None
        self.failures += 1
        self.last_error = error

    @property
    def warning_due(self) -> float:
        """When a warning is due (ms): after several failures, or if a request has no response. Else FOREVER."""
        if self.since is None or self._quiet or (self._after is not None and self._after.waits):
            return FOREVER
        if self.failures >= MIN_FAILURES:
            return self.since + WARNING_AFTER_MS
        return FOREVER if self._sent_at is None else self._sent_at + WARNING_AFTER_MS

    @property
    def waits(self) -> bool:
        """True while the manager waits."""
        return self.since is not None and not self._quiet

    @property
    def status(self) -> WaitStatus | None:
        """The wait, or None if the manager does not wait."""
        if self.since is None or self._quiet:
            return None
        code = 0 if self.last_error is None else getattr(self.last_error, "code", None)
        hint = "" if code is None else self._hints.get(code, "")
        return WaitStatus(self.subject, self.waiting_for, self.since, self.failures, self.last_error, hint)

    @property
    def cause(self) -> str:
        """The cause of the wait: the name of the error code, or else the type of the error. Empty without an error."""
        if isinstance(self.last_error, BrokerError):
            return self.last_error.name
        return "" if self.last_error is None else type(self.last_error).__name__


class ProgressMonitor:
    """Logs the waits of all managers of one consumer that last too long."""

    def __init__(self, watched: Iterable[Progress] = ()) -> None:
        self._watched = list(watched)
        self._warned: dict[tuple[Progress, str], float] = {}  # when each cause was logged last (ms)
        self._reported: dict[Progress, float] = {}  # logged waits that have not ended, and when they began
        self._overdue: dict[Progress, float | None] = {}  # when the waits began that an earlier check has found due

    def watch(self, *progress: Progress) -> None:
        """Add the progress of managers, the causes of other waits first."""
        self._watched.extend(progress)

    def waits(self) -> list[WaitStatus]:
        """Returns the current waits, the causes of others first."""
        return [status for progress in self._watched if (status := progress.status) is not None]

    def poll(self, now: float) -> PollResult:
        """Log the warnings that are due at `now` (ms). Returns no requests, and the time until the next warning."""
        wait_ms = FOREVER
        for progress in self._watched:
            if progress.since is not None or progress in self._reported:
                wait_ms = min(wait_ms, self._check(progress, now))
        return PollResult(wait_ms=wait_ms)

    def _check(self, progress: Progress, now: float) -> float:
        if progress in self._reported and progress.since != self._reported[progress]:
            self._log_end(progress, now)
        due = progress.warning_due
        if now < due:
            return due - now
        key = progress, progress.cause
        due = self._warned.get(key, -FOREVER) + WARNING_INTERVAL_MS
        if now < due:
            return due - now
        # The first check may follow a long time without any, while the application processed records. Responses that
        # have arrived meanwhile are read before the second check.
        if self._overdue.get(progress) != progress.since:
            self._overdue[progress] = progress.since
            return RECHECK_MS
        if (status := progress.status) is not None:
            self._warned[key], self._reported[progress] = now, status.since
            _log.warning("%s", status.describe(now))
        return WARNING_INTERVAL_MS

    def _log_end(self, progress: Progress, now: float) -> None:
        since = self._reported.pop(progress)
        seconds = (now - since) / 1000
        _log.info("%s: no longer waiting for %s, after %.0f s", progress.subject, progress.waiting_for, seconds)
