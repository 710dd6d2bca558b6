"""Each user callable, each encoder and each parser raises once at each of its call sites; afterwards polls join and
read.

The cases are generated from the tables of the code: the APIs of the schema, and the methods of plugins and listeners.
A case runs with one of the engines, another one each day (`tox -e interruptions`: with all of them).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from kconsumer import Consumer, MetricsReporter, RebalanceListener, TopicPartition
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.coordinator.classic_protocol import leader
from kconsumer.errors import KafkaError, ProtocolError
from kconsumer.schema import APIS
from kconsumer.testing import FakeCluster
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.types import GroupMetadata
from support.harnesses.engines import ENGINES
from support.harnesses.inside import model_of, parts_of, server_of
from support.harnesses.interruptions import one_of
from support.harnesses.raise_once import MAX_ERRORS, PLACES, Fault, HookError, fail_in_encoder, failing_request

INTERVAL_MS = 5
SESSION_MS = 1500  # a coordinator waits this long for a member that did not get its member id
TPS = (TopicPartition("t", 0), TopicPartition("u", 0))
LIMIT_S = 20
SASL = {"mechanism": "PLAIN", "users": {"alice": "secret"}}
POLL_S = 0.005  # most of a run is spent in such waits
RECORDS = 10

OF_CLASSIC_GROUPS = {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}
OF_CONSUMER_GROUPS = {"ConsumerGroupHeartbeat"}
OF_LOGINS = {"SaslHandshake", "SaslAuthenticate"}
OF_EVERY_CONSUMER = {
    "ApiVersions",
    "Metadata",
    "FindCoordinator",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "ListOffsets",
    "Fetch",
    "OffsetCommit",
}
OF_SHARE_CONSUMERS = {"ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"}  # see test_share_raise_once.py
OF_ADMINS = {
    "DescribeGroups",
    "ListGroups",
    "ConsumerGroupDescribe",
    "ShareGroupDescribe",
    "DescribeShareGroupOffsets",
    "DeleteGroups",
}
# Defined, but sent by no consumer or admin of these tests.
OF_SHARE_ADMINS = {"AlterShareGroupOffsets", "DeleteShareGroupOffsets"}
# Sent only to brokers that announce them. No error of theirs is raised: test_telemetry.py.
OF_TELEMETRY = {"GetTelemetrySubscriptions", "PushTelemetry"}
# Callables that are called only once in the life of these consumers.
ONCE = {"LeaveGroup", "init", "close", "Metadata", "FindCoordinator", "ListOffsets"}


class FaultyRun:
    """A consumer with a user callable of each kind, its cluster, and the errors of its polls."""

    def __init__(self, cluster: FakeCluster, engine: str, fault: Fault, **options: Any) -> None:
        self.cluster, self.engine, self.fault = cluster, engine, fault
        self.errors: list[Exception] = []
        self.calls: Counter[str] = Counter()  # of methods of plugins and of the listener
        self.written = RECORDS
        self.read: dict[TopicPartition, set[int]] = {tp: set() for tp in TPS}
        self.listener: Any = self._hooked(RebalanceListener, LISTENER)
        self.consumer = Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=INTERVAL_MS,
            fetch_max_wait_ms=10,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
            request_timeout_ms=5_000,
            **self._hooks(),
            **({} if engine == "consumer" else self._classic()),
            **ENGINES[engine],
            **options,
        )

    # --- hooks ---

    def _hooks(self) -> dict[str, Any]:
        fault = self.fault

        def deserializer(name: str) -> Callable[[bytes], bytes]:
            def deserialize(data: bytes) -> bytes:
                fault(name)
                return data

            return deserialize

        return {
            "key_deserializer": deserializer("key_deserializer"),
            "value_deserializer": deserializer("value_deserializer"),
            "on_commit": lambda *_: fault("on_commit option"),
            "interceptors": [self._hooked(object, ["on_consume", "on_commit", "close"])],
            "metrics_reporters": [self._hooked(MetricsReporter, REPORTER)],
        }

    def _classic(self) -> dict[str, Any]:
        options = {"heartbeat_interval_ms": INTERVAL_MS, "session_timeout_ms": SESSION_MS}
        return {**options, "assignors": [self._assignor()]}

    def _assignor(self) -> Assignor:
        fault = self.fault

        class Everything(Assignor):
            """An assignor that gives the only member all partitions of its topics."""

            name = "everything"
            protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

            def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
                fault("subscription_user_data")
                return b""

            def assign(
                self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
            ) -> Mapping[str, Assignment]:
                fault("assign")
                return {
                    member: Assignment(tuple(tp for tp in TPS if tp.topic in subscription.topics), b"")
                    for member, subscription in subscriptions.items()
                }

            def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
                fault("on_assignment")

        return Everything()

    def _hooked(self, base: type, methods: list[str]) -> Any:
        """Returns an object that behaves like one of the class, except that its methods may raise."""

        def method(name: str) -> Callable[..., Any]:
            def run(hooked: Any, *arguments: Any) -> Any:
                self.calls[name] += 1
                self.fault(name)
                inherited = getattr(base, name, None)
                if inherited is not None:
                    return inherited(hooked, *arguments)
                return arguments[0] if name == "on_consume" else None

            return run

        return type("Hooked", (base,), {name: method(name) for name in methods})()

    # --- what happens ---

    def run(self) -> None:
        """Join and read, commit, give a partition up and get it back, get evicted twice, continue reading, close."""
        self._subscribe("t", "u")
        self._until(self._everything_read)
        self._call(lambda: self.consumer.commit_async(callback=lambda *_: self.fault("commit callback")))
        self._until(lambda: dict.fromkeys(TPS, RECORDS) == self._committed())
        self._subscribe("t")
        self._subscribe("t", "u")
        for _ in range(2):
            lost = self.calls["on_partitions_lost"]
            self._evict()
            self._until(lambda lost=lost: self.calls["on_partitions_lost"] > lost and self._owns(TPS))
        produce(self.cluster, self.written)
        self.written += RECORDS
        self._call(lambda: self.consumer.commit_async(callback=lambda *_: self.fault("commit callback")))
        self._until(self._everything_read)
        self._call(lambda: self.consumer.close(2))

    def _subscribe(self, *topics: str) -> None:
        """Subscribe to topics, and poll until the member owns their partitions."""
        self._call(lambda: self.consumer.subscribe(topics, listener=self.listener))
        self._until(lambda: self._owns([tp for tp in TPS if tp.topic in topics]))

    def _owns(self, partitions: Iterable[TopicPartition]) -> bool:
        """Returns whether the member owns these partitions, and is not in a rebalance."""
        group = parts_of(self.consumer).group
        return group.membership.idle and self.consumer.assignment() == set(partitions)

    def _evict(self) -> None:
        """Let the coordinator forget the member, or fence it."""
        if self.engine == "consumer":
            self.cluster.fail_next("ConsumerGroupHeartbeat", "FENCED_MEMBER_EPOCH")
            return
        with server_of(self.cluster).change() as now:
            model_of(self.cluster).groups.remove("g", now)

    def _committed(self) -> dict[TopicPartition, int]:
        return {tp: known.offset for tp, known in self.cluster.committed("g").items()}

    def _everything_read(self) -> bool:
        return self.read == {TPS[0]: {*range(2, self.written)}, TPS[1]: {*range(self.written)}}

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.errors, self.read, self.consumer.partition_states())
            self._call(self._poll)

    def _poll(self) -> None:
        for record in self.consumer.poll(POLL_S):
            assert b"%d" % record.offset == record.value
            self.read[record.topic_partition].add(record.offset)

    def _call(self, call: Callable[[], object]) -> None:
        """Call a function. Check that an error is documented or the callable's own."""
        try:
            call()
        except (KafkaError, HookError) as error:
            self.errors.append(error)


