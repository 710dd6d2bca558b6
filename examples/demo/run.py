"""The demo: a broker, a topic of events, three members in a group, one of which leaves half way.

Without a cluster to connect to, it starts Apache Kafka, or kconsumer's `FakeCluster` on a machine without Java. It
writes a shop's clickstream and proves that every record was seen at least once. With `--bootstrap` and `--topic` it
reads your topic up to its end, writes nothing and commits only to a group of its own. It stops everything that it
starts, also on Ctrl-C. The exit code is 0 if all went well.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import signal
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from crew import Crew, Member, unpack
from events import PARTITIONS, revenue_cents
from screen import Screen, screen

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import KafkaError

EVENTS = 2_000_000
MEMBERS = ("member-1", "member-2", "member-3")
LEAVER = "member-2"
LEAVE_AT = 0.4
TOPIC = "clickstream"


class Follow:
    """Keeps the state of the group: the owner and the position of each partition, and whether all is read."""

    def __init__(self, crew: Crew, display: Screen, begin: Mapping[int, int], end: Mapping[int, int]) -> None:
        self.crew, self.display = crew, display
        self.begin, self.end = begin, end
        self.positions = dict(begin)
        self.owners: dict[int, str] = {}

    @property
    def total(self) -> int:
        """Return how many offsets there are to read."""
        return sum(self.end[partition] - self.begin[partition] for partition in self.end)

    @property
    def done(self) -> int:
        """Return how many offsets were read."""
        return sum(min(self.positions[p], self.end[p]) - self.begin[p] for p in self.end)

    def run(self, timeout_s: float) -> None:
        """Let the group read everything. One member leaves meanwhile.

        Raises RuntimeError if this takes longer than `timeout_s` seconds.
        """
        deadline = monotonic() + timeout_s
        leaver = next(member for member in self.crew.members if member.name == LEAVER)
        while not (self.done == self.total and leaver.state == "left" and self._all_owned()):
            if monotonic() > deadline:
                raise RuntimeError(f"not done after {timeout_s:.0f} s: {self.done:,} of {self.total:,} records read")
            for member, report in self.crew.reports(0.2):
                self.take(member, report)
            if leaver.state == "running" and self.done >= LEAVE_AT * self.total and self._complete():
                self.display.say(f"{leaver.name} is asked to leave; it owns {_partitions(leaver.partitions)}")
                self.crew.leave(leaver)
            self.display.draw(self.crew.members, self.done, self.total)

    def take(self, member: Member, report: Mapping[str, Any]) -> None:
        """Handle a report of a member."""
        match report["event"]:
            case "assigned":
                self._assigned(member, report["partitions"])
            case "revoked" | "lost":
                self._gave_up(member, report["event"], report["partitions"])
            case "progress":
                member.progressed(report["records"])
                member.lag = report["lag"]
                for partition, position in report["positions"].items():
                    self.positions[int(partition)] = max(self.positions.get(int(partition), 0), position)
            case "left":
                member.progressed(report["records"])
                member.state, member.cents, member.seen = "left", report["cents"], unpack(report["seen"])
                member.partitions.clear()
                self.display.say(f"{member.name} has left after {member.records:,} records")

    def _assigned(self, member: Member, partitions: list[int]) -> None:
        if member.state == "joining":
            member.state = "running"
            self.display.say(f"{member.name} has joined")
        moved = {p: self.owners[p] for p in partitions if self.owners.get(p, member.name) != member.name}
        fresh = [partition for partition in partitions if partition not in moved]
        if fresh:
            self.display.say(f"{member.name} gets {_partitions(fresh)}")
        for owner in sorted(set(moved.values())):
            those = [partition for partition in moved if moved[partition] == owner]
            self.display.say(f"{member.name} gets {_partitions(those)} from {owner}")
        self.owners.update(dict.fromkeys(partitions, member.name))
        member.partitions.update(partitions)

    def _gave_up(self, member: Member, event: str, partitions: list[int]) -> None:
        if partitions and member.state != "leaving":
            self.display.say(
                f"{member.name} {'gives up' if event == 'revoked' else 'has lost'} {_partitions(partitions)}"
            )
        member.partitions.difference_update(partitions)

    def _complete(self) -> bool:
        """Return whether all members have joined and every partition has an owner."""
        return self._all_owned() and all(member.state == "running" for member in self.crew.members)

    def _all_owned(self) -> bool:
        owned = [partition for member in self.crew.members for partition in member.partitions]
        return sorted(owned) == sorted(self.end)


def _partitions(numbers: Collection[int]) -> str:
    if not numbers:
        return "no partition"
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"


def offsets(bootstrap: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Return the first and the end offset of each partition. Raises KafkaError if there is no such topic."""
    with Consumer(
        bootstrap_servers=bootstrap, allow_auto_create_topics=False, default_api_timeout_ms=15_000
    ) as consumer:
        partitions = [TopicPartition(topic, info.partition) for info in consumer.partitions_for(topic)]
        if not partitions:
            raise KafkaError(f"there is no topic {topic!r} on {bootstrap}")
        begin, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return ({tp.partition: begin[tp] for tp in partitions}, {tp.partition: end[tp] for tp in partitions})


