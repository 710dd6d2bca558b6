"""RangeClientBase: what the two classes named RangeClient share: options, and operations that look up and commit.

Decides which options apply to ranges. `kconsumer.ranges` blocks, and `kconsumer.aio.ranges` awaits.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kconsumer._client.client_base import Timeout
from kconsumer._client.consumer_base import ConsumerBase, Offsets, P
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import CommitFailedError, ConfigError
from kconsumer.types import PartitionInfo

if TYPE_CHECKING:
    from kconsumer.engine.waiting import Operation

log = logging.getLogger(__name__)

RESERVED_OPTIONS = ("auto_offset_reset", "group_id", "group_instance_id", "enable_auto_commit", "consumer_timeout_ms")
# While the last records of a range are decoded, a fetch of the next offsets is in flight. If these are beyond the end
# of the log, the broker delays the response for this time (ms), and the next range must wait for the response.
FETCH_MAX_WAIT_MS = 20
CLOSE_S = 5.0


class TopicListing(NamedTuple):
    """A topic and its partitions, as the metadata of the cluster describe them."""

    name: str
    internal: bool  #: whether Kafka created the topic for its own use, such as `__consumer_offsets`
    partitions: tuple[PartitionInfo, ...]


class RangeClientBase(ABC):
    """The part of a range client that does not depend on how its methods wait."""

    _reading: ConsumerBase | None  # the consumer that reads ranges, if it was created

    def _set_up(self, bootstrap_servers: str | Sequence[str], isolation_level: str, options: Mapping[str, Any]) -> None:
        given = {name.replace(".", "_"): value for name, value in options.items()}
        for name in RESERVED_OPTIONS:
            if name in given:
                raise ConfigError(f"{name} is not an option of ranges: they are read without a group, between offsets")
        if given.get("record_filter") is not None:
            raise ConfigError("record_filter is not an option of ranges, which return every record between offsets")
        self.options: dict[str, Any] = {
            "allow_auto_create_topics": False,
            "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
            **given,
            "bootstrap_servers": bootstrap_servers,
            "isolation_level": isolation_level,
        }
        self.config = ConsumerConfig(**self.options)
        self.read_committed = self.config.read_committed
        self.timeout_ms = float(self.config.default_api_timeout_ms)

    @property
    @abstractmethod
    def consumer(self) -> ConsumerBase:
        """The consumer that reads ranges and looks up offsets. It is created at the first use."""

    def wakeup(self) -> None:
        """Make the running call that waits raise WakeupError. If none is running, the next one raises it.

        Any thread may call this. Has no effect while the client is not connected.
        """
        consumer = self._reading
        if consumer is not None:
            consumer.wakeup()

    def committer_options(self, group_id: str) -> dict[str, Any]:
        return {**self.options, "group_id": group_id, "enable_auto_commit": False, "auto_offset_reset": "none"}


def options_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a mapping under their snake_case names. Raises ConfigError without bootstrap_servers."""
    options = {name.replace(".", "_"): value for name, value in mapping.items()}
    if "bootstrap_servers" not in options:
        raise ConfigError('bootstrap_servers is required, for example bootstrap_servers="localhost:9092"')
    return options


def topic_names(names: Iterable[str] | None) -> list[str] | None:
    """Returns the names as a list, or None for all topics. Raises TypeError for a single string."""
    if isinstance(names, str):
        raise TypeError(f"topics() takes a list of names, not one string; write topics([{names!r}])")
    return None if names is None else list(names)


def listed_topics(
    consumer: ConsumerBase, names: list[str] | None, timeout: Timeout = None
) -> Operation[dict[str, TopicListing]]:
    """Request metadata of the topics with these names (None: all topics). Returns the topics that exist."""
    found = yield from consumer._engine.operations.topics(names, consumer._timer(timeout), fresh=True)
    return {name: TopicListing(name, name in found.internal, rows) for name, rows in found.items()}


def commit_for(consumer: ConsumerBase, group_id: str, offsets: Offsets[P], timeout: Timeout) -> Operation[None]:
    """Commit offsets for the group of a consumer that has not joined it."""
    try:
        yield from consumer._commit(offsets, timeout)
    except CommitFailedError as error:
        raise CommitFailedError(
            f"group {group_id!r} has members, and only they may commit its offsets; stop them, or commit to another"
            " group"
        ) from error


def abandon(consumer: ConsumerBase) -> None:
    """Close the sockets and end the threads of an interrupted consumer. Errors are logged and not raised."""
    consumer._guard.closed = True
    try:
        consumer._engine.abandon()
    except Exception:
        log.warning("an interrupted consumer could not be closed", exc_info=True)
