"""Scenarios: functions that send requests to a broker and record the responses in a comparable form.

A scenario states no expectation. It is run against the model and against real brokers, and the recorded responses must
be equal. `recorded/` has what real brokers responded; `record.py` writes these files.

    @scenarios(METADATA, cases={"absent": "no-such-topic"})
    def names(run: Run, version: int, name: str) -> None: ...

makes one scenario for each version of Metadata and each case. Releases that lack the version do not run it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kconsumer._core.codec import decode_response, encode_request
from kconsumer.schema.classic_group import HEARTBEAT
from kconsumer.schema.dsl import Api, Message
from kconsumer.schema.metadata import FIND_COORDINATOR, METADATA, MetadataRequestTopic
from kconsumer.schema.offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsTopic
from kconsumer.schema.produce import PRODUCE, PartitionProduceData, TopicProduceData
from kconsumer.schema.share_group import SHARE_GROUP_HEARTBEAT
from kconsumer.schema.topics import CREATE_TOPICS, CreatableTopic, CreatableTopicConfig
from kconsumer.schema.transactions import INIT_PRODUCER_ID
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.releases import versions_of
from support.scenarios.comparable import Comparable
from support.scenarios.peers import Line, ModelPeer, Peer

RELEASES = ("3.9", "4.4")
TIMEOUT_MS = 30_000
SETTLE_MS = 150  # how long a real broker may take for what it does after a response
PREFIX = "s0000-000000-"  # of names; the prefixes of all runs have this length
TIMESTAMP = 1_700_000_000_000  # of records

#: Errors of a broker that is about to have what a request needs.
NOT_READY = {14, 15, 16, 51}  # COORDINATOR_LOAD_IN_PROGRESS, …_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS


@dataclass(frozen=True)
class Ticket:
    """A request that was sent, and whose response has not been read."""

    client: str
    number: int
    api: Api
    version: int


class Run:
    """One run of a scenario against one broker."""

    def __init__(self, peer: Peer, release: str, prefix: str) -> None:
        self.peer, self.release, self.prefix = peer, release, prefix
        self.steps: list[str] = []
        self._comparable = Comparable(prefix)
        self._lines: dict[str, Line] = {}
        self._frames: dict[tuple[str, int], bytes] = {}
        self._sent = 0

    # --- requests ---

    def call(
        self,
        api: Api,
        version: int,
        *,
        client: str = "test",
        until: Callable[[Any], bool] | None = None,
        **fields: Any,
    ) -> Any:
        """Send a request, and record the response. Returns it.

        `client`: its client id, and the name of its connection. `until`: send the request again until the response
        fulfils this condition, which a real broker may take some time for; only the last response is recorded.
        """
        response = self._call(api, version, client, until, fields)
        self._record(api, version, client, response)
        return response

    def prepare(self, api: Api, version: int, *, client: str = "test", **fields: Any) -> Any:
        """Send a request, again if the broker is not ready for it. Returns the response, and does not record it."""
        return self._call(api, version, client, lambda response: not error_codes(response) & NOT_READY, fields)

    def send(self, api: Api, version: int, *, client: str = "test", **fields: Any) -> Ticket:
        """Send a request whose response is read later, and let the broker process it."""
        ticket = self._send(api, version, client, api.request(**fields))
        self.peer.sleep(SETTLE_MS)
        return ticket

    def receive(self, ticket: Ticket) -> Any:
        """Record the response to a request that was sent before. Returns it."""
        response = self._receive(ticket, TIMEOUT_MS)
        self._record(ticket.api, ticket.version, ticket.client, response)
        return response

    def waits(self, ticket: Ticket) -> None:
        """Record whether the response to a request has not arrived."""
        frame = self._frame(ticket, 1)
        if frame is not None:
            self._frames[ticket.client, ticket.number] = frame
        self.steps.append(f"{ticket.api.name} v{ticket.version} by {ticket.client} waits: {frame is None}")

    def raw(self, frame: bytes, *, client: str = "test") -> None:
        """Send bytes, and record the bytes of the response."""
        line = self._line(client)
        line.send(len(frame).to_bytes(4) + frame)
        try:
            found = line.receive(TIMEOUT_MS)
        except ConnectionError:
            self.steps.append("raw: <disconnected>")
        else:
            self.steps.append(f"raw: {'<nothing>' if found is None else found.hex()}")

    def note(self, what: str, value: object) -> None:
        """Record a value that the scenario computed."""
        self.steps.append(f"{what}: {value}")

    def wall_ms(self) -> int:
        """Returns the wall-clock time of the broker in ms."""
        return self.peer.wall_ms()

    def close(self, client: str) -> None:
        """Close a connection, and let the broker notice it."""
        self._lines.pop(client).close()
        self.peer.sleep(SETTLE_MS)

    def sleep(self, ms: float) -> None:
        """Let time pass."""
        self.peer.sleep(ms)

    # --- topics and records ---

    def name(self, text: str = "t") -> str:
        """Returns a name of a topic or group that no other scenario uses."""
        return self.prefix + text

    def topic(self, text: str = "t", partitions: int = 1, **configs: str) -> str:
        """Create a topic, and wait until it can be used. Returns its name. `configs`: with underscores for dots."""
        name = self.name(text)
        rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        row = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=rows)
        self.prepare(CREATE_TOPICS, 5, topics=[row], timeout_ms=10_000)
        self.await_topic(name, partitions)
        return name

    def await_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until all partitions of a topic have leaders."""

        def led(response: Any) -> bool:
            (topic,) = response.topics
            return len(topic.partitions) == partitions and not any(row.error_code for row in topic.partitions)

        self._call(METADATA, 9, "test", led, {"topics": [MetadataRequestTopic(name=name)]})
        rows = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        topics = [ListOffsetsTopic(name=name, partitions=rows)]
        self._call(LIST_OFFSETS, 4, "test", lambda response: not error_codes(response), {"topics": topics})

    def topic_id(self, name: str) -> bytes:
        """Returns the id of a topic."""
        response = self.prepare(METADATA, 12, topics=[MetadataRequestTopic(name=name)])
        found: bytes = response.topics[0].topic_id
        return found

    def produce(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        """Store batches in a partition."""
        for batch in batches:
            row = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
            response = self.prepare(PRODUCE, 9, acks=-1, timeout_ms=10_000, topic_data=[row])
            assert not error_codes(response), response

    def produce_values(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Store values in a partition, each in a batch of its own. Their timestamps are one second apart."""
        for i, value in enumerate(values):
            self.produce(topic, build_batch([value], timestamp=TIMESTAMP + 1000 * i), partition=partition)

    # --- internals ---

    def _line(self, client: str) -> Line:
        if client not in self._lines:
            self._lines[client] = self.peer.connect()
        return self._lines[client]

    def _send(self, api: Api, version: int, client: str, message: Message) -> Ticket:
        self._sent += 1
        self._line(client).send(encode_request(api, version, self._sent, client, message))
        return Ticket(client, self._sent, api, version)

    def _frame(self, ticket: Ticket, timeout_ms: float) -> bytes | None:
        """Returns the response to a request as bytes, or None if it does not arrive in time."""
        found = self._frames.pop((ticket.client, ticket.number), None)
        line = self._line(ticket.client)
        while found is None and (frame := line.receive(timeout_ms)) is not None:
            number = int.from_bytes(frame[:4])
            if number == ticket.number:
                found = frame
            else:
                self._frames[ticket.client, number] = frame
        return found

    def _receive(self, ticket: Ticket, timeout_ms: float) -> Any:
        """Returns the response to a request, or a word if there is none."""
        try:
            frame = self._frame(ticket, timeout_ms)
        except ConnectionError:
            del self._lines[ticket.client]
            return "<disconnected>"
        if frame is None:
            return "<nothing>"
        return decode_response(ticket.api, ticket.version, frame)[1]

    def _call(
        self, api: Api, version: int, client: str, until: Callable[[Any], bool] | None, fields: dict[str, Any]
    ) -> Any:
        deadline = self.peer.now() + TIMEOUT_MS
        while True:
            response = self._receive(self._send(api, version, client, api.request(**fields)), TIMEOUT_MS)
            if until is None or isinstance(response, str) or until(response) or self.peer.now() > deadline:
                return response
            self.peer.sleep(50)

    def _record(self, api: Api, version: int, client: str, response: Any) -> None:
        shown = f"{api.name} v{version}" + ("" if client == "test" else f" by {client}")
        if isinstance(response, Message):
            response = json.dumps(self._comparable.response(api, version, response))
        self.steps.append(f"{shown}: {response}")


def warm_up(peer: Peer, release: str, keys: int) -> None:
    """Let a broker create its internal topics and load its coordinators, so that no scenario has to wait for that.

    `keys`: how many groups and transactional ids are used, so that every partition of the internal topics has some.
    """
    run = Run(peer, release, PREFIX)
    for number in range(keys):
        run.prepare(FIND_COORDINATOR, 1, key=f"key-{number}", key_type=0)
        run.prepare(HEARTBEAT, 0, group_id=f"key-{number}", member_id="m")
        run.prepare(FIND_COORDINATOR, 1, key=f"key-{number}", key_type=1)
        run.prepare(INIT_PRODUCER_ID, 1, transactional_id=f"key-{number}", transaction_timeout_ms=1000)
    run.prepare(INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=1000)
    if SHARE_GROUP_HEARTBEAT.key in versions_of(release):
        _warm_up_shares(run)


def _warm_up_shares(run: Run) -> None:
    """Let a broker create the internal topic of share groups, which happens when the first group gets a partition."""
    topic, member_id = run.topic("warm-up"), "warm-up"
    fields: dict[str, Any] = {"subscribed_topic_names": [topic]}
    epoch = 0
    while True:
        response = run.prepare(
            SHARE_GROUP_HEARTBEAT, 1, group_id="warm-up", member_id=member_id, member_epoch=epoch, **fields
        )
        if response.assignment is not None and response.assignment.topic_partitions:
            break
        epoch, fields = response.member_epoch, {}
        run.sleep(500)
    run.prepare(SHARE_GROUP_HEARTBEAT, 1, group_id="warm-up", member_id=member_id, member_epoch=-1)


def error_codes(message: Message) -> set[int]:
    """Returns the error codes in a response, without NONE."""
    found: set[int] = set()
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and value:
            found.add(value)
        elif isinstance(value, Message):
            found |= error_codes(value)
        elif isinstance(value, list):
            found = found.union(*(error_codes(row) for row in value if isinstance(row, Message)))
    return found


# --- the table of scenarios ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scenario:
    """One scenario: a function and its arguments."""

    name: str
    body: Callable[..., None]
    arguments: tuple[object, ...]
    releases: tuple[str, ...]
    authorizer: str = ""  # of the broker: a key of AUTHORIZERS

    def run(self, peer: Peer, release: str, prefix: str) -> list[str]:
        """Run it against a broker of a release. Returns the recorded steps."""
        run = Run(peer, release, prefix)
        self.body(run, *self.arguments)
        return run.steps


def run_on_the_model(scenario: Scenario, release: str) -> list[str]:
    """Run a scenario against a new cluster model. Returns the recorded steps."""
    peer = ModelPeer(release, authorizer=scenario.authorizer)
    warm_up(peer, release, 1)
    return scenario.run(peer, release, PREFIX)


ALL: dict[str, Scenario] = {}


def scenarios(
    api: Api | None = None,
    *,
    versions: Iterable[int] | None = None,
    cases: Mapping[str, object] | Iterable[str] | None = None,
    releases: Iterable[str] = RELEASES,
    authorizer: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that adds scenarios: one for each version of `api` and each case.

    `versions`: all that a release has, if None. `cases`: the value of each case by its name; a plain list of names is
    passed as it is.
    """

    def add(body: Callable[..., None]) -> Callable[..., None]:
        subject = body.__module__.rpartition(".")[2]
        pairs = [("", ())] if cases is None else [(f"-{key}", (value,)) for key, value in _items(cases)]
        for version in [None] if api is None else versions or range(api.min_version, api.max_version + 1):
            for suffix, extra in pairs:
                name = f"{subject}.{body.__name__}{suffix}" + ("" if version is None else f"-v{version}")
                arguments = extra if version is None else (version, *extra)
                having = tuple(release for release in releases if _has(release, api, version))
                assert name not in ALL, name
                if having:
                    ALL[name] = Scenario(name, body, arguments, having, authorizer)
        return body

    return add


def _items(cases: Mapping[str, object] | Iterable[str]) -> list[tuple[str, object]]:
    return list(cases.items()) if isinstance(cases, Mapping) else [(case, case) for case in cases]


def _has(release: str, api: Api | None, version: int | None) -> bool:
    return (
        api is None or version is None or (api.key in versions_of(release) and version in versions_of(release)[api.key])
    )
