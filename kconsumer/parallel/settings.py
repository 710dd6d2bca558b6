"""The arguments of a run, checked, and what a run reports at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kconsumer._core.record import ConsumerRecord
from kconsumer.errors import ConfigError
from kconsumer.parallel.scheduler import ORDERS
from kconsumer.types import TopicPartition

WAITING_PER_RUNNABLE = 10  # the records of a hot key that may wait, in terms of `max_in_flight`
EXECUTORS = ("threads", "processes", "asyncio")
ON_REVOKE = ("drain", "abandon")
ON_FAILURE = ("stop", "skip")

Order = Literal["partition", "key", "none"]
ExecutorName = Literal["threads", "processes", "asyncio"]
Revocation = Literal["drain", "abandon"]
Handler = Callable[[ConsumerRecord], Any]
DeadLetters = Callable[[ConsumerRecord, BaseException], Any]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a record whose handler raises is tried, and how long its shard waits before each further attempt.

    The wait is `backoff_s` before the second attempt, and twice as long before each further one, up to `max_backoff_s`.
    Raises ConfigError for a number that is out of range.
    """

    attempts: int = 3  # in all; 1: no retries
    backoff_s: float = 0.1
    max_backoff_s: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigError(f"Retry: attempts must be an integer of at least 1, not {self.attempts!r}")
        for name, value in (("backoff_s", self.backoff_s), ("max_backoff_s", self.max_backoff_s)):
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ConfigError(f"Retry: {name} must be a number of seconds of at least 0, not {value!r}")

    def delay_ms(self, failures: int) -> float | None:
        """Returns the wait (ms) after this number of failed attempts, or None if there is no further attempt."""
        if failures >= self.attempts:
            return None
        exponent = min(failures - 1, 64)  # 2.0 ** 1024 would overflow
        return 1000.0 * min(self.backoff_s * 2.0**exponent, self.max_backoff_s)


DEFAULT_RETRY = Retry()


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did. `Processor.summary()` returns it while the run lasts, too."""

    processed: int = 0  # records whose handler returned
    failed: int = 0  # records that were skipped, or passed to the callable `on_failure`
    retries: int = 0  # attempts that failed and were followed by another one
    restored: int = 0  # records that an earlier run had finished, by the metadata of its commit
    abandoned: int = 0  # records whose handler had not returned when their partition was revoked, or the run ended
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)  # the last committed offset of partitions
    reason: str = ""  # why the run ended: "stop", "wakeup", "idle", or the name of a signal; "" while it lasts


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of a run. Raises ConfigError for an argument that is not possible."""

    workers: int = 8
    order: str = "partition"
    executor: str = "threads"
    max_in_flight: int = 1000
    retry: Retry = field(default_factory=Retry)
    on_failure: str | DeadLetters = "stop"
    on_revoke: str = "drain"
    drain_timeout_s: float = 20.0
    commit_interval_s: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("max_in_flight", self.max_in_flight)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be an integer of at least 1, not {value!r}")
        for name, chosen, known in (
            ("order", self.order, tuple(ORDERS)),
            ("executor", self.executor, EXECUTORS),
            ("on_revoke", self.on_revoke, ON_REVOKE),
        ):
            if chosen not in known:
                raise ConfigError(f"{name} must be one of {', '.join(map(repr, known))}, not {chosen!r}")
        if self.on_failure not in ON_FAILURE and not callable(self.on_failure):
            raise ConfigError(
                "on_failure must be 'stop', 'skip', or a callable that takes a record and an error, not "
                f"{self.on_failure!r}"
            )
        if not isinstance(self.retry, Retry):
            raise ConfigError(f"retry must be a Retry, such as Retry(attempts=3, backoff_s=0.1), not {self.retry!r}")
        for name, seconds in (
            ("drain_timeout_s", self.drain_timeout_s),
            ("commit_interval_s", self.commit_interval_s),
        ):
            if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                raise ConfigError(f"{name} must be a number of seconds of at least 0, not {seconds!r}")

    @property
    def max_waiting(self) -> int:
        """The number of records that may wait behind one record, or of a partition for retries.

        Records of other keys are read meanwhile, so it is larger if a partition has several.
        """
        return self.max_in_flight if self.order == "partition" else WAITING_PER_RUNNABLE * self.max_in_flight

    @property
    def low_water(self) -> int:
        """The number of records that run or can run below which more are polled, after `max_in_flight` was reached.

        Half of the maximum, so that polls return many records at once. If that would leave workers without work, one
        less than the maximum.
        """
        half = self.max_in_flight // 2
        return half if half >= 2 * self.workers else self.max_in_flight - 1
