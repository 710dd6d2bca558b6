"""Each encoder, parser and handler of a ShareConsumer raises once at each of its call sites; afterwards polls receive.

The cluster is the model, the network is real. No record is lost: each is accepted, and is then never delivered again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import ShareConsumer, TopicPartition
from kconsumer.errors import KafkaError
from kconsumer.testing import FakeCluster
from support.harnesses.raise_once import MAX_ERRORS, PLACES, Fault, HookError, fail_in_encoder, failing_request
from support.members.share_groups import share_records

pytestmark = pytest.mark.network_thread

LIMIT_S = 20
LOCK_MS = 100  # records whose response was lost are delivered again after this time
RECORDS = 10
PARTITIONS = 2
SHARE_APIS = ["ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"]
APIS = ["ApiVersions", "Metadata", "FindCoordinator", *SHARE_APIS]
ONCE = {"Metadata", "FindCoordinator"}  # sent only once in the life of this consumer
HOOKS = ["key_deserializer", "value_deserializer", "on_acknowledge"]


def cases(names: list[str]) -> list[Any]:
    """Returns each name with the first and the second call."""
    return [
        pytest.param(name, number, id=f"{name}-{number}")
        for name in names
        for number in ([1] if name in ONCE else [1, 2])
    ]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with ten records in each partition, and the configuration of the group g."""
    with FakeCluster(
        group_share_heartbeat_interval_ms=20,
        group_share_record_lock_duration_ms=LOCK_MS,
        group_share_min_record_lock_duration_ms=LOCK_MS,
        group_share_delivery_count_limit=10,
    ) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        cluster.configure_group("g", share_auto_offset_reset="earliest")
        produce(cluster)
        yield cluster


def produce(cluster: FakeCluster) -> None:
    """Append ten records to each partition."""
    for partition in range(PARTITIONS):
        cluster.produce("t", [b"v"] * RECORDS, partition=partition, key=b"k")


class FaultyRun:
    """A share consumer, what it has received and accepted, and the errors of its calls."""

    def __init__(self, cluster: FakeCluster, fault: Fault) -> None:
        self.errors: list[BaseException] = []
        self.accepted: set[tuple[int, int]] = set()  # partition and offset
        self._acked: set[tuple[int, int]] = set()  # the others in a result were released by the consumer itself
        self.unknown: set[tuple[int, int]] = set()  # the acknowledgement has failed, but may have reached the broker
        self._cluster = cluster
        self._fault = fault
        self._expected = 0
        self.consumer = ShareConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            share_acknowledgement_mode="explicit",
            fetch_max_wait_ms=10,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
            key_deserializer=self._deserializer("key_deserializer"),
            value_deserializer=self._deserializer("value_deserializer"),
            on_acknowledge=self._acknowledged,
        )

    def _deserializer(self, name: str) -> Callable[[bytes], bytes]:
        def deserialize(data: bytes) -> bytes:
            self._fault(name)
            return data

        return deserialize

    def _acknowledged(self, offsets: dict[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
        results = self.accepted if error is None else self.unknown
        results |= {(tp.partition, offset) for tp, taken in offsets.items() for offset in taken} & self._acked
        self._fault("on_acknowledge")

    def run(self) -> None:
        """Receive and accept all records, by polls and by commits; leave and join again; receive more; close."""
        self._accept_all()
        self._call(self.consumer.unsubscribe)
        self._call(lambda: self.consumer.subscribe(["t"]))
        produce(self._cluster)
        self._accept_all()
        self._call(lambda: self.consumer.close(2))

    def _accept_all(self) -> None:
        self._expected += PARTITIONS * RECORDS
        deadline = time.monotonic() + LIMIT_S
        while len(self.accepted | self.unknown) < self._expected:
            assert time.monotonic() < deadline, (self.errors, self.accepted, self.unknown)
            self._call(self._poll)
            self._call(self.consumer.commit)

    def _poll(self) -> None:
        for record in share_records(self.consumer.poll(0.01)):
            assert (b"k", b"v") == (record.key, record.value)
            assert (record.partition, record.offset) not in self.accepted
            record.ack()
            self._acked.add((record.partition, record.offset))

    def _call(self, call: Callable[[], object]) -> None:
        """Call a function. Check that an error is documented or the callable's own."""
        try:
            call()
        except (KafkaError, HookError) as error:
            self.errors.append(error)


def check(cluster: FakeCluster, one: FaultyRun, fault: Fault | None = None) -> None:
    """Check that the fault has happened, that few errors were raised, and that no accepted record is delivered."""
    assert fault is None or fault.raised
    assert len(one.errors) <= MAX_ERRORS, one.errors
    with ShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as other:
        records = [*other.poll(1.5 * LOCK_MS / 1000), *other.poll(0)]
    assert {(record.partition, record.offset) for record in records} <= one.unknown - one.accepted


def test_without_a_fault(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an injected error the run sends every API and calls every user callable, and raises no error."""
    calls: list[str] = []

    class Counting(Fault):
        def __call__(self, name: str) -> None:
            calls.append(name)

    fault = Counting("", 0)
    fail_in_encoder(monkeypatch, fault)
    one = FaultyRun(cluster, fault)
    one.run()
    assert [] == one.errors
    assert {*APIS, *HOOKS} == set(calls)
    for name in {*APIS, *HOOKS} - ONCE:
        assert calls.count(name) >= 2, name
    check(cluster, one)


@pytest.mark.parametrize(("name", "number"), cases(HOOKS))
def test_hook_raises(cluster: FakeCluster, name: str, number: int) -> None:
    """The error of a user callable is raised by one call. The record is delivered again, and the results stand."""
    fault = Fault(name, number)
    one = FaultyRun(cluster, fault)
    one.run()
    # Records before one that cannot be deserialized are returned first, and then poll deserializes it again.
    assert (0 if name.endswith("deserializer") and number > 1 else 1) == len(one.errors), one.errors
    check(cluster, one, fault)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("name", "number"), cases(APIS))
def test_request_fails(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, name: str, number: int, place: str
) -> None:
    """A request that cannot be encoded, a response that cannot be parsed, and a bug in its handler affect no other
    request. The request is sent again, or a call raises, and the member recovers.
    """
    fault, raised = failing_request(monkeypatch, place, name, number)
    one = FaultyRun(cluster, fault)
    one.run()
    check(cluster, one, None if (place, name) == ("handler", "ApiVersions") else fault)
    assert all(isinstance(error, raised) for error in one.errors), one.errors


@pytest.mark.parametrize(("name", "number"), cases(APIS))
def test_half_a_response(cluster: FakeCluster, name: str, number: int) -> None:
    """If the connection is lost in the middle of a response, the member recovers."""
    one = FaultyRun(cluster, Fault("", 0))
    cluster.truncate_next(name, number)
    one.run()
    check(cluster, one)
