"""Each user callable, each encoder and each parser raises once at each of its call sites; afterwards polls join and
read.

The cases are generated from the tables of the code: the APIs of the schema, and the methods of plugins and listeners.
The broker is scripted, the network is real. The tests run with all engines and protocols.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from kconsumer import Consumer, MetricsReporter, RebalanceListener, TopicPartition
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.coordinator.classic_protocol import leader
from kconsumer.errors import KafkaError, ProtocolError
from kconsumer.schema import APIS
from kconsumer.types import GroupMetadata
from support.fakes.coordinator_broker import INTERVAL_MS, CoordinatorBroker
from support.harnesses.engines import ENGINES
from support.harnesses.inside import config_of, parts_of
from support.harnesses.raise_once import MAX_ERRORS, Fault, HookError, fail_in_encoder, fail_in_handler

TPS = (TopicPartition("t", 0), TopicPartition("t", 1))
LIMIT_S = 20
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
    """A consumer with a user callable of each kind, its broker, and the errors of its polls."""

    def __init__(self, broker: CoordinatorBroker, engine: str, fault: Fault, **options: Any) -> None:
        self.broker, self.fault = broker, fault
        self.errors: list[Exception] = []
        self.share = len(TPS)
        self.read: dict[int, set[int]] = {0: set(), 1: set()}
        self.consumer = Consumer(
            bootstrap_servers=broker.address,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=INTERVAL_MS,
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
            "interceptors": [_hooked(object, ["on_consume", "on_commit", "close"], fault)],
            "metrics_reporters": [_hooked(MetricsReporter, REPORTER, fault)],
        }

    def _classic(self) -> dict[str, Any]:
        return {"heartbeat_interval_ms": INTERVAL_MS, "assignors": [self._assignor()]}

    def _assignor(self) -> Assignor:
        run, fault = self, self.fault

        class Everything(Assignor):
            """An assignor that gives the only member all partitions, or as many as the test sets."""

            name = "everything"
            protocols = (RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE)

            def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
                fault("subscription_user_data")
                return b""

            def assign(
                self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
            ) -> Mapping[str, Assignment]:
                fault("assign")
                return {member: Assignment(TPS[: run.share], b"") for member in subscriptions}

            def on_assignment(self, assignment: Assignment, metadata: GroupMetadata) -> None:
                fault("on_assignment")

        return Everything()

    # --- what happens ---

    def run(self) -> None:
        """Join and read, commit, revoke a partition, get evicted, continue reading, close."""
        self.consumer.subscribe(["t"], listener=_hooked(RebalanceListener, LISTENER, self.fault))
        self._until(self._everything_read)
        self._call(lambda: self.consumer.commit_async(callback=lambda *_: self.fault("commit callback")))
        self._until(lambda: self.broker.committed == {0: RECORDS, 1: RECORDS})
        self.share = 1
        for disturb in (self.broker.rebalance, self.broker.evict, self.broker.evict):
            self._again(disturb)
        self.broker.produce(RECORDS)
        self._call(lambda: self.consumer.commit_async(callback=lambda *_: self.fault("commit callback")))
        self._until(self._everything_read)
        self._call(lambda: self.consumer.close(2))

    def _again(self, disturb: Callable[[], None]) -> None:
        """Poll after a disturbance until the member has joined and owns all partitions."""
        before = self.broker.generation
        disturb()
        self._until(lambda: self.broker.generation > before and self._idle())
        self.share = len(TPS)
        self._until(self._complete)

    def _idle(self) -> bool:
        group = parts_of(self.consumer).group
        assert group is not None
        return group.membership.idle

    def _complete(self) -> bool:
        """Returns whether the member owns both partitions and the rebalance is complete; a classic member joins until
        then.
        """
        if not self._idle():
            return False
        if self.consumer.assignment() == set(TPS):
            return True
        if "consumer" != config_of(self.consumer).group_protocol:
            self.broker.rebalance()
        return False

    def _everything_read(self) -> bool:
        ends = [log.end for log in self.broker.logs]
        return self.read == {0: {*range(2, ends[0])}, 1: {*range(ends[1])}}

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.errors, self.read, self.consumer.partition_states())
            self._call(self._poll)

    def _poll(self) -> None:
        for record in self.consumer.poll(POLL_S):
            assert b"%d" % record.offset == record.value
            self.read[record.partition].add(record.offset)

    def _call(self, call: Callable[[], object]) -> None:
        """Call a function. Check that an error is documented or the callable's own."""
        try:
            call()
        except (KafkaError, HookError) as error:
            self.errors.append(error)


def _hooked(base: type, methods: list[str], fault: Fault) -> Any:
    """Returns an object that behaves like one of the class, except that its methods may raise."""

    def method(name: str) -> Callable[..., Any]:
        def run(self: Any, *arguments: Any) -> Any:
            fault(name)
            inherited = getattr(base, name, None)
            if inherited is not None:
                return inherited(self, *arguments)
            return arguments[0] if name == "on_consume" else None

        return run

    return type("Hooked", (base,), {name: method(name) for name in methods})()


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
    """Returns all combinations of engine, name, and first or second call."""
    return [
        pytest.param(
            engine,
            name,
            number,
            marks=[] if engine == "classic" else [pytest.mark.network_thread],
            id=f"{engine}-{name}-{number}",
        )
        for engine in ENGINES
        for name in names(engine)
        for number in ([1] if name in ONCE else [1, 2])
    ]


