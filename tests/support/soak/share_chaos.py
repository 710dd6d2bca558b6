"""A share group under faults: members and leaders of partitions are killed, and new members join.

At the end all faults stop, and the group must finish. `check` then reads the event logs of all members.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from kconsumer import TopicPartition, groups
from kconsumer.errors import KafkaError
from support.brokers.kafka_admin import Kafka, wait_until
from support.members.share_groups import configure_group

PARTITIONS, MEMBERS = 3, 4
LOCK_MS, DELIVERY_LIMIT = 5000, 5
CALM_S = 90
SCRIPT = Path(__file__).with_name("share_member.py")

Key = tuple[int, int]  # partition and offset
Event = tuple[float, str, str, Any]  # time, member, kind, content


class ShareChaos:
    """One run. `cluster`: of three nodes, of Kafka or of the model."""

    def __init__(self, cluster: Any, topic: str, folder: Path, seed: int) -> None:
        self._cluster: Any = cluster
        self._kafka: Kafka = cluster
        self._topic, self._folder = topic, folder
        self._random = random.Random(seed)
        self._members: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.written = 0
        self.faults = 0

    def run(self, seconds: float) -> None:
        """Write records and inject faults for some time, then let the group finish."""
        self._kafka.create_topic(self._topic, PARTITIONS, 3)
        config = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
        configure_group(self._kafka.bootstrap_servers, self._topic, config)
        try:
            for _ in range(MEMBERS):
                self._start_member()
            end = time.monotonic() + seconds
            next_fault = time.monotonic() + 2
            while time.monotonic() < end:
                self._produce()
                time.sleep(0.1)
                if time.monotonic() > next_fault:
                    self._inject()
                    next_fault = time.monotonic() + self._random.uniform(0.5, 3)
            wait_until(self._is_finished, CALM_S, "the end of the group")
        finally:
            for member in self._members:
                member.terminate()
            for member in self._members:
                member.wait(60)

    def _produce(self) -> None:
        partition = self._random.randrange(PARTITIONS)
        count = self._random.randrange(1, 200)
        values = [b"%d" % number for number in range(self.written, self.written + count)]
        self._kafka.produce(self._topic, values, partition=partition, config={"acks": "all"})
        self.written += count

    def _start_member(self) -> None:
        number = self._started
        self._started += 1
        settings = {
            "topic": self._topic,
            "bootstrap_servers": self._kafka.bootstrap_servers,
            "group_id": self._topic,
            "client_id": f"member-{number}",
            "max_poll_records": 100,
            "log": str(self._folder / f"member-{number}.log"),
            "seed": number,
        }
        self._members.append(subprocess.Popen([sys.executable, str(SCRIPT), json.dumps(settings)], env=os.environ))

    def _inject(self) -> None:
        """Kill a member, and start another one; or kill the leader of a partition for a moment."""
        self.faults += 1
        if self._random.random() < 0.75:
            member = self._members.pop(self._random.randrange(len(self._members)))
            member.kill()
            member.wait()
            self._start_member()
            return
        leader = self._kafka.leader_of(self._topic, self._random.randrange(PARTITIONS))
        if leader < 0:
            return
        node = self._cluster.node(leader)
        node.kill()
        try:
            time.sleep(self._random.random() * 2)
        finally:
            node.start()

    def _is_finished(self) -> bool:
        """Returns whether the broker has an acknowledgement of every record."""
        try:
            offsets = groups.offsets(self._topic, bootstrap_servers=self._kafka.bootstrap_servers)
        except KafkaError:
            return False
        tps = [TopicPartition(self._topic, partition) for partition in range(PARTITIONS)]
        return all(tp in offsets and offsets[tp].lag == 0 for tp in tps)

    def events(self) -> list[Event]:
        """Returns the events of all members, in the order of their times. A killed member may leave half a line."""
        found: list[Event] = []
        for path in sorted(self._folder.glob("member-*.log")):
            for line in path.read_text().splitlines():
                try:
                    at, kind, what = json.loads(line)
                except json.JSONDecodeError:
                    continue
                found.append((at, path.stem, kind, what))
        return sorted(found, key=lambda event: event[0])


def check(events: list[Event], written: int) -> dict[str, int]:
    """Check the rules of share groups against the events of all members. Returns what was counted.

    - Every record was received.
    - After its acceptance or rejection was confirmed, no member receives a record.
    - No record is delivered more often than the limit allows.
    - If neither was confirmed, the last member that received the record was killed, or its acknowledgement was not
      confirmed (the leader may have stored it before it died), or the limit of deliveries was reached.
    """
    numbers: dict[Key, int] = {}
    settled: dict[Key, float] = {}
    received: dict[Key, list[tuple[float, int]]] = defaultdict(list)
    last_member: dict[Key, str] = {}
    refused: set[Key] = set()
    closed = {member for _, member, kind, _ in events if kind == "closed"}
    counts = {"accepted": 0, "rejected": 0, "redelivered": 0}
    for at, member, kind, what in events:
        if kind == "received":
            for partition, offset, count, number in what:
                numbers[partition, offset] = number
                received[partition, offset].append((at, count))
                last_member[partition, offset] = member
                counts["redelivered"] += count > 1
        elif kind == "done":
            for partition, offset, type_ in what:
                if type_ in ("ACCEPT", "REJECT"):
                    settled.setdefault((partition, offset), at)
                    counts["accepted" if type_ == "ACCEPT" else "rejected"] += 1
        elif kind == "refused":
            refused.update((partition, offset) for partition, offset, _ in what)
    assert set(range(written)) == set(numbers.values()), "records that no member received"
    again = {key: found for key, found in received.items() if key in settled and found[-1][0] > settled[key]}
    assert {} == again, "records that were received after their acknowledgement"
    above = {key: found for key, found in received.items() if max(count for _, count in found) > DELIVERY_LIMIT}
    assert {} == above, "records that were delivered too often"
    unexplained = [
        key
        for key, found in received.items()
        if key not in settled
        and key not in refused
        and last_member[key] in closed
        and max(count for _, count in found) < DELIVERY_LIMIT
    ]
    assert [] == unexplained, "records that were neither accepted nor rejected"
    return {"records": written, "settled": len(settled), "refused": len(refused), **counts}
