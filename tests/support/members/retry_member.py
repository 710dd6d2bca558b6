"""A member that hands records over to retry topics: `python retry_member.py '{"client": "confluent", …}'`.

The values of records are numbers. A third of them fails always, and one is slow. The process kills itself at a chosen
call of a method of its producer: before the call, or after what it has written is in the log.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaProducer

from kconsumer import Consumer, ConsumerRecord
from kconsumer.aio import AsyncConsumer
from kconsumer.parallel import RetryTopics, process

DELAYS_S = (0.1, 0.3)
SLOW, SLOW_S = b"1", 1.0  # records beyond this value are finished before it, which only the metadata of commits say


def always_fails(number: int) -> bool:
    """Returns True if no handler accepts the record with this value."""
    return number % 3 == 0


def killed_at(base: type, kill: str) -> Any:
    """Returns a subclass of a producer that kills the process at a call: METHOD:CALL:before or after."""
    if not kill:
        return base
    method, number, when = kill.split(":")
    original: Callable[..., Any] = getattr(base, method)
    calls = 0

    async def die_after(producer: Any, result: Any) -> None:
        await result
        await producer.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == int(number) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(self, *arguments, **named)
        if calls == int(number):
            if inspect.isawaitable(result):
                return die_after(self, result)
            self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return type(base.__name__, (base,), {method: counted})


class Member:
    """The handlers and options of a member."""

    def __init__(self, *, topic: str, dead: str, journal: str, transactional: bool, kill: str, **options: Any) -> None:
        self.topic, self.dead, self.journal = topic, dead, journal
        self.transactional, self.kill = transactional, kill
        self.servers, self.group = options["bootstrap_servers"], options["group_id"]
        self.options: dict[str, Any] = {
            **options,
            "group_instance_id": "member",  # a restarted member gets its partitions at once
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "consumer_timeout_ms": 5000,
        }
        self.arguments: dict[str, Any] = {"retry": None, "workers": 4, "order": "key", "commit_interval_s": 0.1}

    def handle(self, record: ConsumerRecord) -> None:
        """Note a record that is processed, and fail for others."""
        if always_fails(int(record.value)):
            raise ValueError(record.value)
        file = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, record.value + b"\n")
        os.close(file)

    def confluent(self) -> None:
        """Run with a producer of confluent-kafka."""
        chosen = {"transactional.id": self.group} if self.transactional else {}
        producer = killed_at(confluent_kafka.Producer, self.kill)({"bootstrap.servers": self.servers, **chosen})
        if self.transactional:
            producer.init_transactions()
        topics = RetryTopics(producer, DELAYS_S, self.dead)

        def handle(record: ConsumerRecord) -> None:
            time.sleep(SLOW_S * (record.value == SLOW))
            self.handle(record)

        with Consumer(self.topic, **self.options) as consumer:
            process(consumer, handle, on_failure=topics, **self.arguments)

    def aiokafka(self) -> None:
        """Run with a producer of aiokafka."""
        asyncio.run(self._aiokafka())

    async def _aiokafka(self) -> None:
        async def handle(record: ConsumerRecord) -> None:
            await asyncio.sleep(SLOW_S * (record.value == SLOW))
            self.handle(record)

        chosen = {"transactional_id": self.group} if self.transactional else {}
        new = killed_at(AIOKafkaProducer, self.kill)
        async with (
            new(bootstrap_servers=self.servers, acks="all", **chosen) as producer,
            AsyncConsumer(self.topic, **self.options) as consumer,
        ):
            topics = RetryTopics(producer, DELAYS_S, self.dead)
            await process(consumer, handle, on_failure=topics, executor="asyncio", **self.arguments)


def main(client: str, **arguments: Any) -> None:
    """Run a member with a producer of this client."""
    getattr(Member(**arguments), client)()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