@pytest.fixture
def broker() -> Iterator[CoordinatorBroker]:
    """A broker with ten records in each partition."""
    with CoordinatorBroker() as broker:
        broker.produce(RECORDS)
        yield broker


@pytest.fixture
def make_run(broker: CoordinatorBroker) -> Iterator[Callable[..., FaultyRun]]:
    """Return a function that makes runs; their consumers are closed after the test."""
    made: list[FaultyRun] = []

    def make(engine: str, fault: Fault, **options: Any) -> FaultyRun:
        made.append(FaultyRun(broker, engine, fault, **options))
        return made[-1]

    yield make
    for one in made:
        with suppress(Exception):
            one.consumer.close(0)


def test_no_hook_and_no_api_is_left_out() -> None:
    """The tests include every callable and API: a new API of the schema fails this test until it is added."""
    of_consumers = OF_CLASSIC_GROUPS | OF_CONSUMER_GROUPS | OF_LOGINS | OF_EVERY_CONSUMER | OF_SHARE_CONSUMERS
    everything = of_consumers | OF_ADMINS | OF_SHARE_ADMINS | OF_TELEMETRY
    assert everything == {api.name for api in APIS.values()}
    assert ["on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost"] == LISTENER
    assert ["subscription_user_data", "assign", "on_assignment"] == ASSIGNOR


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_fault(make_run: Callable[..., FaultyRun], engine: str) -> None:
    """Without an injected error the run sends every API of its protocol, calls every user callable, and raises no
    error.
    """
    fault = Fault("", 0)
    calls: list[str] = []
    fault.__class__ = type("Counting", (Fault,), {"__call__": lambda _, name: calls.append(name)})
    quiet = make_run(engine, fault)
    quiet.run()
    assert [] == quiet.errors
    assert set(_apis(engine)) == set(quiet.broker.names())
    hooks = {*LISTENER, *REPORTER, *OTHERS, *(ASSIGNOR if engine != "consumer" else [])}
    assert hooks == set(calls)
    for name in hooks - ONCE:
        assert calls.count(name) >= 2, name


def _hook_names(engine: str) -> list[str]:
    names = [*LISTENER, *REPORTER, *OTHERS, *(ASSIGNOR if engine != "consumer" else [])]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(("engine", "name", "number"), _cases(_hook_names))
def test_hook_raises(make_run: Callable[..., FaultyRun], engine: str, name: str, number: int) -> None:
    """The error of a user callable is raised by one call or logged; the member joins, reads all records and commits."""
    fault = Fault(name, number)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised
    # Records before one that cannot be deserialized are returned first, and then poll deserializes it again.
    silent = name in SILENT or (name.endswith("deserializer") and number > 1)
    assert (0 if silent else 1) == len(one.errors), one.errors


@pytest.mark.parametrize(("engine", "name", "number"), _cases(_apis))
def test_encoder_raises(
    make_run: Callable[..., FaultyRun], monkeypatch: pytest.MonkeyPatch, engine: str, name: str, number: int
) -> None:
    """A request that cannot be encoded fails without affecting others. It is sent again, or the call that made it
    raises.
    """
    fault = Fault(name, number, TypeError)
    fail_in_encoder(monkeypatch, fault)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, ProtocolError) for error in one.errors), one.errors


@pytest.mark.parametrize(("engine", "name", "number"), _cases(_apis))
def test_response_cannot_be_parsed(make_run: Callable[..., FaultyRun], engine: str, name: str, number: int) -> None:
    """If a response cannot be parsed, the connection is closed, the request is sent again, and the member recovers."""
    one = make_run(engine, Fault("", 0))
    one.broker.garble(name, number)
    one.run()
    assert one.broker.garbled(name)
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, KafkaError) for error in one.errors), one.errors


@pytest.mark.parametrize(
    ("engine", "name", "number"), _cases(lambda engine: [name for name in _apis(engine) if name != "ApiVersions"])
)
def test_handler_raises(
    make_run: Callable[..., FaultyRun], monkeypatch: pytest.MonkeyPatch, engine: str, name: str, number: int
) -> None:
    """If a bug in a response handler raises, the manager treats the request as failed."""
    fault = Fault(name, number)
    fail_in_handler(monkeypatch, fault)
    one = make_run(engine, fault)
    one.run()
    assert fault.raised
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, KafkaError) for error in one.errors), one.errors


@pytest.mark.parametrize(
    ("engine", "name", "number"),
    [case for case in _cases(lambda _: ["parse_assignment", "decode_subscription"]) if "consumer" not in case.values],
)
def test_embedded_parser_raises(
    make_run: Callable[..., FaultyRun], monkeypatch: pytest.MonkeyPatch, engine: str, name: str, number: int
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
@pytest.mark.parametrize("name", ["token provider", *sorted(OF_LOGINS)])
def test_login_fails_once(
    make_run: Callable[..., FaultyRun], monkeypatch: pytest.MonkeyPatch, engine: str, name: str
) -> None:
    """If the token provider raises, or a request of the login cannot be encoded, later polls log in, join and read."""
    fault = Fault(name, 1)

    def token() -> str:
        fault("token provider")
        return "token"

    fail_in_encoder(monkeypatch, fault)
    one = make_run(
        engine,
        fault,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=token,
    )
    one.run()
    assert fault.raised
    assert len(one.errors) <= MAX_ERRORS
    assert all(isinstance(error, KafkaError) for error in one.errors), one.errors
