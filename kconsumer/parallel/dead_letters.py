"""DeadLetters: writes records whose last attempt failed to a topic, with a producer of another client."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable
from typing import Any

from kconsumer._core.decode import ConsumerRecord
from kconsumer.errors import ConfigError, TimeoutError
from kconsumer.parallel.settings import Attempt

POLL_S = 0.05  # how often a producer of confluent-kafka is polled until it has delivered a record
Header = tuple[str, bytes | None]


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
        self._producer = producer
        self._topic = topic
        self._timeout_s = timeout_s
        self.group_id = ""  # set by the run
        self.asynchronous = hasattr(producer, "send_and_wait")
        if not any(hasattr(producer, name) for name in ("send_and_wait", "produce", "send")):
            raise ConfigError(
                f"DeadLetters takes a producer of confluent-kafka, kafka-python or aiokafka: {producer!r}"
            )

    def __call__(self, record: ConsumerRecord, error: BaseException, attempt: Attempt) -> Awaitable[Any] | None:
        """Write a record. With a producer of aiokafka, returns what must be awaited."""
        key, value = _as_bytes(record, "key"), _as_bytes(record, "value")
        headers = [*record.headers, *self._headers(record, error, attempt)]
        timestamp = None if record.timestamp < 0 else record.timestamp
        if self.asynchronous:
            return self._send_async(key, value, headers, timestamp)
        if hasattr(self._producer, "produce"):
            self._produce(key, value, headers, timestamp)
        else:
            filled = [(name, data or b"") for name, data in headers]  # kafka-python writes no headers without values
            sent = self._producer.send(self._topic, value, key, headers=filled, timestamp_ms=timestamp)
            sent.get(self._timeout_s)
        return None

    async def _send_async(
        self, key: bytes | None, value: bytes | None, headers: list[Header], timestamp: int | None
    ) -> None:
        import asyncio  # imported when used

        async with asyncio.timeout(self._timeout_s):
            await self._producer.send_and_wait(self._topic, value, key, timestamp_ms=timestamp, headers=headers)

    def _produce(self, key: bytes | None, value: bytes | None, headers: list[Header], timestamp: int | None) -> None:
        """Write with a producer of confluent-kafka, and call its callbacks until this record is delivered."""
        results: list[Any] = []
        self._producer.produce(
            self._topic,
            value=value,
            key=key,
            headers=headers,
            timestamp=timestamp or 0,
            on_delivery=lambda error, message: results.append(error),
        )
        polls = 0
        while not results and polls * POLL_S < self._timeout_s:
            self._producer.poll(POLL_S)
            polls += 1
        if not results:
            raise TimeoutError(f"a dead letter was not delivered to {self._topic} within {self._timeout_s} s")
        if results[0] is not None:
            raise RuntimeError(f"a dead letter was not delivered to {self._topic}: {results[0]}")

    def _headers(self, record: ConsumerRecord, error: BaseException, attempt: Attempt) -> list[Header]:
        trace = "".join(traceback.format_exception(error))
        kind = type(error)
        found = {
            "kafka_dlt-original-topic": record.topic.encode(),
            "kafka_dlt-original-partition": record.partition.to_bytes(4, "big"),
            "kafka_dlt-original-offset": record.offset.to_bytes(8, "big"),
            "kafka_dlt-original-timestamp": record.timestamp.to_bytes(8, "big", signed=True),
            "kafka_dlt-original-consumer-group": self.group_id.encode(),
            "kafka_dlt-exception-fqcn": f"{kind.__module__}.{kind.__qualname__}".encode(),
            "kafka_dlt-exception-message": str(error).encode(errors="replace"),
            "kafka_dlt-exception-stacktrace": trace.encode(errors="replace"),
            "kafka_deliveryAttempt": int(attempt).to_bytes(4, "big"),
        }
        return list(found.items())


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