@contextlib.contextmanager
def own_topic(display: Screen, count: int) -> Iterator[str]:
    """Start a cluster, fill the topic, and yield the address."""
    from load import load

    with real_cluster(display) if has_java() else fake_cluster(display) as bootstrap:
        started = monotonic()
        load(bootstrap, TOPIC, count, lambda n: display.working(f"{n:,} events written"))
        took = monotonic() - started
        display.say(f"{count:,} events are in topic {TOPIC!r} ({PARTITIONS} partitions), written in {took:.1f} s")
        yield bootstrap


def has_java() -> bool:
    """Return whether this machine can run Apache Kafka: it has Java, and Maven to fetch Kafka with."""
    return all(map(shutil.which, ("java", "mvn")))


@contextlib.contextmanager
def real_cluster(display: Screen) -> Iterator[str]:
    """Start Apache Kafka with the topic, and yield its address."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
    from support.brokers.kafka import KafkaCluster

    display.working("starting Apache Kafka (the first time Maven fetches it) …")
    with KafkaCluster() as kafka:
        display.say(f"Apache Kafka {kafka.version} runs at {kafka.bootstrap_servers}")
        kafka.create_topic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
        yield kafka.bootstrap_servers


@contextlib.contextmanager
def fake_cluster(display: Screen) -> Iterator[str]:
    """Start a cluster in this process with the topic, and yield its address."""
    from kconsumer.testing import FakeCluster

    with FakeCluster() as cluster:
        display.say(f"no Java here: kconsumer's FakeCluster runs at {cluster.bootstrap_servers} in place of Kafka")
        cluster.create_topic(TOPIC, PARTITIONS, retention_ms=-1)
        yield cluster.bootstrap_servers


def read(display: Screen, bootstrap: str, topic: str, expected: int, timeout_s: float) -> Crew:
    """Let the members read the topic to its end and leave. Returns the crew, which has their counts."""
    begin, end = offsets(bootstrap, topic)
    group = f"kconsumer-demo-{uuid.uuid4().hex[:8]}"
    arguments = ["--bootstrap", bootstrap, "--topic", topic, "--group", group, "--expect", str(expected)]
    with Crew(arguments) as crew:
        started = monotonic()
        display.say(f"three members start in group {group}")
        for name in MEMBERS:
            crew.start(name)
        follow = Follow(crew, display, begin, end)
        follow.run(timeout_s)
        took = monotonic() - started
        display.say(f"all partitions are read to their end: {follow.total:,} offsets in {took:.1f} s")
        for member, report in crew.leave_all():
            follow.take(member, report)
        display.draw(crew.members, follow.done, follow.total)
    return crew


def verify(members: list[Member], expected: int) -> int:
    """Print the totals. Returns 0 if every event was seen and the sums of the purchases are right, else 1."""
    merged, deliveries = 0, 0
    for member in members:
        assert member.seen is not None
        merged |= int.from_bytes(member.seen, "big")
        deliveries += sum(member.seen)
    flags = merged.to_bytes(expected, "big")
    missing = [number for number, flag in enumerate(flags) if not flag] if 0 in flags else []
    distinct = expected - len(missing)
    print(f"\n{expected:,} events written, {distinct:,} seen, {deliveries - distinct:,} of them more than once")
    if missing:
        print(f"FAILED: {len(missing):,} events were not seen, the first are {missing[:5]}")
        return 1
    sold, counted = revenue_cents(expected), sum(member.cents for member in members)
    if deliveries == distinct and sold != counted:
        print(f"FAILED: {sold:,} cents were sold but the members counted {counted:,}")
        return 1
    print(f"the shop sold goods for {sold / 100:,.2f}")
    print("every record was seen")
    return 0


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="read from this cluster and start none")
    parser.add_argument("--topic", help="the topic to read there")
    parser.add_argument("--records", type=int, default=EVENTS, help="events to write (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds to read at most")
    parser.add_argument("--plain", action="store_true", help="lines in place of a live table")
    args = parser.parse_args()
    if (args.bootstrap is None) != (args.topic is None):
        parser.error("--bootstrap and --topic go together")
    if args.records < 1:
        parser.error("--records must be at least 1")
    return args


def main() -> int:
    """Run the demo and return the exit code."""
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so everything is stopped
    logging.basicConfig(level=logging.ERROR)  # errors are shown, reconnecting is not worth a line
    try:
        if args.bootstrap:
            with screen(args.plain) as display:
                crew = read(display, args.bootstrap, args.topic, 0, args.timeout)
            print(
                f"\n{sum(member.records for member in crew.members):,} records read, up to the end of every partition"
            )
            return 0
        with screen(args.plain) as display, own_topic(display, args.records) as bootstrap:
            crew = read(display, bootstrap, TOPIC, args.records, args.timeout)
        return verify(crew.members, args.records)
    except KeyboardInterrupt:
        print("\ninterrupted; everything the demo started is stopped")
        return 130
    except (KafkaError, RuntimeError, OSError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
