"""Compares the assignors of kconsumer and Java in one run: `python benchmarks/assignors/run.py [--quick] [--huge]`.
With `--steps` it measures the steps of a leader instead (`steps.py`).

Both are warm: the best of many runs in one process counts, and Java and kconsumer alternate, so that other work on the
machine slows both. "cold" is the first run of a new JVM, as in the leader of a small or new group. The time is that of
the assignor of the leader, from subscriptions to assignments, including the decoding of user data. Input and output
objects are created outside the measured time for both. Exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "assignors")]

from kconsumer.assignors import Assignment, Assignor, ClusterView, Subscription, load, validate
from kconsumer.testing.assignors import cluster
from kconsumer.types import GroupMetadata
from support.oracles.assignor_oracle import AssignorOracle

GENERATION = 5
MAX_EVENT_S = 10.0  # after two rounds of one event
STICKY = ("sticky", "cooperative-sticky")
ALL = ("range", "roundrobin", *STICKY)
Group = dict[str, Subscription]


@dataclass(frozen=True)
class Shape:
    """A group, and the number of rounds."""

    label: str
    topics: int
    partitions: int
    members: int
    names: tuple[str, ...]
    mixed: bool = False
    racks: int = 0
    rounds: int = 12

    def limit(self, event: str) -> float:
        """Return the limit for kconsumer, in multiples of the time of a warm Java."""
        return 1.5 if event == "first" else 2.0

    def view(self) -> ClusterView:
        """Return topics of equal size, with two replicas each."""
        racks = [f"rack-{number}" for number in range(self.racks)]
        return cluster({f"topic-{number:03}": self.partitions for number in range(self.topics)}, racks, replicas=2)

    def group(self, seed: int = 1, members: int | None = None) -> Group:
        """Return members with realistic ids. In mixed groups they subscribe to half of the topics on average."""
        rng = random.Random(seed)
        topics = sorted(self.view().topics())
        made = {}
        for number in range(members or self.members):
            wanted = sorted(rng.sample(topics, rng.randint(1, len(topics)))) if self.mixed else topics
            rack = f"rack-{number % self.racks}" if self.racks else None
            made[f"consumer-{number:04}-{rng.randbytes(16).hex()}"] = Subscription(tuple(wanted), rack_id=rack)
        return made


SHAPES = (
    Shape("200 x 50, 500 equal", 200, 50, 500, ALL),
    Shape("200 x 50, 500 equal, racks", 200, 50, 500, ("range", "sticky"), racks=3),
    Shape("100 x 30, 200 mixed", 100, 30, 200, STICKY, mixed=True),
)
HUGE = Shape("500 x 2000, 2000 equal", 500, 2000, 2000, ("sticky",))


def owning(assignor: Assignor, group: Group, given: Mapping[str, Assignment]) -> Group:
    """Return the members as they join again after an assignment."""
    kind, result = type(assignor), {}
    for member, subscription in group.items():
        own = kind()
        own.on_assignment(given[member], GroupMetadata("bench", GENERATION, member))
        result[member] = replace(
            subscription,
            user_data=own.subscription_user_data(frozenset(subscription.topics)),
            owned_partitions=given[member].partitions if assignor.name == "cooperative-sticky" else (),
            generation_id=GENERATION,
        )
    return result


def events(shape: Shape, assignor: Assignor) -> Iterator[tuple[str, Group]]:
    """Yield the events of a group: the first assignment, ten members leaving, a tenth joining."""
    group = shape.group()
    yield "first", group
    settled = owning(assignor, group, assignor.assign(shape.view(), group))
    gone = set(random.Random(3).sample(sorted(settled), 10))
    yield "10 leave", {member: s for member, s in settled.items() if member not in gone}
    if assignor.name in STICKY:
        yield "a tenth joins", {**settled, **shape.group(seed=2, members=shape.members // 10)}


def _ms(call: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    result = call(*arguments)
    elapsed = time.perf_counter() - start
    del result  # after the measurement: Java's result is not freed within its time either
    return elapsed * 1000


def compare(oracle: AssignorOracle, shape: Shape, rounds: int) -> bool:
    """Print a line for each assignor and event. Returns whether all are within the limit."""
    view, good = shape.view(), True
    for name in shape.names:
        assignor = load(name)
        for event, group in events(shape, assignor):
            java, ours = [], []
            deadline = time.monotonic() + MAX_EVENT_S
            while len(ours) < rounds and (len(ours) < 2 or time.monotonic() < deadline):
                java.append(min(oracle.assign(name, view, group, runs=3).times_ns) / 1e6)
                ours.append(min(_ms(assignor.assign, view, group) for _ in range(3)))
            with AssignorOracle() as fresh:
                cold = fresh.assign(name, view, group).times_ns[0] / 1e6
            given = assignor.assign(view, group)
            check = min(_ms(validate, assignor, view, group, given) for _ in range(3))
            good &= report(shape, event, name, (cold, min(java), min(ours), check))
    return good


def report(shape: Shape, event: str, name: str, times: tuple[float, float, float, float]) -> bool:
    """Print one line. Returns whether kconsumer is within the limit."""
    cold, java, ours, check = times
    limit = shape.limit(event)
    verdict = "" if ours <= limit * java else "  OVER"
    figures = f"{cold:9.1f} {java:9.1f} {ours:9.1f} {ours / java:7.2f} {limit:6.1f} {check:9.1f}{verdict}"
    print(f"{shape.label:27} {event:14} {name:19} {figures}", flush=True)
    return not verdict


def huge() -> None:
    """Assign a million partitions twice, for which Kafka's own tests allow 30 s, without Java."""
    view, group, assignor = HUGE.view(), HUGE.group(), load("sticky")
    start = time.perf_counter()
    given = assignor.assign(view, group)
    first = time.perf_counter() - start
    again = owning(assignor, group, given)
    second = _ms(assignor.assign, view, again) / 1000
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{HUGE.label:27} first {first:.1f} s, again {second:.1f} s; peak RSS {peak} MB")


def main() -> int:
    """Run the comparison, or the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of each, only to show that it runs")
    parser.add_argument("--huge", action="store_true", help="also assign a million partitions")
    parser.add_argument("--steps", action="store_true", help="measure only the steps of a leader, without Java")
    options = parser.parse_args()
    if options.steps:
        import steps  # needs the path that is set above

        steps.measure(1 if options.quick else 20)
        return 0
    columns = f"{'cold ms':>9} {'Java ms':>9} {'ours ms':>9} {'ratio':>7} {'limit':>6} {'check ms':>9}"
    print(f"{'group':27} {'event':14} {'assignor':19} {columns}")
    with AssignorOracle() as oracle:
        verdicts = [compare(oracle, shape, 1 if options.quick else shape.rounds) for shape in SHAPES]
    if options.huge:
        huge()
    return 0 if all(verdicts) or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
