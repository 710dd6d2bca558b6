"""Sends the requests of the driver: partitions of topics, their earliest and latest offsets, offsets by timestamp.

Wraps a `RangeClient`, retries its requests, and resolves limits (see `offsets.py`) to offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from kconsumer.errors import BatchTooLargeError, ConfigError, CorruptRecordError, KafkaError, TimeoutError
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

COMMIT_TIMEOUT_S = 10.0
SAMPLE_BYTES = 64 << 10
SAMPLE_ROWS = 200


class MissingTopicError(KafkaError):
    """A topic of the query does not exist, or is not in the broker's metadata yet."""

    retriable = True


def range_client(config: SourceConfig) -> RangeClient:
    """Create a client with the options of `config`. It opens no connection yet."""
    return RangeClient(**config.client_options())


class Admin:
    """Sends requests about the topics of one query. Each request is tried at most `fetchOffset.numRetries` times."""

    def __init__(self, config: SourceConfig, client: RangeClient | None = None) -> None:
        self._config = config
        self._client = client or range_client(config)
        self._pause = threading.Event()  # never set; its `wait` is the pause between tries

    # --- topics ----------------------------------------------------------------------------------------------------

    def partitions(self) -> set[TopicPartition]:
        """Returns the partitions that the query reads now. Raises MissingTopicError if a named topic does not exist."""
        strategy = self._config.strategy
        if isinstance(strategy, Subscribe):
            names: set[str] | None = set(strategy.topics)
        elif isinstance(strategy, Assign):
            names = {tp.topic for tp in strategy.partitions}
        else:
            names = None
        found = self._retry(lambda: self._list_topics(names))
        counts = {
            name: [info.partition for info in listing.partitions]
            for name, listing in found.items()
            if names is not None or not listing.internal
        }
        return strategy.choose(counts)

    def _list_topics(self, names: set[str] | None) -> dict[str, TopicListing]:
        """Returns the topics with these names (None: all topics). Raises MissingTopicError if one of them does not
        exist.
        """
        found = self._client.topics(names)
        missing = sorted((names or set()) - found.keys())
        if missing:
            servers = self._config.kafka["bootstrap.servers"]
            raise MissingTopicError(
                f"UnknownTopicOrPartition: topic {', '.join(missing)} does not exist on {servers}, or this user is not"
                " authorized to describe it"
            )
        return found

    # --- offsets ---------------------------------------------------------------------------------------------------

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        wanted = sorted(partitions)
        return self._retry(lambda: self._client.beginning_offsets(wanted)) if wanted else {}

    def latest(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> Offsets:
        """Returns the end offset of each partition (with read_committed: its last stable offset).

        If an end is below the partition's offset in `known`, all ends are requested again, because the response of a
        broker may be outdated (KAFKA-7703). The ends of the last try are returned in any case.
        """
        wanted, before = sorted(partitions), known or {}
        if not wanted:
            return {}
        for _ in range(max(self._config["fetchOffset.numRetries"], 1)):
            found = self._retry(lambda: self._client.end_offsets(wanted))
            if all(end >= before.get(tp, 0) for tp, end in found.items()):
                break
            self._wait()
        return found

    def by_time(self, times: Mapping[TopicPartition, int], *, starting: bool) -> Offsets:
        """Returns the offset of the first record with the timestamp (ms) or a later one, for each partition in `times`.

        For a partition without such a record, returns its end offset. But if `starting` is true and
        startingOffsetsByTimestampStrategy is `error`, raises ConfigError.
        """
        found = self._retry(lambda: self._client.offsets_for_times(times)) if times else {}
        unmatched = [tp for tp in sorted(times) if found.get(tp) is None]
        if unmatched and starting and self._config.starting_strategy == "error":
            listed = ", ".join(f"{tp.topic}-{tp.partition} and timestamp {times[tp]}" for tp in unmatched)
            raise ConfigError(
                f"No offset matched from request of topic-partition {listed}; wait for a later record, or set"
                " startingOffsetsByTimestampStrategy to latest"
            )
        offsets = {tp: at.offset for tp, at in found.items() if at is not None}
        return offsets | self.latest(unmatched)

    def first_at(self, partitions: Iterable[TopicPartition], ms: int) -> Offsets:
        """Returns the offset of the first record with the timestamp `ms` or a later one, for each partition.

        Partitions without such a record are omitted.
        """
        times = dict.fromkeys(partitions, max(ms, 0))
        found = self._retry(lambda: self._client.offsets_for_times(times)) if times else {}
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def resolve(self, limit: Limit, partitions: set[TopicPartition], *, starting: bool = True) -> Offsets:
        """Returns the offset in each partition at which the query starts or ends according to `limit`.

        Requests the actual offsets in place of EARLIEST and LATEST. `starting` is False if the limit ends the query.
        """
        return self.bind(self.unbound(limit, partitions, starting=starting))

    def unbound(self, limit: Limit, partitions: set[TopicPartition], *, starting: bool) -> Offsets:
        """Returns the offset in each partition at which the query starts or ends according to `limit`.

        Unlike the result of `resolve`, it may be EARLIEST or LATEST. `starting` is False if the limit ends the query.
        Raises ConfigError if the limit lists partitions, and these are not exactly `partitions`.
        """
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

    def bind(self, unbound: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the offsets with EARLIEST and LATEST replaced by the earliest and end offsets of the partitions."""
        early = self.earliest(tp for tp, at in unbound.items() if at == EARLIEST)
        late = self.latest(tp for tp, at in unbound.items() if at == LATEST)
        return {**unbound, **early, **late}

    def bytes_per_offset(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Returns an estimate of the bytes of keys and values per offset, for each partition.

        The estimate is made from a sample of records from the partition's offset in `start` on. Partitions without such
        records are omitted. Partitions whose records cannot be read are omitted, too, and not reported: the task that
        reads these records applies the option onCorrupt.
        """
        found: dict[TopicPartition, float] = {}
        for tp, offset in start.items():
            size = self._retry(partial(self._sample, tp, offset))
            if size is not None:
                found[tp] = size
        return found

    def _sample(self, tp: TopicPartition, offset: int) -> float | None:
        try:
            return self._read_sample(tp, offset)
        except (BatchTooLargeError, CorruptRecordError) as error:
            log.warning("records of %s from offset %d cannot be sampled: %s", tp, offset, error)
            return None

    def _read_sample(self, tp: TopicPartition, offset: int) -> float | None:
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
        """Commit offsets for a group that has no members, so that tools can show the lag.

        Waits at most COMMIT_TIMEOUT_S seconds.
        """
        self._client.commit(group, offsets, timeout=COMMIT_TIMEOUT_S)

    # --- retries ---------------------------------------------------------------------------------------------------

    def _retry(self, request: Callable[[], T]) -> T:
        tries = max(self._config["fetchOffset.numRetries"], 1)
        for remaining in range(tries - 1, -1, -1):
            try:
                return request()
            except KafkaError as error:
                if not remaining or not (error.retriable or isinstance(error, TimeoutError | OSError)):
                    raise
                log.warning("a request of the driver failed and is retried: %s", error)
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
