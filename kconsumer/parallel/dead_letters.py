"""DeadLetters: writes records whose last attempt failed to a topic, with a producer of another client."""

from __future__ import annotations

import traceback
from typing import Any

from kconsumer._core.decode import ConsumerRecord
from kconsumer._core.lock import Clock
from kconsumer.parallel.producers import Header, Message, adapt
from kconsumer.parallel.settings import Attempt, Retry

GROUP_HEADER = "kafka_dlt-original-consumer-group"


class DeadLetters:
    """A callable for `on_failure`: writes the record to `topic`, and returns when the brokers have acknowledged it.

    `producer` is one of confluent-kafka, kafka-python, or with executor="asyncio" of aiokafka, started, with acks="all"
    and without serializers. Key, value, headers and timestamp are those of the record. Keys and values that a
    deserializer has made are refused, unless they are text: use a consumer without deserializers, and deserialize in
    the handler. Further headers have the names and encodings of Spring's dead letters (big-endian numbers).

    If the record cannot be written in `timeout_s`, the error ends the run, and the record is not committed. A record
    whose process is killed after it was written, and before the commit, is processed and perhaps written again.
    """

    def __init__(self, producer: Any, topic: str, *, timeout_s: float = 30.0) -> None:
        self.producer = adapt(producer, timeout_s, type(self).__name__)
        self._topic = topic
        self.timeout_s = timeout_s
        self.group_id = ""  # set by the run
        self.asynchronous = self.producer.asynchronous

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._topic!r} by {type(self.producer).__name__}>"

    def prepare(self, consumer: Any, retry: Retry, clock: Clock) -> None:
        """Note the group of the consumer whose records may fail."""
        self.group_id = consumer._config.group_id or ""

    def __call__(self, record: ConsumerRecord, error: BaseException, attempt: Attempt) -> Any:
        """Write a record. With a producer of aiokafka, returns what must be awaited."""
        headers = [*record.headers, *self._headers(record, error, attempt, "kafka_dlt-").items()]
        timestamp = None if record.timestamp < 0 else record.timestamp
        return self.producer.write(self._message(self._topic, record, headers, timestamp))

    def _message(self, topic: str, record: ConsumerRecord, headers: list[Header], timestamp: int | None) -> Message:
        return Message(topic, _as_bytes(record, "key"), _as_bytes(record, "value"), headers, timestamp)

    def _headers(
        self, record: ConsumerRecord, error: BaseException, attempt: Attempt, prefix: str
    ) -> dict[str, bytes | None]:
        trace = "".join(traceback.format_exception(error))
        kind = type(error)
        try:
            message = str(error)
        except Exception as failed:  # user code
            message = f"its text is unknown: str() raised {type(failed).__name__}"
        return {
            f"{prefix}original-topic": record.topic.encode(),
            f"{prefix}original-partition": record.partition.to_bytes(4, "big"),
            f"{prefix}original-offset": record.offset.to_bytes(8, "big"),
            f"{prefix}original-timestamp": record.timestamp.to_bytes(8, "big", signed=True),
            GROUP_HEADER: self.group_id.encode(),
            f"{prefix}exception-fqcn": f"{kind.__module__}.{kind.__qualname__}".encode(),
            f"{prefix}exception-message": message.encode(errors="replace"),
            f"{prefix}exception-stacktrace": trace.encode(errors="replace"),
            "kafka_deliveryAttempt": int(attempt).to_bytes(4, "big"),
        }


def _as_bytes(record: ConsumerRecord, name: str) -> bytes | None:
    data = getattr(record, name)
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(
        f"the {name} of a dead letter must be bytes or text, not {type(data).__name__}: use a consumer without "
        f"{name}_deserializer, and deserialize in the handler"
    )
