"""Cases with the results of Kafka's own range and round-robin assignors, kept in tests/assignors/golden.json.

With the file, equality with Java is checked where there is no Java. `python tests/support/oracles/assignor_golden.py`
(with tests/ and the repository on PYTHONPATH) writes the file again; tests/integration compares it with Java.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kconsumer.assignors import ClusterView, Subscription
from kconsumer.types import Node, PartitionInfo, TopicPartition
from support.oracles.assignor_groups import random_group

FILE = Path(__file__).parents[2] / "assignors" / "golden.json"
SEEDS = range(60)

Lists = dict[str, list[TopicPartition]]


@dataclass
class Case:
    """One case and its results, by assignor."""

    view: ClusterView
    subscriptions: dict[str, Subscription]
    results: dict[str, Lists]


def cases() -> Iterator[Case]:
    """Yield the cases of the file."""
    for entry in json.loads(FILE.read_text()):
        view = ClusterView(_infos(entry["racks"]))
        members = {
            member: Subscription(tuple(topics), rack_id=rack, group_instance_id=instance)
            for member, (topics, rack, instance) in entry["members"].items()
        }
        results = {name: {m: _parsed(text) for m, text in entry[name].items()} for name in ("range", "roundrobin")}
        yield Case(view, members, results)


def questions() -> Iterator[tuple[ClusterView, dict[str, Subscription]]]:
    """Yield the inputs of the file: racks in every other case, equal subscriptions in every third."""
    for seed in SEEDS:
        rng = random.Random(seed)
        yield random_group(rng, racks=seed % 2 * 3, equal=seed % 3 == 0, static=True, members=6, topics=5)


def entry(view: ClusterView, subscriptions: Mapping[str, Subscription], results: Mapping[str, Lists]) -> object:
    """Returns a case as it is written."""
    racks = {
        topic: [" ".join(node.rack for node in info.replicas if node.rack) for info in view.partitions(topic)]
        for topic in sorted(view.topics())
    }
    members = {member: [list(s.topics), s.rack_id, s.group_instance_id] for member, s in subscriptions.items()}
    written = {
        name: {member: _text(sorted(mine) if name == "range" else mine) for member, mine in sorted(given.items())}
        for name, given in results.items()
    }
    return {"racks": racks, "members": members, **written}


def _infos(topics: Mapping[str, list[str]]) -> Iterator[PartitionInfo]:
    for topic, found in topics.items():
        for partition, racks in enumerate(found):
            nodes = tuple(Node(number, "host", 9092, rack) for number, rack in enumerate(racks.split()))
            yield PartitionInfo(topic, partition, replicas=nodes or (Node(0, "host", 9092),))


def _text(mine: list[TopicPartition]) -> str:
    return " ".join(f"{topic}:{partition}" for topic, partition in mine)


def _parsed(text: str) -> list[TopicPartition]:
    pairs = (word.rpartition(":") for word in text.split())
    return [TopicPartition(topic, int(partition)) for topic, _, partition in pairs]


def main() -> None:
    """Ask Java and write the file."""
    from support.oracles.assignor_oracle import AssignorOracle

    with AssignorOracle() as oracle:
        entries = []
        for view, subscriptions in questions():
            results = {name: oracle.assign(name, view, subscriptions).given for name in ("range", "roundrobin")}
            entries.append(entry(view, subscriptions, results))
    FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in entries) + "\n]\n")


if __name__ == "__main__":
    main()
