"""Parallel processing: handlers process records of a consumer in threads, processes or coroutines, with safe commits.

An offset is committed only when the records below it are finished. The metadata of the commit say which records beyond
it are finished, too, so that a restart does not repeat them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from kconsumer._client.consumer_base import ConsumerBase
from kconsumer.consumer import Consumer
from kconsumer.errors import ConfigError
from kconsumer.parallel.batches import Batch, PartialBatchError
from kconsumer.parallel.dead_letters import DeadLetters
from kconsumer.parallel.processor import Processor
from kconsumer.parallel.retry_topics import RetryTopics
from kconsumer.parallel.runs import stop
from kconsumer.parallel.settings import Attempt, CircuitBreaker, ExecutorName, Handler, Options, Retry, Summary

if TYPE_CHECKING:
    from kconsumer.aio import AsyncConsumer, AsyncShareConsumer
    from kconsumer.parallel.async_processor import AsyncProcessor
    from kconsumer.parallel.async_share_processor import AsyncShareProcessor
    from kconsumer.parallel.share_processor import ShareProcessor
    from kconsumer.share.consumer import ShareConsumer

__all__ = [
    "AsyncProcessor",
    "AsyncShareProcessor",
    "Attempt",
    "Batch",
    "CircuitBreaker",
    "DeadLetters",
    "PartialBatchError",
    "Processor",
    "Retry",
    "RetryTopics",
    "ShareProcessor",
    "Summary",
    "process",
    "stop",
]


@overload
def process(
    consumer: AsyncConsumer | AsyncShareConsumer,
    handler: Handler,
    *,
    executor: Literal["asyncio"],
    **options: Unpack[Options],
) -> Coroutine[Any, Any, Summary]: ...


@overload
def process(
    consumer: Consumer | ShareConsumer,
    handler: Handler,
    *,
    executor: ExecutorName = "threads",
    **options: Unpack[Options],
) -> Summary: ...


def process(
    consumer: Consumer | AsyncConsumer | ShareConsumer | AsyncShareConsumer,
    handler: Handler,
    *,
    executor: ExecutorName = "threads",
    **options: Unpack[Options],
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

    - `workers`: how many handlers run at a time (8).
    - `order`: which records are never processed at the same time, but in the order of their offsets: those of a
      partition ("partition"), those of a key ("key"; within a partition; a record without key has no order), or none
      ("none"). A callable returns what takes the place of the key of a record; None is no order.
    - `executor`: "threads"; "processes", for which handler and records must be picklable; or "asyncio", for which the
      handler is a coroutine function. It runs in an event loop with a thread of its own.
    - `max_in_flight`: the number of records that are processed, or could be if there were more workers (1000). Records
      that wait for a retry or for an earlier record do not count. No more are polled.
    - `retry`: how often a record is tried whose handler raises (`Retry()`). Only the records that wait for it by
      `order` wait. None is one attempt. A handler that takes two arguments gets the Attempt as the second one.
    - `handler_timeout_s`: how long an attempt may take. It then fails with HandlerTimeoutError. A coroutine is
      cancelled and a process killed. A thread cannot be ended: its result no longer counts, and there is no further
      attempt, because it may still use the record. None is no limit.
    - `batch`: with a Batch, the handler gets a list of records, and the list of their attempts if it takes two
      arguments. The records of an order may be in one batch, but not in two at a time. The handler may raise a
      PartialBatchError. A batch that fails as a whole is tried again, the last time with each record alone. Up to twice
      `workers` times `max_records` records are in flight, if that is more than `max_in_flight`.
    - `rate_limit`: how many attempts are begun per second. `circuit_breaker`: a CircuitBreaker. None are no limits.
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
    kinds = {
        base.__module__.split(".")[1] for base in type(consumer).__mro__ if base.__module__.startswith("kconsumer.")
    }
    if {"share", "aio"} <= kinds:
        from kconsumer.parallel.async_share_processor import AsyncShareProcessor  # imported when used

        if executor != "asyncio":
            raise ConfigError("with an AsyncShareConsumer, handlers run in its event loop: use executor='asyncio'")
        return AsyncShareProcessor(consumer, handler, **options).run()
    if isinstance(consumer, ConsumerBase) and not isinstance(consumer, Consumer):
        from kconsumer.parallel.async_processor import AsyncProcessor  # imported when used, as `asyncio`

        if executor != "asyncio":
            raise ConfigError("with an AsyncConsumer, handlers run in its event loop: use executor='asyncio'")
        return AsyncProcessor(consumer, handler, **options).run()
    if "share" in kinds:
        from kconsumer.parallel.share_processor import ShareProcessor  # imported when used

        return ShareProcessor(consumer, handler, executor=executor, **options).run()
    return Processor(consumer, handler, executor=executor, **options).run()


def __getattr__(name: str) -> Any:
    if name == "AsyncProcessor":
        from kconsumer.parallel.async_processor import AsyncProcessor

        return AsyncProcessor
    if name == "AsyncShareProcessor":
        from kconsumer.parallel.async_share_processor import AsyncShareProcessor

        return AsyncShareProcessor
    if name == "ShareProcessor":
        from kconsumer.parallel.share_processor import ShareProcessor

        return ShareProcessor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
