"""What the driver asks brokers: which partitions there are, where they begin and end, what was written when.

Wraps a `RangeClient`; decides how often a question is tried and what a limit of `offsets.py` stands for. What is read
is decided by the readers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from kconsumer.errors import ConfigError, KafkaError, TimeoutError
from kconsumer.ranges import RangeClient
from kconsumer.spark.offsets import EARLIEST, LATEST, Limit, Named, Specific, Timestamp, must_cover
from kconsumer.spark.options import SourceConfig
from kconsumer.spark.strategy import Assign, Subscribe
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer.ranges import TopicListing

__all__ = ["Admin", "MissingTopicError", "range_client"]

Offsets = dict[TopicPartition, int]
T = TypeVar("T")
log = logging.getLogger(__name__)

COMMIT_S = 10.0
SAMPLE_BYTES = 64 << 10
SAMPLE_ROWS = 200


class MissingTopicError(KafkaError):
    """A subscribed topic does not exist; or not yet, or for a broker that has just started."""

    retriable = True


def range_client(config: SourceConfig) -> RangeClient:
    """A client for what `config` says; nothing is connected yet."""
    return RangeClient(**config.client_options())


class Admin:
    """Questions about the topics of one query. Every question is tried `fetchOffset.numRetries` times."""

    def __init__(self, config: SourceConfig, client: RangeClient | None = None) -> None:
        self._config = config
        self._client = client or range_client(config)
        self._pause = threading.Event()  # never set: waits, and can be told from a clock

    # --- what there is ---------------------------------------------------------------------------------------------

    def partitions(self) -> set[TopicPartition]:
        """The partitions that the query reads, as of now. MissingTopicError for a topic that was named and is not."""
        strategy = self._config.strategy
        if isinstance(strategy, Subscribe):
            names: set[str] | None = set(strategy.topics)
        elif isinstance(strategy, Assign):
            names = {tp.topic for tp in strategy.partitions}
        else:
            names = None
        found = self._try(lambda: self._listed(names))
        counts = {
            name: [info.partition for info in listing.partitions]
            for name, listing in found.items()
            if names is not None or not listing.internal
        }
        return strategy.choose(counts)

    def _listed(self, names: set[str] | None) -> dict[str, TopicListing]:
        """The topics of these names, all of them without; MissingTopicError unless each is there."""
        found = self._client.topics(names)
        missing = sorted((names or set()) - found.keys())
        if missing:
            servers = self._config.kafka["bootstrap.servers"]
            raise MissingTopicError(
                f"UnknownTopicOrPartition: there is no topic {', '.join(missing)} on {servers}, or this user may not"
                " describe it"
            )
        return found

    # --- offsets ---------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where partitions begin."""
        wanted = sorted(partitions)
        return self._try(lambda: self._client.beginning_offsets(wanted)) if wanted else {}

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> Offsets:
        """Where partitions end (with read_committed: their last stable offsets).

        An end below a `known` offset is asked for again, as it may be a broker that is behind (KAFKA-7703); if it
        stays so it is believed.
        """
        wanted, before = sorted(partitions), known or {}
        if not wanted:
            return {}
        for _ in range(max(self._config["fetchOffset.numRetries"], 1)):
            found = self._try(lambda: self._client.end_offsets(wanted))
            if all(end >= before.get(tp, 0) for tp, end in found.items()):
                break
            self._wait()
        return found

    def by_time(self, times: Mapping[TopicPartition, int], *, starting: bool) -> Offsets:
        """The first offsets of these times or later; where there is none what the query's strategy says."""
        found = self._try(lambda: self._client.offsets_for_times(times)) if times else {}
        none = [tp for tp in sorted(times) if found.get(tp) is None]
        if none and starting and self._config.starting_strategy == "error":
            listed = ", ".join(f"{tp.topic}-{tp.partition} and timestamp {times[tp]}" for tp in none)
            raise ConfigError(
                f"No offset matched from request of topic-partition {listed}; a later record may come, or set"
                " startingOffsetsByTimestampStrategy to latest"
            )
        offsets = {tp: at.offset for tp, at in found.items() if at is not None}
        return offsets | self.latest(none)

    def first_at(self, partitions: Iterable[TopicPartition], ms: int) -> Offsets:
        """The first offset of a time or later in each partition that has one."""
        times = dict.fromkeys(partitions, max(ms, 0))
        found = self._try(lambda: self._client.offsets_for_times(times)) if times else {}
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def resolve(self, limit: Limit, partitions: set[TopicPartition], *, starting: bool = True) -> Offsets:
        """The offset that a limit stands for in each partition."""
        asked = self.unbound(limit, partitions, starting=starting)
        return self.bind(asked)

    def unbound(self, limit: Limit, partitions: set[TopicPartition], *, starting: bool) -> Offsets:
        """The same, with EARLIEST and LATEST left as they are. ConfigError unless a limit names all partitions."""
        side = "starting" if starting else "ending"
        if isinstance(limit, Named):
            return dict.fromkeys(partitions, limit.sentinel)
        if isinstance(limit, Specific):
            error = f"KAFKA_{'START' if starting else 'END'}_OFFSET_DOES_NOT_MATCH_ASSIGNED"
            must_cover(limit.offsets, partitions, error, f"{side}Offsets")
            return dict(limit.offsets)
        if isinstance(limit, Timestamp):
            return self.by_time(dict.fromkeys(partitions, limit.ms), starting=starting)
        error = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
        must_cover(limit.ms, partitions, error, f"{side}OffsetsByTimestamp")
        return self.by_time(limit.ms, starting=starting)

    def bind(self, asked: Mapping[TopicPartition, int]) -> Offsets:
        """Offsets for EARLIEST and LATEST."""
        early = self.earliest(tp for tp, at in asked.items() if at == EARLIEST)
        late = self.latest(tp for tp, at in asked.items() if at == LATEST)
        return {**asked, **early, **late}

    def bytes_per_offset(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """About how many bytes of keys and values there are to an offset, by a look at the records from `start` on."""
        found: dict[TopicPartition, float] = {}
        for tp, offset in start.items():
            size = self._try(lambda tp=tp, offset=offset: self._sample(tp, offset))  # type: ignore[misc]
            if size is not None:
                found[tp] = size
        return found

    def _sample(self, tp: TopicPartition, offset: int) -> float | None:
        end = self._client.end_offsets([tp])[tp]
        if offset >= end:
            return None
        with self._client.read_range(
            tp,
            offset,
            end,
            columns=["key", "value"],
            max_rows=SAMPLE_ROWS,
            max_bytes=SAMPLE_BYTES,
            on_data_loss="skip",
        ) as reader:
            for batch in reader:
                return float(batch.to_pyarrow().nbytes) / max(reader.next_offset - offset, 1)
        return None

    # --- groups ----------------------------------------------------------------------------------------------------

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group without members, so that lag tools see the query; the query waits no longer than this."""
        self._client.commit(group, offsets, timeout=COMMIT_S)

    # --- trying ----------------------------------------------------------------------------------------------------

    def _try(self, ask: Callable[[], T]) -> T:
        tries = max(self._config["fetchOffset.numRetries"], 1)
        for left in range(tries - 1, -1, -1):
            try:
                return ask()
            except KafkaError as error:
                if not left or not (error.retriable or isinstance(error, TimeoutError | OSError)):
                    raise
                log.warning("asking brokers for offsets failed and is tried again: %s", error)
                self._client.close()
                self._wait()
        raise AssertionError("the last try returns or raises")

    def _wait(self) -> None:
        self._pause.wait(self._config["fetchOffset.retryIntervalMs"] / 1000)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