def _public(cls: type) -> list[str]:
    """Returns the methods of a class that users may override."""
    return [name for name, value in vars(cls).items() if callable(value) and not name.startswith("_")]


LISTENER = _public(RebalanceListener)
REPORTER = _public(MetricsReporter)
ASSIGNOR = [name for name in _public(Assignor) if name != "configure"]  # raises in the constructor of the consumer
OTHERS = [
    "key_deserializer",
    "value_deserializer",
    "on_commit option",
    "commit callback",
    "on_consume",
    "on_commit",
    "close",
]
# Errors that polls log and do not raise.
SILENT = {*REPORTER, "on_consume", "on_commit", "close"}


def _apis(engine: str) -> list[str]:
    of_group = OF_CONSUMER_GROUPS if engine == "consumer" else OF_CLASSIC_GROUPS
    return sorted(OF_EVERY_CONSUMER | of_group)


def _cases(names: Callable[[str], list[str]]) -> list[Any]:
    """Returns all names with their first and second call. Each case runs with one of the engines that have the name."""
    found: list[Any] = []
    for row, name in enumerate(dict.fromkeys(name for engine in ENGINES for name in names(engine))):
        able = [engine for engine in ENGINES if name in names(engine)]
        for number in [1] if name in ONCE else [1, 2]:
            for engine in one_of(able, row + number):
                marks = [] if engine == "classic" else [pytest.mark.network_thread]
                found.append(pytest.param(engine, name, number, marks=marks, id=f"{engine}-{name}-{number}"))
    return found


@contextmanager
def new_cluster(**options: Any) -> Iterator[FakeCluster]:
    """A cluster with ten records in each partition. The first has a committed offset, whose epoch is validated."""
    options |= {"group_consumer_heartbeat_interval_ms": INTERVAL_MS, "group_min_session_timeout_ms": SESSION_MS}
    with FakeCluster(**options) as cluster:
        for tp in TPS:
            cluster.create_topic(tp.topic)
        produce(cluster, 0)
        with server_of(cluster).change():
            model_of(cluster).offsets.put("g", "t", 0, CommittedOffset(2, 0, "", int(time.time() * 1000)))
        yield cluster


