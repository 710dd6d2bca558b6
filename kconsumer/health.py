"""Whether a consumer makes progress, and the reasons if it does not: for `consumer.health()` and for probes.

`serve` and `write` let Kubernetes, or another program, ask a consumer, or a run of `kconsumer.parallel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kconsumer._internal.status import Health
from kconsumer.types import PartitionCondition as C

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping

    from kconsumer._internal.health_probes import Checked, HealthFile, HealthServer
    from kconsumer._internal.status import ConsumerStatus
    from kconsumer.types import TopicPartition

__all__ = ["Health", "serve", "write"]

FETCHED = frozenset({C.REVOKING, C.PAUSED, C.BUFFERED, C.IN_FLIGHT, C.READY, C.BROKER_BLOCKED, C.BUFFER_FULL})
"""The states of a partition that is fetched, that waits for `poll`, or that another member takes over."""
INTERRUPTED = frozenset({C.AWAIT_VALIDATION, C.NO_LEADER, C.BACKOFF})
"""A partition that was fetched before is in these states while its leader moves: if not for long, it is healthy."""
INTERRUPTION_S = 2.0
FATAL = "fatal"


class Facts(NamedTuple):
    """What the health of a consumer depends on, at one moment."""

    status: ConsumerStatus
    subscribed: bool  # to topics, or partitions were assigned by the user
    joins: bool  # a group assigns the partitions
    paused: Collection[TopicPartition]
    polled: bool
    idle_s: float  # since the last poll began, or since the consumer was created
    in_time: bool  # a poll runs, or has ended less than `max_poll_interval_s` ago
    max_poll_interval_s: float
    lag_seconds: Mapping[TopicPartition, float]  # of the partitions for which it is known
    lost_thread: bool  # the thread that sends heartbeats has ended


def check_limits(max_lag: int | None, max_lag_seconds: float | None) -> None:
    """Raise TypeError or ValueError for a limit that is not a number, or below 0."""
    if max_lag is not None and not hasattr(max_lag, "__index__"):
        raise TypeError(f"max_lag must be an int, not {max_lag!r}")
    if max_lag_seconds is not None and not isinstance(max_lag_seconds, int | float):
        raise TypeError(f"max_lag_seconds must be a number of seconds, not {max_lag_seconds!r}")
    for name, limit in (("max_lag", max_lag), ("max_lag_seconds", max_lag_seconds)):
        if limit is not None and not limit >= 0:
            raise ValueError(f"{name} must be at least 0, not {limit}")


def verdict(facts: Facts, max_lag: int | None, max_lag_seconds: float | None) -> Health:
    """Returns the health that these facts show, if no partition may have a lag above the limits (records, s)."""
    fatal = [reason for rule in FATAL_RULES for reason in rule(facts)]
    reasons = (*fatal, *(reason for rule in RULES for reason in rule(facts)), *_lags(facts, max_lag, max_lag_seconds))
    return Health(not reasons, reasons, live=not fatal)


def _late(facts: Facts) -> Iterator[str]:
    limit_s = facts.max_poll_interval_s
    if not facts.in_time and facts.idle_s > limit_s:
        yield f"no poll() for {facts.idle_s:.0f} s, more than max_poll_interval_ms ({limit_s:g} s)"


def _thread(facts: Facts) -> Iterator[str]:
    if facts.lost_thread:
        yield "the thread that sends heartbeats has ended"


def _ended(facts: Facts) -> Iterator[str]:
    group = facts.status.group
    if group is not None and group.state == FATAL:
        yield f"an error has ended the membership in the group {group.group_id!r}; a new consumer can join again"


def _never_polled(facts: Facts) -> Iterator[str]:
    if not facts.polled:
        yield "poll() was not called yet"


def _nothing_to_read(facts: Facts) -> Iterator[str]:
    if not facts.subscribed:
        yield "not subscribed to topics, and no partitions are assigned"


def _group(facts: Facts) -> Iterator[str]:
    group = facts.status.group
    if facts.joins and group is not None and group.generation <= 0 and group.state != FATAL:
        waiting = f"; it waits for {group.waiting_for}" if group.waiting_for else ""
        error = f": {group.last_error}" if group.last_error else ""
        yield f"not a member of the group {group.group_id!r}{waiting}{error}"


def _brokers(facts: Facts) -> Iterator[str]:
    connections = facts.status.connections
    error = next((found.last_error for found in connections if found.last_error is not None), None)
    if error is not None and all(connection.state != "ready" for connection in connections):
        yield f"no broker is connected: {error}"


def _partitions(facts: Facts) -> Iterator[str]:
    for tp, partition in facts.status.partitions.items():
        waits_for_user = tp in facts.paused and partition.state is not C.FAILED
        brief = partition.state in INTERRUPTED and partition.position is not None and partition.since < INTERRUPTION_S
        if not (partition.state in FETCHED or waits_for_user or brief):
            yield f"{tp} is not fetched: {partition.reason}"


def _lags(facts: Facts, max_lag: int | None, max_lag_seconds: float | None) -> Iterator[str]:
    for tp, partition in facts.status.partitions.items():
        if max_lag is not None and partition.lag is not None and partition.lag > max_lag:
            yield f"{tp} has a lag of {partition.lag} records, more than {max_lag}"
    for tp, age_s in facts.lag_seconds.items():
        if max_lag_seconds is not None and age_s > max_lag_seconds:
            yield f"{tp} has a lag of {age_s:.0f} s, more than {max_lag_seconds:g} s"


FATAL_RULES: tuple[Callable[[Facts], Iterator[str]], ...] = (_late, _thread, _ended)
RULES: tuple[Callable[[Facts], Iterator[str]], ...] = (_never_polled, _nothing_to_read, _group, _brokers, _partitions)


def serve(
    consumer: Checked,
    port: int,
    host: str = "127.0.0.1",
    *,
    max_lag: int | None = None,
    max_lag_seconds: float | None = None,
) -> HealthServer:
    """Serve the health of a consumer, or of a run, by HTTP on a daemon thread: `/live` and `/ready`.

    Both respond with JSON, `{"ok": …, "reasons": […]}`, and with the status 200 or 503. `/ready` is `health()` with
    these limits; `/live` is `health().live`, which fails only if a restart helps. Port 0 chooses a free one; the
    result has it as `port`. Probes of Kubernetes come from other addresses, and need host="0.0.0.0". Ends with
    `close()` of the result, which is also a context manager. Raises OSError if the port is not free.
    """
    from kconsumer._internal.health_probes import HealthServer  # imported when used

    check_limits(max_lag, max_lag_seconds)
    return HealthServer(consumer, port, host, max_lag, max_lag_seconds)


def write(
    consumer: Checked,
    path: str | os.PathLike[str],
    every_s: float = 5,
    *,
    max_lag: int | None = None,
    max_lag_seconds: float | None = None,
) -> HealthFile:
    """Write the health of a consumer, or of a run, to a file, now and every `every_s` seconds, on a daemon thread.

    The content is JSON: `{"live": …, "ready": …, "reasons": […]}`, of `health()` with these limits. The file is
    replaced as a whole. A probe must also check its age, because a process that hangs does not write. Ends when the
    consumer is closed, and with `close()` of the result. Raises OSError if the file cannot be written now.
    """
    from kconsumer._internal.health_probes import HealthFile  # imported when used

    check_limits(max_lag, max_lag_seconds)
    return HealthFile(consumer, path, every_s, max_lag, max_lag_seconds)
