"""Measures the assignors alone: one assignment of many partitions to many members, in CPU time."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from typing import Any

from kconsumer.assignors import Subscription, load
from kconsumer.testing.assignors import cluster
from kconsumer.types import GroupMetadata

TOPICS = 100
ROUNDS = 3
GENERATION = 1


@dataclass(frozen=True)
class Assignment:
    """An assignment to measure. All members subscribe to all topics."""

    assignor: str
    members: int
    partitions: int


def measure(shape: Assignment) -> dict[str, Any]:
    """Return the best time of the first assignment, and of the next one after a member has left."""
    rng, assignor = random.Random(1), load(shape.assignor)
    per_topic = shape.partitions // min(TOPICS, shape.partitions)
    view = cluster({f"topic-{number:03}": per_topic for number in range(shape.partitions // per_topic)}, replicas=3)
    topics = tuple(sorted(view.topics()))
    group = {f"consumer-{number}-{rng.randbytes(16).hex()}": Subscription(topics) for number in range(shape.members)}
    first = best(lambda: assignor.assign(view, group))
    given = assignor.assign(view, group)
    settled = {}
    for member, subscription in group.items():
        own = type(assignor)()
        own.on_assignment(given[member], GroupMetadata("scale", GENERATION, member))
        owned = given[member].partitions if assignor.name == "cooperative-sticky" else ()
        data = own.subscription_user_data(frozenset(topics))
        settled[member] = replace(subscription, user_data=data, owned_partitions=owned, generation_id=GENERATION)
    del settled[next(iter(settled))]
    again = best(lambda: assignor.assign(view, settled))
    return {"first_s": first, "leave_s": again}


def best(call: Any) -> float:
    """Return the shortest CPU time of several calls in seconds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        result = call()
        times.append(time.process_time() - began)
        del result
    return min(times)
