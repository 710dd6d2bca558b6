"""Each alert of examples/monitoring fires for a consumer that has the problem, and not for one that has not. Prometheus
scrapes whole consumers in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import AuthenticationError, RecordDeserializationError
from kconsumer.prometheus import PrometheusReporter
from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster.cluster import Cluster
from support.harnesses.prometheus_rules import Labels, Scrapes, Vector, rules_of
from support.simulation.scheduler import Process
from support.simulation.short_run import append, run_simulated
from support.simulation.simulation import Simulation

RULES = {
    rule.alert: rule
    for rule in rules_of((Path(__file__).parents[2] / "examples/monitoring/alerts.yml").read_text(encoding="utf-8"))
}
TOPIC, CLIENT = "t", "c"
PARTITION = TopicPartition(TOPIC, 0)
SCRAPE_S = 15.0
MINUTE_S = 60.0
TARGET = ("instance", "host:9404")  # Prometheus adds such labels
ENGINES: dict[str, dict[str, Any]] = {
    "classic": {},
    "threaded": {"engine": "threaded"},
    "consumer protocol": {"group_protocol": "consumer"},
    "asyncio": {"asyncio": True},
}


def scrape(registry: CollectorRegistry) -> dict[str, Vector]:
    """Returns the series of a registry, each with the labels of its target."""
    found: dict[str, Vector] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels: Labels = frozenset([*sample.labels.items(), TARGET])
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


class Case:
    """A consumer that Prometheus scrapes."""

    def __init__(self, simulation: Simulation, **options: Any) -> None:
        self.simulation = simulation
        self.scrapes = Scrapes()
        self._registry = CollectorRegistry()
        defaults: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 10_000,
            "group_id": "g",
            "client_id": CLIENT,
        }
        reporters = [PrometheusReporter(self._registry)]
        self.consumer: Consumer = simulation.consumer(
            Process("consumer"), TOPIC, metrics_reporters=reporters, **(defaults | options)
        )
        simulation.spawn(Process("prometheus"), "scrapes", self._scrape)

    def _scrape(self) -> None:
        while True:
            self.scrapes.add(self.simulation.now / 1000, scrape(self._registry))
            self.simulation.sleep(SCRAPE_S * 1000)

    def write(self, batches: int, size: int = 1000) -> None:
        """Append batches of this number of records."""
        for _ in range(batches):
            append(self.simulation, TOPIC, [b"v"] * size)

    def sleep(self, seconds: float) -> None:
        """Let time pass, in which the consumer is not used."""
        self.simulation.sleep(seconds * 1000)

    def read(self, seconds: float, pause_s: float = 1.0) -> None:
        """Poll for this time, with a pause after each poll. Records that cannot be deserialized are tried again."""
        end = self.simulation.now + seconds * 1000
        while self.simulation.now < end:
            with suppress(RecordDeserializationError):
                self.consumer.poll(1.0)
            self.sleep(pause_s)


def firing(alert: str, scrapes: Scrapes) -> list[float]:
    """Returns the times (s) at which an alert fires. Checks that it names the consumer."""
    fires = list(RULES[alert].fires(scrapes))
    assert {CLIENT} >= {dict(labels)["client_id"] for _, labels in fires}
    assert {TARGET[1]} >= {dict(labels)[TARGET[0]] for _, labels in fires}
    return [at for at, _ in fires]


def run(program: Callable[[Case], object], hours: float = 2.0, **options: Any) -> Scrapes:
    """Run a program with a consumer. Returns what was scraped until the program has ended."""
    cluster = Cluster(1, seed=1)
    cluster.create_topic(TOPIC, 1)
    cases: list[Case] = []

    def simulate(simulation: Simulation) -> None:
        cases.append(Case(simulation, **options))
        program(cases[0])
        cases[0].consumer.close()

    run_simulated(simulate, cluster, hours * 3_600_000)
    return cases[0].scrapes


every_engine = pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)


@every_engine
def test_does_not_poll(options: dict[str, Any]) -> None:
    """ConsumerDoesNotPoll fires five minutes after the last poll, before or when the member leaves the group."""
    polled: list[float] = []

    def program(case: Case) -> None:
        case.read(20 * MINUTE_S, pause_s=120.0)
        polled.append(case.simulation.now / 1000)
        case.sleep(8 * MINUTE_S)

    fires = firing("ConsumerDoesNotPoll", run(program, **options))
    assert fires
    assert 300 <= min(fires) - polled[0] + 120 < 300 + 3 * SCRAPE_S


def slow(case: Case) -> None:
    """Read 120,000 records slowly."""
    case.write(120)
    case.read(25 * MINUTE_S, pause_s=30.0)


def keeping_up(case: Case) -> None:
    """Read 120,000 records at once, and then a few all the time."""
    case.write(120)
    case.read(60, pause_s=0.0)
    for _ in range(25):
        case.write(1, 10)
        case.read(MINUTE_S, pause_s=10.0)


@every_engine
def test_lags(options: dict[str, Any]) -> None:
    """ConsumerLags and ConsumerReadsOldRecords fire for a consumer that reads a large fetch slowly, in small parts."""
    scrapes = run(slow, max_poll_records=10, **options)
    assert firing("ConsumerLags", scrapes)
    assert firing("ConsumerReadsOldRecords", scrapes)
    assert not firing("ConsumerReadsNothing", scrapes)


def test_keeps_up() -> None:
    """No alert fires for a consumer that catches up, and keeps up from then on."""
    scrapes = run(keeping_up)
    assert {alert: [] for alert in RULES} == {alert: firing(alert, scrapes) for alert in RULES}


def paused(case: Case) -> None:
    """Pause the partition before all is read."""
    case.write(1, 600)
    case.read(10)
    case.consumer.pause(PARTITION)
    case.write(1, 50)
    case.read(20 * MINUTE_S, pause_s=10.0)


def paused_at_the_end(case: Case) -> None:
    """Pause the partition when all was read, and let records be written a moment later."""
    case.write(1, 100)
    case.read(5)
    case.consumer.pause(PARTITION)
    case.write(1, 50)
    case.read(20 * MINUTE_S, pause_s=10.0)


def poisoned(case: Case) -> None:
    """Poll the same record, which cannot be deserialized, again and again."""
    case.write(1, 100)
    case.read(20 * MINUTE_S, pause_s=10.0)


def fail(_data: bytes) -> object:
    """A deserializer that fails."""
    raise ValueError("poison")


@every_engine
@pytest.mark.parametrize(
    ("program", "more"),
    [(paused, {"max_poll_records": 1}), (paused_at_the_end, {}), (poisoned, {"value_deserializer": fail})],
    ids=["paused", "paused at the end", "poisoned"],
)
def test_reads_nothing(program: Callable[[Case], object], more: dict[str, Any], options: dict[str, Any]) -> None:
    """ConsumerReadsNothing fires for a consumer that polls, and gets no records although there are some."""
    assert firing("ConsumerReadsNothing", run(program, **more, **options))


def test_idle() -> None:
    """No alert fires for a consumer of a topic without new records, nor for one of an empty topic."""
    for written in (0, 1):

        def program(case: Case, written: int = written) -> None:
            case.write(written)
            case.read(20 * MINUTE_S)

        scrapes = run(program)
        assert {alert: [] for alert in RULES} == {alert: firing(alert, scrapes) for alert in RULES}


def rebalancing(count: int) -> Callable[[Case], None]:
    """Returns a program that rebalances this many times, every three minutes, and then reads for half an hour."""

    def program(case: Case) -> None:
        for _ in range(count):
            case.consumer.enforce_rebalance()
            case.read(3 * MINUTE_S, pause_s=5.0)
        case.read(30 * MINUTE_S, pause_s=5.0)

    return program


def test_rebalances_often() -> None:
    """GroupRebalancesOften fires for 20 rebalances in an hour, three minutes apart, and not for five."""
    assert firing("GroupRebalancesOften", run(rebalancing(20)))
    assert not firing("GroupRebalancesOften", run(rebalancing(5)))


@pytest.mark.parametrize("first_scrape", [0.0, 30.0], ids=["before the failure", "after the failure"])
def test_authentication(first_scrape: float) -> None:
    """AuthenticationFails fires for a wrong password, also if the only failure was before the first scrape."""
    sasl = {"mechanism": "PLAIN", "users": {"alice": "secret"}}
    found = {}
    with FakeCluster(sasl=sasl) as cluster:
        cluster.create_topic(TOPIC)
        for password in ("secret", "wrong"):
            registry, scrapes = CollectorRegistry(), Scrapes()
            with Consumer(
                bootstrap_servers=cluster.bootstrap_servers,
                client_id=CLIENT,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_plain_username="alice",
                sasl_plain_password=password,
                metrics_reporters=[PrometheusReporter(registry)],
            ) as consumer:
                if not first_scrape:
                    scrapes.add(0.0, scrape(registry))
                with suppress(AuthenticationError):
                    consumer.end_offsets([PARTITION])
                scrapes.add(30.0, scrape(registry))
            found[password] = firing("AuthenticationFails", scrapes)
    assert {"secret": [], "wrong": [30.0]} == found
