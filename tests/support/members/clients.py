"""Members of one group by three clients: kconsumer, Kafka's own Java consumer, and confluent-kafka (librdkafka).

All start at the beginning, commit the returned records, heartbeat often and have a session timeout of six seconds.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.brokers.kafka_admin import Kafka
from support.brokers.kafka_jars import kafka_tools_jars, program
from support.members.members import MemberProcess

CONFLUENT_SCRIPT = Path(__file__).with_name("confluent_member.py")
HEARTBEAT_MS, SESSION_MS = 300, 6000
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

Assignors = Sequence[str] | None
"""Of a classic member; None: the consumer protocol of KIP-848, in which the coordinator assigns."""


def start(client: str, name: str, kafka: Kafka, group: str, assignors: Assignors) -> MemberProcess:
    """Start a member of the group that has the name of the topic it reads."""
    if client == "java":
        return JavaMember(name, kafka.bootstrap_servers, group, assignors)
    if client == "confluent":
        return ConfluentMember(name, confluent_settings(kafka, group, assignors))
    assert client == "kconsumer"
    return MemberProcess(name, settings(kafka, group, assignors, log="INFO"))


def settings(kafka: Kafka, topic: str, assignors: Assignors, **options: Any) -> dict[str, Any]:
    """Returns the settings of a kconsumer member."""
    classic = {"heartbeat_interval_ms": HEARTBEAT_MS, "session_timeout_ms": SESSION_MS}
    return {
        "topics": [topic],
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        **({"group_protocol": "consumer"} if assignors is None else {"assignors": list(assignors), **classic}),
        **options,
    }


def confluent_settings(kafka: Kafka, topic: str, assignors: Assignors) -> dict[str, Any]:
    """Returns the same settings for librdkafka; its log names the leader."""
    classic = {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
    chosen = {"partition.assignment.strategy": ",".join(assignors or ()), **classic}
    return {
        "topics": [topic],
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "log_level": 7,
        "debug": "consumer",
        **({"group.protocol": "consumer"} if assignors is None else chosen),
    }


class ConfluentMember(MemberProcess):
    """confluent-kafka's consumer as a member."""

    LEADS = re.compile(r"JoinGroup response: GenerationId (\d+), .* \(me\), my MemberId")

    def __init__(self, name: str, chosen: dict[str, Any]) -> None:
        super().__init__(name, chosen, script=CONFLUENT_SCRIPT)


class JavaMember(MemberProcess):
    """Kafka's own VerifiableConsumer as a member; it commits after each poll."""

    LEADS = re.compile(r"Finished assignment for group at generation (\d+)")

    def __init__(self, name: str, bootstrap_servers: str, topic: str, assignors: Assignors) -> None:
        command = [program("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-cp", ":".join(map(str, kafka_tools_jars())), "org.apache.kafka.tools.VerifiableConsumer"]
        command += ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--group-id", topic]
        if assignors is None:
            command += ["--group-protocol", "consumer"]
        else:
            strategy = ",".join(JAVA_ASSIGNORS[assignor] for assignor in assignors)
            command += ["--assignment-strategy", strategy, "--session-timeout", str(SESSION_MS)]
            command += ["--consumer.config", "/dev/stdin"]
        self._wall_clock = time.time() - time.monotonic()
        self._start(name, [*command, "--reset-policy", "earliest"])
        assert self._process.stdin is not None
        if assignors is not None:
            self._process.stdin.write(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
        self._process.stdin.close()

    def _event(self, line: str) -> dict[str, Any] | None:
        if not line.startswith("{"):
            return None
        event = json.loads(line)
        at = event["timestamp"] / 1000 - self._wall_clock  # cut to milliseconds: it was then or up to 1 ms later
        partitions = [(p["topic"], p["partition"]) for p in event.get("partitions", ())]
        if event["name"] == "partitions_assigned":
            return {"event": "assigned", "at": at + 0.001, "partitions": partitions}
        if event["name"] == "partitions_revoked":
            return {"event": "revoked", "at": at, "partitions": partitions}
        if event["name"] == "records_consumed" and event["count"]:
            # One event for all partitions of a poll; offsets have no gaps in these tests.
            with self._lock:
                for tp, part in zip(partitions, event["partitions"], strict=True):
                    offsets = list(range(part["minOffset"], part["maxOffset"] + 1))
                    self.events.append({"event": "records", "at": at, "partition": tp, "offsets": offsets})
        return None

    @property
    def crashed(self) -> bool:
        """Returns whether it ended with an error. A JVM that SIGTERM ends has the exit code 143."""
        return self.killed_at is None and self._process.poll() not in (None, 0, 143)

    def _ask_to_stop(self) -> None:
        self._process.terminate()

    def stop(self, timeout_s: float = 30) -> None:
        """Stop the process cleanly. A JVM that SIGTERM ends has the exit code 143."""
        self._ask_to_stop()
        assert self._process.wait(timeout_s) in (0, 143), self.errors
        self._finish_reading()
