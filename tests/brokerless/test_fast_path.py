"""Consumers with and without the fast path of fetching return the same records and commit the same offsets."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.engine.fast_path import FastPathControl
from kconsumer.testing import FakeCluster

TOPIC, PARTITIONS, BROKERS = "t", 4, 2
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}
LIMIT_S = 30.0
PAUSE_S = 0.005  # without it, the fast path would rarely be armed again after a large response


class Script:
    """Writes records and uses a consumer, both as one seed decides. `seen` has what the consumer returned."""

    def __init__(self, cluster: FakeCluster, consumer: Consumer, seed: int) -> None:
        self.cluster, self.consumer, self.rng = cluster, consumer, random.Random(seed)
        self.written: dict[TopicPartition, int] = {}
        self.seen: dict[TopicPartition, list[int]] = {}
        self.log: list[Any] = []

    def write(self) -> None:
        """Write a few records to one partition."""
        tp = TopicPartition(TOPIC, self.rng.randrange(PARTITIONS))
        count = self.rng.choice([1, 1, 1, 1, 1, 1, 1, 2, 3, 30])
        self.cluster.produce(TOPIC, [b"v" * self.rng.randrange(200)] * count, partition=tp.partition)
        self.written[tp] = self.written.get(tp, 0) + count

    def read(self) -> None:
        """Read until every record was returned in order."""
        end = time.monotonic() + LIMIT_S
        while any(self.position(tp) < count for tp, count in self.written.items()):
            assert time.monotonic() < end, (self.written, self.consumer.partition_states())
            for record in self.consumer.poll(0.5, 20):
                self.seen.setdefault(record.topic_partition, []).append(record.offset)

    def position(self, tp: TopicPartition) -> int:
        """Returns the offset after the last returned record."""
        return self.seen[tp][-1] + 1 if self.seen.get(tp) else 0

    def act(self) -> None:
        """Use the consumer in some other way."""
        tp = TopicPartition(TOPIC, self.rng.randrange(PARTITIONS))
        action = self.rng.choice(["commit", "seek", "pause", "position", "move"])
        if action == "commit":
            self.consumer.commit()
            self.log.append(dict(sorted(self.cluster.committed("g").items())))
        elif action == "seek" and self.position(tp):
            offset = self.rng.randrange(self.position(tp))
            self.consumer.seek(tp, offset)
            self.seen[tp].append(offset - 1)
        elif action == "pause":
            self.consumer.pause(tp)
            self.write()
            self.consumer.resume(tp)
        elif action == "position":
            self.log.append(self.consumer.position(tp))
        elif action == "move":
            self.cluster.move_leader(TOPIC, tp.partition, self.rng.randint(1, BROKERS))


def run(engine: str, seed: int) -> tuple[dict[TopicPartition, list[int]], list[Any], int]:
    """Run a script. Returns what was seen, what it logged, and the number of responses on the fast path."""
    options = ENGINES[engine]
    with FakeCluster(brokers=BROKERS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
        with Consumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer:
            script = Script(cluster, consumer, seed)
            for _ in range(60):
                for _ in range(script.rng.choice([1, 1, 2])):
                    script.write()
                script.read()
                time.sleep(PAUSE_S)
                if script.rng.random() < 0.1:
                    script.act()
            script.read()
            consumer.commit()
            script.log.append(dict(sorted(cluster.committed("g").items())))
            control = consumer._engine._fast_path
            assert control is not None
            return script.seen, script.log, control.path.responses


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", ENGINES)
def test_the_fast_path_changes_no_result(engine: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, positions and committed offsets are the same without the fast path, and it was used."""
    seen, log, responses = run(engine, seed)
    assert responses > 0
    monkeypatch.setattr(FastPathControl, "arm", lambda *_: False)
    assert run(engine, seed) == (seen, log, 0)
