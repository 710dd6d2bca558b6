"""The fetch cycle handles responses as the managers do, which decode them: after each event both have the same state,
and create the same requests.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kconsumer.config.option_groups import FetchLimits
from kconsumer.errors import BrokerConnectionError
from kconsumer.schema.fetch import (
    FETCH,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartitionData,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from kconsumer.testing.batches import Rec, build_batch
from support.harnesses.fetch_twins import FetchTwins


def test_steady_consumption_uses_the_cycle() -> None:
    """Without special events, the cycle handles every response after the first two."""
    twins = FetchTwins(2, 2)
    for log in twins.logs.values():
        for count in range(1, 21):
            log.append(count)
    twins.poll()
    for _ in range(20):
        twins.respond()
        twins.collect(10_000)
        twins.wait(5)
    assert ["manager", *["cycle"] * 19] == twins.outcomes


CODES = (-1, 1, 2, 3, 6, 9, 29, 56, 74, 75, 76, 78, 100, 103)

# Each changes a response so that it is unusual.


def _repeat(response: FetchResponse, at: int) -> None:
    topic = response.responses[0]
    topic.partitions.append(topic.partitions[at % len(topic.partitions)])


def _split_topic(response: FetchResponse, at: int) -> None:
    topic = response.responses[0]
    other = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[topic.partitions.pop()])
    response.responses.append(other)


def _unknown_topic(response: FetchResponse, at: int) -> None:
    row = FetchPartitionData(partition_index=at % 6)
    response.responses.append(FetchableTopicResponse(topic="other", topic_id=b"x" * 16, partitions=[row]))


def _set(**values: Any) -> Any:
    def change(response: FetchResponse, at: int) -> None:
        for topic in response.responses:
            for row in topic.partitions[-1:]:
                for name, value in values.items():
                    setattr(row, name, value)

    return change


def _set_all(**values: Any) -> Any:
    def change(response: FetchResponse, at: int) -> None:
        for name, value in values.items():
            setattr(response, name, value)

    return change


def _error(response: FetchResponse, at: int) -> None:
    _set(error_code=CODES[at % len(CODES)], records=None if at % 2 else b"")(response, at)


PARTITION_CHANGES = (
    _error,
    _error,
    _repeat,
    _split_topic,
    _set(aborted_transactions=[AbortedTransaction(producer_id=1, first_offset=0)]),
    _set(aborted_transactions=[]),
    _set(aborted_transactions=None),
    _set(preferred_read_replica=1, records=b""),
    _set(preferred_read_replica=1),
    _set(records=None),
    _set(records=b"\x00" * 30),
    _set(records=b"\xff" * 80),
    _set(high_watermark=-1, last_stable_offset=-1, log_start_offset=-1),
    _set(diverging_epoch=FetchEpochEndOffset(epoch=0, end_offset=3)),
    _set(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=9), error_code=6, records=None),
    _set(current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0)),
    _set(partition_index=99),
)
RESPONSE_CHANGES = (
    _unknown_topic,
    _set_all(throttle_time_ms=7),
    _set_all(session_id=0),
    _set_all(session_id=7),
    _set_all(error_code=70, responses=[]),
    _set_all(error_code=71, responses=[]),
    _set_all(error_code=-1, responses=[]),
    _set_all(responses=[]),
    _set_all(responses=[FetchableTopicResponse(topic="t0", topic_id=b"\x01" * 16)]),
    _set_all(node_endpoints=[NodeEndpoint(node_id=1, host="b1", port=9092)]),
)


@pytest.mark.parametrize("version", [12, FETCH.max_version])
@pytest.mark.parametrize("change", [*PARTITION_CHANGES, *RESPONSE_CHANGES])
def test_each_unusual_response(change: Any, version: int) -> None:
    """Each unusual response, and those after it, are handled as the manager does."""
    for at in range(3):
        twins = FetchTwins(1, 2, 2, version=version)
        for node in twins.poll():
            twins.respond(node)
        for log in twins.logs.values():
            log.append(3)
        response = twins.response("0")
        change(response, at)
        twins.respond("0", response)
        for _ in range(3):
            twins.wait(1000)
            twins.collect(4)
            twins.validate()
            twins.find_offsets()
            twins.poll()
            for node in list(twins.plain.in_flight):
                twins.respond(node)


# One of them is drawn for each property of a case.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "topics": (1, 2),
    "brokers": (1, 1, 2, 3),
    "sessions": (4, 4, 4, 1, 0),
    "version": (11, 12, 13, 14, 15, 16, 17, 18, 18),
    "max_partition_fetch_bytes": (150, 300, 1 << 20),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "client_rack": ("", "r1"),
    "check_crcs": (True, False),
    "buffer_memory": (1000, 6000, 1 << 24, 1 << 24),
    "fetch_max_bytes": (500, 52_428_800),
}


class Program:
    """Events of both sides. `FetchTwins` compares them after each response and poll.

    Each method named in `EVENTS` is an event, with two numbers that decide what it does.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        if options["brokers"] > 1:
            # Brokers that compete for memory are polled in an order that depends on what the cycle has sent.
            options["buffer_memory"] = 1 << 24
        self.twins = FetchTwins(partitions=3, **options)
        self.kept: list[Any] = []
        for count in range(1, 5):
            for number in range(len(self.twins.tps)):
                self.produce(number, count)
        self.twins.poll()
        self.exchange()

    def run(self, events: list[tuple[str, int, int]]) -> None:
        """Run events, and then some ordinary exchanges."""
        for name, first, second in events:
            getattr(self, name)(first, second)
        self.kept.clear()
        for _ in range(3):
            self.twins.wait(2000)
            self.twins.validate()
            self.twins.poll()
            self.exchange()
            self.twins.collect(1000)

    def tp(self, number: int) -> Any:
        """Returns a partition."""
        return self.twins.tps[number % len(self.twins.tps)]

    def some(self, number: int) -> list[Any]:
        """Returns some partitions: those whose bits are set in `number`."""
        return [tp for index, tp in enumerate(self.twins.tps) if number >> index & 1]

    def node(self, number: int) -> str | None:
        """Returns a connection with a request in flight, or None."""
        nodes = sorted(self.twins.plain.in_flight)
        return nodes[number % len(nodes)] if nodes else None

    # --- brokers ---------------------------------------------------------------------------------------

    def produce(self, number: int, count: int = 1) -> None:
        """Append a batch, of which compaction has removed the last offsets."""
        log, gap = self.twins.logs[self.tp(number)], count % 3
        records = [Rec(b"%d" % offset, offset=offset) for offset in range(log.end, log.end + count % 6 + 1)]
        last = len(records) + gap - 1
        codec = "gzip" if count % 5 == 0 else "none"
        batch = build_batch(records, base_offset=log.end, last_offset_delta=last, leader_epoch=0, codec=codec)
        log.add(batch, log.end + last + 1)

    def produce_corrupt(self, number: int, at: int) -> None:
        """Append a batch with a wrong byte."""
        log = self.twins.logs[self.tp(number)]
        batch = bytearray(build_batch([b"a", b"b"], base_offset=log.end, leader_epoch=0))
        batch[16 + at % (len(batch) - 16)] ^= 0x41
        log.add(bytes(batch), log.end + 2)

    def move_leader(self, number: int, how: int) -> None:
        """Move the leader of a partition, or only grow its epoch. The consumer may or may not get new metadata."""
        tp = self.tp(number)
        self.twins.leaders[tp] = how // 2 % self.twins.brokers
        self.twins.epochs[tp] += 1
        if how % 2:
            self.twins.update_metadata()

    def update_metadata(self, _first: int, _second: int) -> None:
        self.twins.update_metadata()

    def recreate_topic(self, number: int, new: int) -> None:
        """Give a topic another id, or none."""
        name = self.tp(number).topic
        self.twins.topic_ids[name] = None if new % 3 == 0 else bytes([new % 256]) * 15 + name[-1].encode()
        self.twins.update_metadata()

    def evict_sessions(self, _first: int, _second: int) -> None:
        for cache in self.twins.caches.values():
            cache.sessions.clear()

    # --- requests and responses ------------------------------------------------------------------------

    def poll(self, _first: int, _second: int) -> None:
        self.twins.poll()

    def exchange(self, _first: int = 0, _second: int = 0) -> None:
        """Respond to all requests in flight."""
        for node in list(self.twins.plain.in_flight):
            self.twins.respond(node)

    def consume(self, chosen: int, limit: int) -> None:
        """Respond with records of some partitions, and collect them, as an application does nearly always."""
        tps = self.some(chosen)
        for _ in range(1 + chosen % 4):
            for tp in tps:
                self.produce(self.twins.tps.index(tp), limit)
            for node in list(self.twins.plain.in_flight):
                self.twins.respond(node, self.twins.response(node, tps.__contains__))
            self.twins.collect(1 + limit % 100)
            self.twins.wait(3)

    def respond(self, number: int, chosen: int, damage: Any = bytes) -> None:
        """Respond to one request with records of some partitions."""
        node = self.node(number)
        if node is not None:
            tps = self.some(chosen)
            self.twins.respond(node, self.twins.response(node, tps.__contains__), damage)

    def respond_unusually(self, number: int, at: int) -> None:
        """Respond with what the cycle may not handle."""
        node = self.node(number)
        if node is None:
            return
        response = self.twins.response(node)
        has_rows = any(topic.partitions for topic in response.responses)
        changes = (*PARTITION_CHANGES, *RESPONSE_CHANGES) if has_rows else RESPONSE_CHANGES
        changes[number // 2 % len(changes)](response, at)
        self.twins.respond(node, response)

    def respond_with_damage(self, number: int, at: int) -> None:
        """Respond with bytes that are missing, superfluous or wrong, or with an unknown tagged field."""

        def damage(body: bytes) -> bytes:
            place = at % len(body)
            return (
                body[:place],
                body + b"\0",
                body[:-1] + b"\x01\x63\x02ab",
                body[:place] + bytes([body[place] ^ (1 << number % 8)]) + body[place + 1 :],
            )[number // 2 % 4]

        self.respond(number, at, damage)

    def respond_while_blocked(self, number: int, chosen: int) -> None:
        """Respond while the connection may send nothing, because it is throttled or authenticates again."""
        node = self.node(number)
        if node is not None:
            connection = self.twins.cycle.connections[node]
            connection.blocked = True
            self.respond(number, chosen)
            connection.blocked = False

    def lose_connection(self, number: int, _second: int) -> None:
        node = self.node(number)
        if node is not None:
            self.twins.fail(node, BrokerConnectionError("gone"))

    # --- the application -------------------------------------------------------------------------------

    def collect(self, limit: int, _second: int) -> None:
        self.twins.collect(1 + limit % 30)

    def collect_and_undo(self, limit: int, _second: int) -> None:
        self.twins.collect(1 + limit % 30, rollback=True)

    def collect_and_keep(self, limit: int, _second: int) -> None:
        self.kept.append(self.twins.collect(1 + limit % 30))

    def let_go(self, _first: int, _second: int) -> None:
        """Free the memory of kept batches."""
        self.kept.clear()

    def seek(self, number: int, offset: int) -> None:
        tp = self.tp(number)
        if self.twins.is_assigned(tp):
            self.twins.seek(tp, offset % (self.twins.logs[tp].end + 1))

    def seek_to_position(self, number: int, _second: int) -> None:
        """Seek to the present position, which leaves corrupt bytes behind."""
        tp = self.tp(number)
        position = self.twins.plain.assignment.get(tp).position if self.twins.is_assigned(tp) else None
        if position is not None:
            self.twins.seek(tp, position.offset)

    def pause(self, number: int, paused: int) -> None:
        """Pause or resume a partition."""
        if self.twins.is_assigned(self.tp(number)):
            self.twins.pause(self.tp(number), paused=paused % 2 == 0)

    def resume(self, _first: int, _second: int) -> None:
        """Resume all partitions."""
        for tp in filter(self.twins.is_assigned, self.twins.tps):
            self.twins.pause(tp, paused=False)

    def reassign(self, chosen: int, _second: int) -> None:
        self.twins.assign(self.some(chosen) or self.twins.tps)

    def assign_all(self, _first: int, _second: int) -> None:
        self.twins.assign(self.twins.tps)

    def begin_revoking(self, chosen: int, _second: int) -> None:
        for side in self.twins.sides:
            side.assignment.mark_pending_revocation(filter(self.twins.is_assigned, self.some(chosen)))

    def await_callback(self, chosen: int, _second: int) -> None:
        for side in self.twins.sides:
            side.assignment.mark_awaiting_callback(filter(self.twins.is_assigned, self.some(chosen)), True)

    def callbacks_return(self, _first: int, _second: int) -> None:
        for side in self.twins.sides:
            side.assignment.mark_awaiting_callback(self.twins.tps, False)

    def change_limits(self, size: int, wait_ms: int) -> None:
        """Change the limits of requests, as `update_options` does."""
        sizes = {"max_partition_fetch_bytes": 150 + size % 3 * 200, "fetch_max_bytes": 400 + size * 10}
        for side in self.twins.sides:
            before = vars(side.manager.limits)
            side.manager.configure(FetchLimits(before | sizes | {"fetch_max_wait_ms": wait_ms}))

    def validate(self, _first: int, _second: int) -> None:
        self.twins.validate()

    def find_offsets(self, _first: int, _second: int) -> None:
        self.twins.find_offsets()

    def wait(self, ms: int, _second: int) -> None:
        self.twins.wait((1, 5, 20, 100, 1000)[ms % 5])


# Events, and how often they occur.
EVENTS = {
    "consume": 16,
    "respond": 12,
    "respond_unusually": 3,
    "respond_with_damage": 2,
    "respond_while_blocked": 2,
    "collect": 6,
    "collect_and_undo": 1,
    "collect_and_keep": 2,
    "let_go": 2,
    "produce": 4,
    "produce_corrupt": 2,
    "poll": 2,
    "exchange": 2,
    "wait": 3,
    "seek": 2,
    "seek_to_position": 3,
    "pause": 2,
    "resume": 2,
    "reassign": 1,
    "assign_all": 2,
    "begin_revoking": 1,
    "await_callback": 1,
    "callbacks_return": 2,
    "move_leader": 1,
    "update_metadata": 1,
    "recreate_topic": 1,
    "evict_sessions": 1,
    "lose_connection": 1,
    "change_limits": 2,
    "validate": 2,
    "find_offsets": 2,
}
DRAWN = [name for name, weight in EVENTS.items() for _ in range(weight)]
NUMBERS = st.integers(0, 1023)
CASES = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in OPTIONS.items()})


@given(options=CASES, events=st.lists(st.tuples(st.sampled_from(DRAWN), NUMBERS, NUMBERS), min_size=40, max_size=40))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_responses(options: dict[str, Any], events: list[tuple[str, int, int]]) -> None:
    """After any events, both sides have the same state and the same requests."""
    gc.disable()  # a collection would free the memory of one side first
    try:
        Program(options).run(events)
    finally:
        gc.enable()
