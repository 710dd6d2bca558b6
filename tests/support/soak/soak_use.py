"""Limits for the memory, file descriptors, threads and poll times of a reader in a soak."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

# From the second quarter to the last: what the allocator keeps after a burst, and nothing that grows with time.
GROWTH_KB = 16 << 10
# Two connections to each of three brokers and bootstrap, epoll, wakeup, standard streams; spare ones while some end.
FDS = 24
THREADS = 3  # main, heartbeat, and the one that waits for the end of input
SLOWEST_POLL_S = 10.0  # of 0.5 s asked for


class Status(NamedTuple):
    """What a reader's process used at a moment."""

    at: float
    rss_kb: int
    fds: int
    threads: int
    cpu_s: float
    slowest_poll_s: float


def use(statuses: Sequence[Status]) -> dict[str, Any]:
    """Returns the memory of a process in the second and the last quarter, and maxima of what else it used."""
    early, late = quarters(statuses)
    return {
        "rss_mb": [round(statistics.median(s.rss_kb for s in part) / 1024, 1) for part in (early, late)],
        "peak_rss_mb": round(max(s.rss_kb for s in statuses) / 1024, 1),
        "fds": max(s.fds for s in statuses),
        "threads": max(s.threads for s in statuses),
        "cpu_s": round(statuses[-1].cpu_s, 1),
        "slowest_poll_s": round(statuses[-1].slowest_poll_s, 2),
    }


def quarters(statuses: Sequence[Status]) -> tuple[Sequence[Status], Sequence[Status]]:
    """Returns the second and the last quarter of the run. The first one is for warming up."""
    quarter = max(1, len(statuses) // 4)
    return statuses[quarter : 2 * quarter] or statuses[:1], statuses[-quarter:]


def check_use(name: str, statuses: Sequence[Status]) -> list[str]:
    """Returns where a reader exceeded its limits or used more and more."""
    used = use(statuses)
    early, late = used["rss_mb"]
    bounds: list[tuple[str, float, float]] = [
        ("MB grown", late - early, GROWTH_KB / 1024),
        ("file descriptors", used["fds"], FDS),
        ("threads", used["threads"], THREADS),
        ("seconds in a poll", used["slowest_poll_s"], SLOWEST_POLL_S),
    ]
    return [f"{name}: {value} {what}, at most {most}" for what, value, most in bounds if value > most]
