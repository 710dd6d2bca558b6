"""Brokers for integration tests: one that all tests share, and a cluster of three nodes for tests that kill nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from kconsumer import Consumer, TopicPartition
from support.aio.asyncio_tests import runs_on_asyncio
from support.aio.blocking import BlockingConsumer, ThreadRunners
from support.brokers.fake_kafka import FakeKafka
from support.brokers.fake_kafka_tests import needs_real_broker
from support.brokers.kafka import CHOSEN_VERSION, OLD_VERSION, Kafka, KafkaCluster
from support.brokers.kafka_jars import release_of
from support.brokers.kafka_shared import shared_kafka
from support.brokers.needed_versions import missing_in
from support.brokers.real_broker_twins import has_real_broker_twin
from support.harnesses.awaited import EventLoop
from support.harnesses.ordering import longest_first
from support.harnesses.polling import numbered
from support.nightly import is_engine_nightly

ONLY_CLASSIC = release_of(CHOSEN_VERSION) < (4, 0)

# Each takes half a minute to two minutes. The first ones start together, on a machine that is busy starting brokers;
# chaos gives a group a limited time to come right, so it is not among them.
LONGEST = (
    "test_who_serves.py",
    "test_mixed_groups.py",
    "test_chaos.py",
    "test_transactions.py",
    "test_sasl.py",
    "test_tls.py",
    "test_truncation.py",
    "test_consumer_protocol.py",
    "test_close_states.py",
    "test_broker_runner.py",
    "test_failover.py",
    "test_cluster_scenarios.py",
)


ENGINES: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 200},
    "threaded": {"heartbeat_interval_ms": 200, "engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}


@dataclass(frozen=True)
class Engine:
    """The parameter of tests that run with several engines."""

    name: str  # a key of ENGINES
    asyncio: bool = False  # with an AsyncConsumer

    @property
    def id(self) -> str:
        """What test ids contain."""
        return "asyncio" if self.asyncio else self.name

    def as_parameter(self, *, nightly: bool) -> Any:
        """Returns the parameter with its name and marks."""
        marks = [] if self.name == "classic" else [pytest.mark.network_thread]
        return pytest.param(self, marks=[*marks, pytest.mark.long] if nightly else marks, id=self.id)


def runs_on_model(config: pytest.Config) -> bool:
    """Returns True with `--cluster=fake`."""
    return config.getoption("--cluster") == "fake"


def is_for(cluster: str, node_id: str) -> bool:
    """Returns True if this test runs with this value of `--cluster`."""
    if cluster == "fake":
        return not needs_real_broker(node_id)
    return cluster == "kafka" or needs_real_broker(node_id) or has_real_broker_twin(node_id)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test here as one that needs a broker and may wait for it to start. Skip tests of features that the
    chosen version of Kafka does not have, and drop those that do not run with this value of `--cluster`.
    """
    here = Path(__file__).parent
    cluster = config.getoption("--cluster")
    absent = []
    longest_first(items, LONGEST)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if not is_for(cluster, item.nodeid):
                absent.append(item)
            elif lacking := missing_in(CHOSEN_VERSION, item.nodeid, [mark.name for mark in item.iter_markers()]):
                item.add_marker(pytest.mark.skip(f"Kafka {CHOSEN_VERSION} lacks what begins with {lacking}"))
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


@pytest.fixture(scope="session")
def new_cluster(request: pytest.FixtureRequest) -> type[KafkaCluster] | type[FakeKafka]:
    """The class of clusters that a test starts for itself: of a real Kafka, or of the model with `--cluster=fake`."""
    return FakeKafka if runs_on_model(request.config) else KafkaCluster


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest, run_folder: Path) -> Iterator[Kafka]:
    """The run's shared single-node broker; KAFKA_VERSION picks another version than the default."""
    yield from shared_broker(request.config, run_folder, CHOSEN_VERSION)


@pytest.fixture(scope="session")
def kafka39(request: pytest.FixtureRequest, run_folder: Path) -> Iterator[Kafka]:
    """A shared single-node broker of the 3.9 line, which supports only the classic protocol."""
    yield from shared_broker(request.config, run_folder, OLD_VERSION)


