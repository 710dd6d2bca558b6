"""The demo's data: a web shop's clickstream, the same on every run, each event with its own sequence number."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

PARTITIONS = 6
FIRST_TIMESTAMP = 1_780_000_000_000  # ms; the shop opens
_KINDS = {"view": 70, "search": 15, "add_to_cart": 10, "purchase": 5}
_COUNTRIES = ("DE", "FR", "IN", "JP", "BR", "US", "NG", "VN")
_STEP = 7_919  # a prime: steps of this size visit every entry in an order that looks random


@dataclass(frozen=True, slots=True)
class Visit:
    """What one user did, without the time. A few thousand visits are repeated to make any number of events."""

    user: bytes
    kind: str
    cents: int
    fields: str


def visits(count: int = 4_096) -> list[Visit]:
    """Return `count` visits, which are the same in every run."""
    rng = random.Random(2026)
    made = []
    for _ in range(count):
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        user, cents = (
            f"user-{rng.randrange(40_000):05d}",
            rng.randrange(199, 25_000) if kind == "purchase" else 0,
        )
        fields = {
            "user": user,
            "type": kind,
            "item": f"sku-{rng.randrange(9_000):04d}",
            "cents": cents,
            "country": rng.choice(_COUNTRIES),
            "session": f"{rng.getrandbits(48):012x}",
        }
        made.append(Visit(user.encode(), kind, cents, json.dumps(fields)[1:]))
    return made


def events(count: int) -> Iterator[tuple[bytes, str, int]]:
    """Yield key, value and timestamp (ms) of events 0 to `count` - 1."""
    pool = visits()
    for number in range(count):
        visit = pool[number * _STEP % len(pool)]
        timestamp = FIRST_TIMESTAMP + number // 4
        yield visit.user, f'{{"seq": {number}, "ts": {timestamp}, {visit.fields}', timestamp


def revenue_cents(count: int) -> int:
    """Return the sum of the purchases in events 0 to `count` - 1, in cents. The members must get the same sum."""
    pool = visits()
    rounds, rest = divmod(count, len(pool))
    total = rounds * sum(visit.cents for visit in pool)
    return total + sum(pool[number * _STEP % len(pool)].cents for number in range(rest))
