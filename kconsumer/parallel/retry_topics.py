"""RetryTopics: writes records that have failed to delay topics, which the same run reads, and at last to another topic.

Decides where a record goes, and when a record of a delay topic is due.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kconsumer._client.consumer_base import ConsumerBase
from kconsumer._core.decode import ConsumerRecord
from kconsumer._core.lock import Clock
from kconsumer.consumer import Consumer
from kconsumer.errors import ConfigError, RecordDeserializationError
from kconsumer.parallel.dead_letters import GROUP_HEADER, DeadLetters
from kconsumer.parallel.offset_tracker import OffsetTracker
from kconsumer.parallel.producers import Message
from kconsumer.parallel.settings import Attempt, Retry
from kconsumer.types import OffsetReset

ATTEMPTS, DUE, FIRST_TIMESTAMP = (
    "retry_topic-attempts",
    "retry_topic-backoff-timestamp",
    "retry_topic-original-timestamp",
)
ORIGINAL_TIMESTAMP = "kafka_original-timestamp"
MAX_ATTEMPTS, MAX_TIMESTAMP = 2**31 - 1, 2**63 - 1  # another program may have written any bytes as headers
#: Headers that a record keeps from topic to topic: they say where it was first.
KEPT = {
    "kafka_original-topic",
    "kafka_original-partition",
    "kafka_original-offset",
    ORIGINAL_TIMESTAMP,
    FIRST_TIMESTAMP,
}


class RetryTopics(DeadLetters):
    """A callable for `on_failure`: the record is tried again after each of the `delays` (seconds), and holds back none.

    For the topic `orders`, and delays of 10 and 60 s, it writes the record to `orders-retry-10000`, after a further
    failure to `orders-retry-60000`, and then to the topic `dead_letters`. These topics must exist. The run subscribes
    to the delay topics, too, and starts none of their records before it is due. A record that a deserializer refuses,
    or whose error `Retry` does not try again, goes to `dead_letters` at once. The names of topics and headers, and the
    encodings of headers, are those of Spring's @RetryableTopic.

    `producer` and `timeout_s` are those of DeadLetters. If the producer of confluent-kafka or aiokafka has a
    transactional id, a record is written, and its offset committed, in one transaction, so that the record is never in
    two topics. The consumer needs isolation_level="read_committed" then, and for aiokafka must be an AsyncConsumer.
    Otherwise a record whose process is killed between both is processed and perhaps written again.

    The consumer must be subscribed to topics by name, with auto_offset_reset="earliest": otherwise a new member could
    skip records of a delay topic. Records that another group has written to the delay topics are skipped.
    """

    def __init__(self, producer: Any, delays: Sequence[float], dead_letters: str, *, timeout_s: float = 30.0) -> None:
        super().__init__(producer, dead_letters, timeout_s=timeout_s)
        self._delays_ms = [round(1000 * delay) for delay in delays]
        if not self._delays_ms or min(self._delays_ms) < 1 or len(set(self._delays_ms)) < len(self._delays_ms):
            raise ConfigError(f"RetryTopics: delays must be different numbers of seconds above 0, not {delays!r}")
        self.transactional = False  # these are set by the run, as `group_id`
        self._retry, self._clock = Retry(), Clock()
        self._next: dict[str, tuple[str, int]] = {}  # topic -> the next one, and its delay in ms
        self._delay_ms: dict[str, int] = {}  # of each delay topic

    def prepare(self, consumer: Any, retry: Retry, clock: Clock) -> None:
        """Note what the run uses. Raises ConfigError or TypeError if the run cannot use this object."""
        super().prepare(consumer, retry, clock)
        if not isinstance(consumer, ConsumerBase):
            raise ConfigError("RetryTopics is not for share groups, which deliver records again themselves")
        if consumer._config.auto_offset_reset != OffsetReset.EARLIEST:
            raise ConfigError(
                "RetryTopics needs auto_offset_reset='earliest': a member that reads a delay topic for the first time "
                "would skip its records"
            )
        self._retry, self._clock = retry, clock
        self.transactional = self.producer.is_transactional()
        if self.transactional and not consumer._config.read_committed:
            raise ConfigError("RetryTopics with a transactional producer needs isolation_level='read_committed'")
        if self.transactional and self.asynchronous and isinstance(consumer, Consumer):
            raise TypeError("RetryTopics with a transactional producer of aiokafka needs an AsyncConsumer")

    def add_to(self, topics: Collection[str]) -> frozenset[str]:
        """Returns these topics and their delay topics."""
        known = {f"{topic}-retry-{delay_ms}" for topic in topics for delay_ms in self._delays_ms}
        for topic in set(topics) - known:
            before = topic
            for delay_ms in self._delays_ms:
                name = f"{topic}-retry-{delay_ms}"
                self._next[before], self._delay_ms[name] = (name, delay_ms), delay_ms
                before = name
        return frozenset(topics) | set(self._delay_ms)

    # --- records that have failed ------------------------------------------------------------------------------------

    def __call__(self, record: ConsumerRecord, error: BaseException, attempt: Attempt) -> Any:
        """Write a record to the next topic. With transactions, returns what a transaction must contain."""
        message = self._hand_over(record, error, attempt)
        return message if self.transactional else self.producer.write(message)

    def _hand_over(self, record: ConsumerRecord, error: BaseException, attempt: Attempt) -> Message:
        found = self._headers(record, error, attempt, "kafka_")
        earlier = dict(record.headers) if record.topic in self._delay_ms else {}
        attempts = int.from_bytes(earlier.get(ATTEMPTS) or b"\1", "big")
        found[ATTEMPTS] = min(attempts + 1, MAX_ATTEMPTS).to_bytes(4, "big")
        found[FIRST_TIMESTAMP] = _big_integer(record.timestamp)
        found.update((name, earlier[name]) for name in KEPT if name in earlier)
        topic, timestamp = self._topic, int.from_bytes(found[ORIGINAL_TIMESTAMP] or b"\xff", "big", signed=True)
        if record.topic in self._next and self._retry.retries(error) and not _is_poisoned(error):
            # The time of the record is that of its writing: brokers could delete one that is old before it is due.
            topic, delay_ms = self._next[record.topic]
            timestamp, found[DUE] = -1, _big_integer(self._clock.wall_ms() + delay_ms)
        headers = [(name, data) for name, data in record.headers if name not in found and name != DUE]
        written_at = timestamp if 0 <= timestamp <= MAX_TIMESTAMP else None
        return self._message(topic, record, [*headers, *found.items()], written_at)

    # --- records of delay topics -------------------------------------------------------------------------------------

    def admit(self, tracker: OffsetTracker, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Note when records of a delay topic are due. Returns those of this group. The others count as finished.

        No record is due later than one that is written now, even if the clock of its writer is wrong.
        """
        delay_ms = self._delay_ms.get(tracker.topic_partition.topic)
        if delay_ms is None:
            return records
        now, wall_ms, admitted = self._clock.now(), self._clock.wall_ms(), []
        for record in records:
            headers = dict(record.headers)
            if headers.get(GROUP_HEADER) not in (None, self.group_id.encode()):
                tracker.finish(record.offset)
                continue
            due = headers.get(DUE)
            due_ms = record.timestamp + delay_ms if due is None else int.from_bytes(due, "big", signed=True)
            wait_ms = min(due_ms - wall_ms, delay_ms)
            if wait_ms > 0:
                tracker.due[record.offset] = now + wait_ms
            admitted.append(record)
        return admitted


def _is_poisoned(error: BaseException) -> bool:
    return isinstance(error, RecordDeserializationError)


def _big_integer(number: int) -> bytes:
    """Returns a number as Java's BigInteger writes it."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
