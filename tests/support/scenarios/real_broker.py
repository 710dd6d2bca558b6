"""Runs all scenarios against a real broker, several at a time, and compares with recorded responses.

    python -m support.scenarios.real_broker

with tests/ and the root on PYTHONPATH starts Kafka 4.4 and 3.9, one after the other, and writes what they respond to
`recorded/`.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.brokers.kafka import DEFAULT_VERSION, OLD_VERSION, KafkaCluster
from support.scenarios.catalog import ALL
from support.scenarios.peers import AUTHORIZERS, RealPeer
from support.scenarios.scenario import Scenario, warm_up

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = {"4.4": DEFAULT_VERSION, "3.9": OLD_VERSION}  # of Kafka, by release
WORKERS = 12  # most of them wait


def recorded(release: str) -> dict[str, list[str]]:
    """Returns the recorded steps of a release, by the name of the scenario."""
    found: dict[str, list[str]] = {}
    for block in (RECORDED / f"kafka-{release}.txt").read_text().split("\n\n"):
        name, *steps = block.strip().split("\n")
        found[name] = steps
    return found


def write(release: str, results: Mapping[str, list[str]]) -> None:
    """Write the recorded steps of a release."""
    blocks = ("\n".join([name, *results[name]]) for name in sorted(results))
    (RECORDED / f"kafka-{release}.txt").write_text("\n\n".join(blocks) + "\n")


def of_release(release: str) -> list[Scenario]:
    """Returns the scenarios that brokers of a release can run."""
    return [scenario for scenario in ALL.values() if release in scenario.releases]


def run_all(release: str, chosen: Collection[Scenario], workers: int = WORKERS) -> dict[str, list[str]]:
    """Run scenarios against brokers that it starts, `workers` at a time. Returns the steps of each."""
    found: dict[str, list[str]] = {}
    for authorizer, settings in AUTHORIZERS.items():
        of_broker = [scenario for scenario in chosen if scenario.authorizer == authorizer]
        if of_broker:
            found |= _run(release, of_broker, workers, _properties(settings))
    return found


def _properties(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns settings of the model as the properties of a real broker."""
    return {
        name.replace("_", "."): ";".join(value) if isinstance(value, tuple) else str(value)
        for name, value in settings.items()
    }


def _run(release: str, chosen: Iterable[Scenario], workers: int, properties: Mapping[str, str]) -> dict[str, list[str]]:
    """Start a broker with some properties, and run scenarios against it. Returns the steps of each."""
    with KafkaCluster(VERSIONS[release], properties=properties) as cluster:
        servers = cluster.bootstrap_servers
        first = RealPeer(servers)
        warm_up(first, release, 20)
        first.close()
        nonce = uuid.uuid4().hex[:6]

        def run(numbered: tuple[int, Scenario]) -> tuple[str, list[str]]:
            number, scenario = numbered
            peer = RealPeer(servers)
            try:
                return scenario.name, scenario.run(peer, release, f"s{number:04}-{nonce}-")
            except Exception as error:
                return scenario.name, [f"failed: {error!r}"]
            finally:
                peer.close()

        with ThreadPoolExecutor(workers) as pool:
            return dict(pool.map(run, enumerate(chosen)))


if __name__ == "__main__":
    for chosen in sys.argv[1:] or VERSIONS:
        write(chosen, run_all(chosen, of_release(chosen)))
