"""A share group of kconsumer's ShareConsumer and of Kafka's own share consumer, which read one partition."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kconsumer import ShareConsumer, groups
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.members.java_groups import SHARE_CONSUMER, TIMEOUT_S, tool
from support.members.share_groups import configure_group, share_records

pytestmark = [pytest.mark.network_thread, pytest.mark.consumer_protocol]
CHUNK = 50


class JavaMember:
    """Kafka's ConsoleShareConsumer, which accepts what it prints, into a file."""

    def __init__(self, kafka: Kafka, topic: str, output: Path) -> None:
        self._output = output
        command = tool(SHARE_CONSUMER, kafka.bootstrap_servers, "--topic", topic, "--group", topic)
        with output.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)

    def values(self) -> list[int]:
        """Returns the values that it has printed so far."""
        text = self._output.read_text()
        return [int(line) for line in text[: text.rfind("\n") + 1].split()]


@contextmanager
def java_member(kafka: Kafka, topic: str, output: Path) -> Iterator[JavaMember]:
    """A Java member, which is stopped at the end of the block."""
    member = JavaMember(kafka, topic, output)
    try:
        yield member
    finally:
        member.process.terminate()
        try:
            member.process.wait(TIMEOUT_S)
        finally:
            member.process.kill()


@pytest.mark.timeout(300)
def test_java_and_kconsumer_share_a_partition(kafka: Kafka, topic_name: str, tmp_path: Path) -> None:
    """Each record is accepted by one of two members of the two clients.

    When the Java member is killed, the other one receives what it had not accepted, with a higher delivery count.
    """
    kafka.create_topic(topic_name)
    configure_group(kafka.bootstrap_servers, topic_name, {"share.auto.offset.reset": "earliest"})
    written = 0
    ours: Counter[int] = Counter()
    repeated: set[int] = set()

    def produce() -> None:
        nonlocal written
        kafka.produce(topic_name, [b"%d" % number for number in range(written, written + CHUNK)])
        written += CHUNK

    def poll(consumer: ShareConsumer, timeout_s: float) -> None:
        for record in share_records(consumer.poll(timeout_s)):
            ours[int(record.value or b"")] += 1
            if record.delivery_count > 1:
                repeated.add(int(record.value or b""))

    with (
        ShareConsumer(
            topic_name, bootstrap_servers=kafka.bootstrap_servers, group_id=topic_name, max_poll_records=CHUNK
        ) as consumer,
        java_member(kafka, topic_name, tmp_path / "java") as java,
    ):

        def both_read() -> bool:
            """Returns whether both have received enough. Writes more records meanwhile."""
            produce()
            poll(consumer, 0.05)
            return len(java.values()) >= 10 * CHUNK and len(ours) >= 10 * CHUNK

        wait_until(both_read, 120, "records of both members")
        described = groups.describe(topic_name, bootstrap_servers=kafka.bootstrap_servers)
        assert ("share", 2) == (described.type, len(described.members))

        java.process.kill()
        java.process.wait(TIMEOUT_S)
        theirs = Counter(java.values())

        def all_read() -> bool:
            """Returns whether every record was received by one of the members."""
            poll(consumer, 0.2)
            return len(ours.keys() | theirs.keys()) == written

        produce()
        wait_until(all_read, 60, "the remaining records")
        poll(consumer, 0.5)
    assert set(range(written)) == ours.keys() | theirs.keys()
    assert {1} == set(theirs.values())
    assert {1} == set(ours.values())
    assert ours.keys() & theirs.keys() <= repeated
