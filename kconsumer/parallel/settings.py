"""The arguments of a run, checked, and what a run reports at its end."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypedDict

from kconsumer._core.decode import ConsumerRecord
from kconsumer.errors import ConfigError
from kconsumer.parallel.batches import Batch
from kconsumer.parallel.scheduler import ORDERS
from kconsumer.types import TopicPartition

WAITING_PER_RUNNABLE = 10  # the records of a hot key that may wait, in terms of `max_in_flight`
EXECUTORS = ("threads", "processes", "asyncio")
ON_REVOKE = ("drain", "abandon")
ON_FAILURE = ("stop", "skip")

Order = Literal["partition", "key", "none"] | Callable[[ConsumerRecord], Hashable]
ExecutorName = Literal["threads", "processes", "asyncio"]
Revocation = Literal["drain", "abandon"]
Handler = Callable[..., Any]  # (record), or (record, attempt); with a batch a list of each
OnFailure = Callable[..., Any]  # (record, error), or (record, error, attempt)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a record whose handler raises is tried, and how long its shard waits before each further attempt.

    The wait is `backoff_s` before the second attempt, and twice as long before each further one, up to `max_backoff_s`.
    If `backoff_s` is a callable, it gets the number of failed attempts, and if it takes two or three arguments the
    error and the record, and returns seconds. Errors of the classes `never`, and if `on` is not empty those of no class
    in it, are not tried again. Raises ConfigError for a value that is not possible.
    """

    attempts: int = 3  # in all; 1: no retries
    backoff_s: float | Callable[..., float] = 0.1
    max_backoff_s: float = 30.0
    on: tuple[type[BaseException], ...] = ()
    never: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigError(f"Retry: attempts must be an integer of at least 1, not {self.attempts!r}")
        for name, value in (("backoff_s", self.backoff_s), ("max_backoff_s", self.max_backoff_s)):
            if name == "max_backoff_s" or not callable(value):
                _check_seconds(f"Retry: {name}", value)
        for name in ("on", "never"):
            classes = getattr(self, name)
            classes = classes if isinstance(classes, tuple) else (classes,)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in classes):
                raise ConfigError(f"Retry: {name} must be a tuple of exception classes, not {classes!r}")
            object.__setattr__(self, name, classes)

    def retries(self, error: BaseException | None) -> bool:
        """Returns True if the class of the error allows further attempts."""
        return not isinstance(error, self.never) and (not self.on or isinstance(error, self.on))

    def delay_ms(
        self, failures: int, error: BaseException | None = None, record: ConsumerRecord | None = None
    ) -> float | None:
        """Returns the wait (ms) after this number of failed attempts, or None if there is no further attempt."""
        if failures >= self.attempts or not self.retries(error):
            return None
        if callable(self.backoff_s):
            arguments = (failures, error, record)[: positional_arguments(self.backoff_s, 3)]
            seconds = self.backoff_s(*arguments)
            _check_seconds("Retry: the result of backoff_s", seconds)
            return 1000.0 * seconds
        exponent = min(failures - 1, 64)  # 2.0 ** 1024 would overflow
        return 1000.0 * min(self.backoff_s * 2.0**exponent, self.max_backoff_s)


class Attempt(int):
    """The number of an attempt, from 1 on. A handler that takes two arguments gets it as the second one."""

    remaining: int  # attempts that follow if this one fails

    def __new__(cls, number: int, attempts: int) -> Self:
        """Returns attempt `number` of `attempts`."""
        attempt = super().__new__(cls, number)
        attempt.remaining = attempts - number
        return attempt

    def __reduce__(self) -> tuple[Any, ...]:
        return Attempt, (int(self), int(self) + self.remaining)


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Starts no records for `pause_s` after this number of failed attempts in a row, and then tries one record.

    Meanwhile no records are read, and the consumer remains a member of its group. If the one record fails, another
    pause follows. Raises ConfigError for a number that is out of range.
    """

    failures: int = 5
    pause_s: float = 30.0

    def __post_init__(self) -> None:
        if not isinstance(self.failures, int) or self.failures < 1:
            raise ConfigError(f"CircuitBreaker: failures must be an integer of at least 1, not {self.failures!r}")
        _check_seconds("CircuitBreaker: pause_s", self.pause_s)


def _check_seconds(name: str, value: object) -> None:
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be a number of seconds of at least 0, not {value!r}")


def positional_arguments(function: Callable[..., Any], most: int) -> int:
    """Returns how many positional arguments, at least 1 and at most `most`, a callable requires."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable of C without a signature
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = sum(1 for item in parameters if item.kind in kinds and item.default is inspect.Parameter.empty)
    return max(1, min(most, required))


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


class Options(TypedDict, total=False):
    """The optional arguments of `process`, except `executor`. Their defaults are those of `Settings`."""

    workers: int
    order: Order
    max_in_flight: int
    retry: Retry | None
    on_failure: Literal["stop", "skip"] | OnFailure
    on_revoke: Revocation
    drain_timeout_s: float
    commit_interval_s: float
    handler_timeout_s: float | None
    rate_limit: float | None
    circuit_breaker: CircuitBreaker | None
    batch: Batch | None


class RunOptions(Options, total=False):
    """The optional arguments of `process`."""

    executor: ExecutorName


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of a run. Raises ConfigError for an argument that is not possible."""

    workers: int = 8
    order: str | Callable[[ConsumerRecord], Hashable] = "partition"
    executor: str = "threads"
    max_in_flight: int = 1000
    retry: Retry = DEFAULT_RETRY
    on_failure: str | OnFailure = "stop"
    on_revoke: str = "drain"
    drain_timeout_s: float = 20.0
    commit_interval_s: float = 1.0
    handler_timeout_s: float | None = None
    rate_limit: float | None = None
    circuit_breaker: CircuitBreaker | None = None
    batch: Batch | None = None

    def __post_init__(self) -> None:
        if self.retry is None:
            object.__setattr__(self, "retry", Retry(attempts=1))
        for name, value in (("workers", self.workers), ("max_in_flight", self.max_in_flight)):
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be an integer of at least 1, not {value!r}")
        for name, chosen, known in (
            ("order", "none" if callable(self.order) else self.order, tuple(ORDERS)),
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
        _check_seconds("drain_timeout_s", self.drain_timeout_s)
        _check_seconds("commit_interval_s", self.commit_interval_s)
        for name, number in (("handler_timeout_s", self.handler_timeout_s), ("rate_limit", self.rate_limit)):
            if number is not None and not (isinstance(number, int | float) and 0 < number < math.inf):
                raise ConfigError(f"{name} must be a number above 0, or None, not {number!r}")
        if self.circuit_breaker is not None and not isinstance(self.circuit_breaker, CircuitBreaker):
            raise ConfigError(f"circuit_breaker must be a CircuitBreaker, not {self.circuit_breaker!r}")
        if self.batch is not None:
            if not isinstance(self.batch, Batch):
                raise ConfigError(f"batch must be a Batch, such as Batch(max_records=100), not {self.batch!r}")
            object.__setattr__(self, "max_in_flight", max(self.max_in_flight, 2 * self.max_running))

    @property
    def max_running(self) -> int:
        """The number of records that handlers process at a time."""
        return self.workers * (1 if self.batch is None else self.batch.max_records)

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
