"""Parallel processing: handlers process records of a consumer in threads, processes or coroutines, with safe commits.

An offset is committed only when the records below it are finished. The metadata of the commit say which records beyond
it are finished, too, so that a restart does not repeat them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, overload

from kconsumer.consumer import Consumer
from kconsumer.consumer_base import ConsumerBase
from kconsumer.errors import ConfigError
from kconsumer.parallel.processor import Processor
from kconsumer.parallel.runs import stop
from kconsumer.parallel.settings import (
    DEFAULT_RETRY,
    DeadLetters,
    ExecutorName,
    Handler,
    Order,
    Retry,
    Revocation,
    Summary,
)

if TYPE_CHECKING:
    from kconsumer.aio import AsyncConsumer
    from kconsumer.parallel.async_processor import AsyncProcessor
    from kconsumer.parallel.share_processor import ShareProcessor
    from kconsumer.share.consumer import ShareConsumer

__all__ = ["AsyncProcessor", "Processor", "Retry", "ShareProcessor", "Summary", "process", "stop"]


@overload
def process(
    consumer: AsyncConsumer,
    handler: Handler,
    *,
    workers: int = 8,
    order: Order = "partition",
    executor: Literal["asyncio"],
    max_in_flight: int = 1000,
    retry: Retry | None = DEFAULT_RETRY,
    on_failure: Literal["stop", "skip"] | DeadLetters = "stop",
    on_revoke: Revocation = "drain",
    drain_timeout_s: float = 20.0,
    commit_interval_s: float = 1.0,
) -> Coroutine[Any, Any, Summary]: ...


@overload
def process(
    consumer: Consumer | ShareConsumer,
    handler: Handler,
    *,
    workers: int = 8,
    order: Order = "partition",
    executor: ExecutorName = "threads",
    max_in_flight: int = 1000,
    retry: Retry | None = DEFAULT_RETRY,
    on_failure: Literal["stop", "skip"] | DeadLetters = "stop",
    on_revoke: Revocation = "drain",
    drain_timeout_s: float = 20.0,
    commit_interval_s: float = 1.0,
) -> Summary: ...


def process(
    consumer: Consumer | AsyncConsumer | ShareConsumer,
    handler: Handler,
    *,
    workers: int = 8,
    order: Order = "partition",
    executor: ExecutorName = "threads",
    max_in_flight: int = 1000,
    retry: Retry | None = DEFAULT_RETRY,
    on_failure: Literal["stop", "skip"] | DeadLetters = "stop",
    on_revoke: Revocation = "drain",
    drain_timeout_s: float = 20.0,
    commit_interval_s: float = 1.0,
) -> Summary | Coroutine[Any, Any, Summary]:
    """Call `handler(record)` for each record of the consumer, in up to `workers` threads, processes or coroutines.

    The consumer must be subscribed, or have partitions assigned, have a group, and must not auto-commit. It is used by
    this call alone, on the calling thread. The call ends after `stop()`, `Processor.stop()` or `consumer.wakeup()`,
    after SIGTERM or SIGINT if it runs on the main thread and the signal has its default handler, and if no record
    arrives for `consumer_timeout_ms`. Handlers that run are then waited for, and their records are committed. The
    consumer stays open. Its positions are those of the first records that are not finished.

    With an AsyncConsumer, the result must be awaited, `executor` must be "asyncio", and handlers run in the event loop
    of the caller. With a ShareConsumer, which needs `share_acknowledgement_mode="explicit"`, `order` must be "none". A
    record is accepted when its handler has returned, rejected after the last attempt, and released if on_failure="stop"
    ends the call. Locks of records are renewed while handlers run. It has no partitions to give up and no offsets, and
    polls return `max_poll_records` records at most, in place of `max_in_flight`.

    - `order`: which records are never processed at the same time, but in the order of their offsets: those of a
      partition, those of a key (within a partition; a record without key has no order), or none.
    - `executor`: "threads"; "processes", for which handler and records must be picklable; or "asyncio", for which the
      handler is a coroutine function. It runs in an event loop with a thread of its own.
    - `max_in_flight`: the number of records that are taken from the consumer and not finished. No more are polled.
    - `retry`: how often a record is tried whose handler raises. Only the records that wait for it by `order` wait. None
      is one attempt.
    - `on_failure`: what follows the last attempt. "stop" ends the call, which raises the error; the record is not
      committed. "skip" and a callable count the record as finished. The callable gets the record and the error on the
      thread of the handler. What it raises ends the call. An error that is not an Exception, such as SystemExit, always
      ends the call. If a deserializer refuses a record, a callable gets the bytes and a RecordDeserializationError.
    - `on_revoke`: before partitions are revoked, "drain" waits for the handlers that process their records, at most
      `drain_timeout_s`, and "abandon" does not. Then what is finished is committed. Records that were not started are
      dropped in either case; the next owner processes them. Lost partitions are abandoned without a commit.
    - `drain_timeout_s`: how long handlers are waited for, at the end of the call, too.
    - `commit_interval_s`: how often offsets are committed.

    Returns a Summary. Raises ConfigError or TypeError for arguments that are not possible, StateError if another call
    uses the consumer, the error of a handler, and the errors of `Consumer.poll` and `Consumer.commit`.
    """
    arguments: dict[str, Any] = {
        "workers": workers,
        "order": order,
        "max_in_flight": max_in_flight,
        "retry": retry,
        "on_failure": on_failure,
        "on_revoke": on_revoke,
        "drain_timeout_s": drain_timeout_s,
        "commit_interval_s": commit_interval_s,
    }
    if isinstance(consumer, ConsumerBase) and not isinstance(consumer, Consumer):
        from kconsumer.parallel.async_processor import AsyncProcessor  # imported when used, as `asyncio`

        if executor != "asyncio":
            raise ConfigError("with an AsyncConsumer, handlers run in its event loop: use executor='asyncio'")
        return AsyncProcessor(consumer, handler, **arguments).run()
    if any(base.__module__.startswith("kconsumer.share") for base in type(consumer).__mro__):
        from kconsumer.parallel.share_processor import ShareProcessor  # imported when used

        return ShareProcessor(consumer, handler, executor=executor, **arguments).run()
    return Processor(consumer, handler, executor=executor, **arguments).run()


def __getattr__(name: str) -> Any:
    if name == "AsyncProcessor":
        from kconsumer.parallel.async_processor import AsyncProcessor

        return AsyncProcessor
    if name == "ShareProcessor":
        from kconsumer.parallel.share_processor import ShareProcessor

        return ShareProcessor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