def produce(cluster: FakeCluster, first: int) -> None:
    """Append records to both partitions; their values are their offsets, which begin with `first`."""
    for tp in TPS:
        cluster.produce(tp.topic, [(b"key", b"%d" % offset) for offset in range(first, first + RECORDS)])


MakeRun = Callable[..., FaultyRun]


@pytest.fixture
def make_run() -> Iterator[MakeRun]:
    """Return a function that makes runs; their consumers are closed after the test."""
    with ExitStack() as stack:

        def make(engine: str, fault: Fault, sasl: Any = None, **options: Any) -> FaultyRun:
            cluster = stack.enter_context(new_cluster(sasl=sasl))
            run = FaultyRun(cluster, engine, fault, **options)
            stack.callback(suppressed, lambda: run.consumer.close(0))
            return run

        yield make


def suppressed(call: Callable[[], object]) -> None:
    """Call a function, and ignore its error."""
    with suppress(Exception):
        call()


def test_no_hook_and_no_api_is_left_out() -> None:
    """The tests include every callable and API: a new API of the schema fails this test until it is added."""
    of_consumers = OF_CLASSIC_GROUPS | OF_CONSUMER_GROUPS | OF_LOGINS | OF_EVERY_CONSUMER | OF_SHARE_CONSUMERS
    everything = of_consumers | OF_ADMINS | OF_SHARE_ADMINS | OF_TELEMETRY
    assert everything == {api.name for api in APIS.values()}
    assert ["on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost"] == LISTENER
    assert ["subscription_user_data", "assign", "on_assignment"] == ASSIGNOR


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_fault(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Without an injected error the run sends every API of its protocol, calls every user callable, and raises no
    error.
    """
    calls: Counter[str] = Counter()

    class Counting(Fault):
        def __call__(self, name: str) -> None:
            calls[name] += 1

    fault = Counting("", 0)
    fail_in_encoder(monkeypatch, fault)
    quiet = make_run(engine, fault)
    quiet.run()
    assert [] == quiet.errors
    hooks = {*LISTENER, *REPORTER, *OTHERS, *(ASSIGNOR if engine != "consumer" else [])}
    assert hooks | set(_apis(engine)) == set(calls)
    for name in hooks | set(_apis(engine)) - ONCE:
        assert calls[name] >= 2 or name in ONCE, name


def _hook_names(engine: str) -> list[str]:
    names = [*LISTENER, *REPORTER, *OTHERS, *(ASSIGNOR if engine != "consumer" else [])]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(("engine", "name", "number"), _cases(_hook_names))
def test_hook_raises(make_run: MakeRun, engine: str, name: str, number: int) -> None:
    """The error of a user callable is raised by one call or logged; the member joins, reads all records and commits."""
    fault = Fault(name, number)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised
    # Records before one that cannot be deserialized are returned first, and then poll deserializes it again.
    silent = name in SILENT or (name.endswith("deserializer") and number > 1)
    assert (0 if silent else 1) == len(one.errors), one.errors


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("engine", "name", "number"), _cases(_apis))
def test_request_fails(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, engine: str, name: str, number: int, place: str
) -> None:
    """A request that cannot be encoded, a response that cannot be parsed, and a bug in its handler affect no other
    request. The request is sent again, or the call that made it raises, and the member recovers.
    """
    fault, raised = failing_request(monkeypatch, place, name, number)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised == ((place, name) != ("handler", "ApiVersions"))  # which the connection itself handles
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, raised) for error in one.errors), one.errors


@pytest.mark.parametrize(
    ("engine", "name", "number"),
    _cases(lambda engine: [] if engine == "consumer" else ["parse_assignment", "decode_subscription"]),
)
def test_embedded_parser_raises(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, engine: str, name: str, number: int
) -> None:
    """If the data of other members in a classic group cannot be parsed once, poll raises, and the member joins."""
    fault = Fault(name, number, ProtocolError)
    parse = getattr(leader, name if name != "parse_assignment" else "decode_assignment")

    def faulty(data: bytes) -> Any:
        fault(name)
        return parse(data)

    monkeypatch.setattr(leader, parse.__name__, faulty)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised
    assert [ProtocolError] == [type(error) for error in one.errors]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["password", *sorted(OF_LOGINS)])
def test_login_fails_once(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, engine: str, name: str) -> None:
    """If a callable password raises, or a request of the login cannot be encoded, later polls log in, join and read."""
    fault = Fault(name, 1)

    def password() -> str:
        fault("password")
        return "secret"

    fail_in_encoder(monkeypatch, fault)
    one = make_run(
        engine,
        fault,
        SASL,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=password,
    )
    one.run()
    assert fault.raised
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, KafkaError) for error in one.errors), one.errors
