"""Brokers for integration tests: one that all tests share, and a cluster of three nodes for tests that kill nodes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer
from support.brokers.kafka import DEFAULT_VERSION, OLD_VERSION, Kafka, KafkaCluster
from support.brokers.kafka_shared import shared_kafka
from support.harnesses.ordering import longest_first

CHOSEN_VERSION = os.environ.get("KAFKA_VERSION", DEFAULT_VERSION)
ONLY_CLASSIC = CHOSEN_VERSION == OLD_VERSION

# Each takes one to four minutes. The first ones start together, on a machine that is busy starting brokers; chaos gives
# a group a limited time to come right, so it is not among them.
LONGEST = (
    "test_truncation.py",
    "test_every_record.py",
    "test_mixed_groups.py",
    "test_failover.py",
    "test_chaos.py",
    "test_close_states.py",
    "test_group_model.py",
    "test_who_serves.py",
    "test_soak.py",
    "test_transactions.py",
    "test_partition_states.py",
    "test_many_partitions.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test here as one that needs a broker and may wait for it to start. Drop tests of features that the
    chosen version of Kafka does not have.
    """
    here = Path(__file__).parent
    absent = []
    longest_first(items, LONGEST)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.broker)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if ONLY_CLASSIC and item.get_closest_marker("consumer_protocol") is not None:
                absent.append(item)
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if item not in absent]


@pytest.fixture(scope="session")
def kafka(run_folder: Path) -> Kafka:
    """The run's shared single-node broker; KAFKA_VERSION picks another version than the default."""
    return shared_kafka(run_folder, CHOSEN_VERSION)


@pytest.fixture(scope="session")
def kafka39(run_folder: Path) -> Kafka:
    """A shared single-node broker of the 3.9 line, which supports only the classic protocol."""
    return shared_kafka(run_folder, OLD_VERSION)


@pytest.fixture(scope="module")
def kafka_cluster3() -> Iterator[KafkaCluster]:
    """A cluster of three nodes for one module. Its tests may stop and kill nodes, and must start them again."""
    with KafkaCluster(CHOSEN_VERSION, nodes=3) as cluster:
        yield cluster


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic or group name that no other test uses."""
    return f"{request.node.originalname}-{uuid.uuid4().hex[:8]}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that makes consumers by `new_consumer`, or with the options of `engine`, with two engines.

    The first engine works on the caller's thread. The second has a network thread and uses the consumer protocol of
    KIP-848, unless the test is marked `classic_protocol` or the broker supports only the classic one.
    """
    if "engine" in metafunc.fixturenames:
        classic = ONLY_CLASSIC or metafunc.definition.get_closest_marker("classic_protocol") is not None
        other = pytest.param("threaded" if classic else "consumer", marks=pytest.mark.network_thread)
        metafunc.parametrize("engine", ["classic", other], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options that choose an engine."""
    chosen: dict[str, dict[str, Any]] = {
        "classic": {"heartbeat_interval_ms": 200},
        "threaded": {"heartbeat_interval_ms": 200, "engine": "threaded"},
        "consumer": {"group_protocol": "consumer"},
    }
    return chosen[request.param]


@pytest.fixture
def new_consumer(kafka: Kafka, engine: dict[str, Any]) -> Iterator[Callable[..., Consumer]]:
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
            return stack.enter_context(Consumer(*topics, **chosen))

        yield make