def shared_broker(config: pytest.Config, run_folder: Path, version: str) -> Iterator[Kafka]:
    """Yields a broker of all tests of the run, or a model of all tests of this worker."""
    if runs_on_model(config):
        with FakeKafka(version) as fake:
            yield fake
    else:
        yield shared_kafka(run_folder, version)


@pytest.fixture(scope="module")
def kafka_cluster3(new_cluster: type[KafkaCluster] | type[FakeKafka]) -> Iterator[KafkaCluster | FakeKafka]:
    """A cluster of three nodes for one module. Its tests may stop and kill nodes, and must start them again."""
    with new_cluster(CHOSEN_VERSION, nodes=3) as cluster:
        yield cluster


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic or group name that no other test uses."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that makes consumers by `new_consumer`, or with the options of `engine`, with two engines.

    The first engine works on the caller's thread. The second has a network thread and uses the consumer protocol of
    KIP-848, unless the test is marked `classic_protocol` or the broker supports only the classic one. Tests marked
    `consumer_protocol` run with the second one only. Tests of the API that make all consumers by `consumer_type` or
    `new_consumer` run once more, with an AsyncConsumer like the second engine. `support/nightly.py` says which of these
    runs `make test` leaves to the night.
    """
    if "engine" in metafunc.fixturenames:
        find_mark = metafunc.definition.get_closest_marker
        classic = ONLY_CLASSIC or find_mark("classic_protocol") is not None
        other = "threaded" if classic else "consumer"
        engines = [Engine(other)] if find_mark("consumer_protocol") else [Engine("classic"), Engine(other)]
        if runs_on_asyncio(metafunc.definition.nodeid) and "consumer_type" in metafunc.fixturenames:
            engines.append(Engine(other, asyncio=True))
        where = metafunc.definition.path.name, metafunc.function.__name__
        ids = [engine.id for engine in engines]
        parameters = [one.as_parameter(nightly=is_engine_nightly(*where, one.id, ids)) for one in engines]
        metafunc.parametrize("engine", parameters, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options that choose an engine."""
    chosen: Engine = request.param
    return ENGINES[chosen.name]


def uses_asyncio(request: pytest.FixtureRequest) -> bool:
    """Returns True if a test that runs with several engines uses an AsyncConsumer now."""
    engine = getattr(request.node, "callspec", None) and request.node.callspec.params.get("engine")
    return isinstance(engine, Engine) and engine.asyncio


@pytest.fixture
def consumer_type(request: pytest.FixtureRequest, engine: dict[str, Any]) -> Iterator[Callable[..., Consumer]]:
    """`Consumer`, or what makes an AsyncConsumer with the same interface."""
    if not uses_asyncio(request):
        yield Consumer
        return
    with closing(ThreadRunners()) as runners:
        yield cast("Callable[..., Consumer]", partial(BlockingConsumer, runners))


@pytest.fixture
def new_consumer(
    kafka: Kafka, engine: dict[str, Any], consumer_type: Callable[..., Consumer]
) -> Iterator[Callable[..., Consumer]]:
    """Returns a function that makes consumers of the shared broker. They read from the beginning and are closed after
    the test.
    """
    with ExitStack() as stack:

        def make(*topics: str, **options: Any) -> Consumer:
            chosen = {
                "bootstrap_servers": kafka.bootstrap_servers,
                "auto_offset_reset": "earliest",
                **engine,
                **options,
            }
            return stack.enter_context(consumer_type(*topics, **chosen))

        yield make


@pytest.fixture(params=["blocking", "awaitable"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a test with the blocking functions and classes that its module imports, and with those of kconsumer.aio."""
    with EventLoop() as loop:
        if request.param == "awaitable":
            loop.replace_names(request.module, monkeypatch)
        yield request.param


@pytest.fixture
def ten(kafka: Kafka, topic_name: str) -> TopicPartition:
    """A partition with the values 0 to 9."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, numbered(10))
    return TopicPartition(topic_name, 0)


@pytest.fixture
def topic(kafka: Kafka, topic_name: str) -> str:
    """A topic of two partitions with the values 0 to 9 each."""
    kafka.create_topic(topic_name, 2)
    for partition in (0, 1):
        kafka.produce(topic_name, numbered(10), partition=partition)
    return topic_name
