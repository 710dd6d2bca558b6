"""The fetch cycle at the edges: wraps, limits, versions, and exceptions in the middle.

`tests/property/test_fetch_cycle_vs_manager.py` compares it with the manager after random events.
"""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._core.codec import encode_response
from kconsumer._core.net import InFlight
from kconsumer.config.option_groups import FetchLimits
from kconsumer.errors import BrokerConnectionError
from kconsumer.fetching.manager import FetchManager
from kconsumer.fetching.session import MAX_EPOCH
from kconsumer.schema.fetch import FETCH, FetchableTopicResponse, FetchPartitionData, FetchResponse
from support.harnesses.fetch_twins import CycleConnection, FetchTwins, make_frame


def ready_twins(topics: int = 1, partitions: int = 2, brokers: int = 1, **options: Any) -> FetchTwins:
    """Returns twins whose sessions exist, so that the next responses are ordinary."""
    twins = FetchTwins(topics, partitions, brokers, **options)
    for node in twins.poll():
        twins.respond(node)
    twins.outcomes.clear()
    return twins


def produce(twins: FetchTwins, *numbers: int, count: int = 3) -> None:
    """Append a batch to each of these partitions, or to all."""
    for number in numbers or range(len(twins.tps)):
        twins.logs[twins.tps[number]].append(count)


def test_session_epoch_wraps() -> None:
    """After the largest fetch session epoch, the cycle sends 1."""
    twins = ready_twins()
    [cached] = twins.caches["0"].sessions.values()
    for side in twins.sides:
        [broker] = side.manager.planner
        broker.session.epoch = MAX_EPOCH - 1
    twins.plain.in_flight["0"].request.message.session_epoch = MAX_EPOCH - 1
    cached.epoch = MAX_EPOCH - 1
    epochs = []
    for _ in range(3):
        produce(twins)
        twins.respond()
        twins.collect(100)
        epochs += [broker.session.epoch for broker in twins.cycle.manager.planner]
        # The message in flight stays that of the first request, so the broker is given the epoch that was sent.
        cached.epoch = epochs[-1]
        for side in twins.sides:
            side.in_flight["0"].request.message.session_epoch = epochs[-1]
    assert ([MAX_EPOCH, 1, 2], ["cycle"] * 3) == (epochs, twins.outcomes)


@pytest.mark.parametrize("correlation_id", [0, 1, 255, 2**31 - 9])
def test_correlation_id(correlation_id: int) -> None:
    """The request has the next correlation id of its connection. (The twins check that it is in the bytes.)"""
    twins = ready_twins()
    produce(twins)
    twins.cycle.connections["0"].next_correlation_id = correlation_id
    twins.respond()
    assert (correlation_id, ["cycle"]) == (twins.cycle.in_flight["0"].correlation_id, twins.outcomes)


@pytest.mark.parametrize("version", range(13, FETCH.max_version + 1))
@pytest.mark.parametrize("rack", ["", "a", "é" * 63, "é" * 64, "r" * 127, "r" * 8192, "r" * 20000])
def test_rack(version: int, rack: str) -> None:
    """Racks of any length are sent in all versions, also when their size takes more than one byte."""
    twins = ready_twins(version=version, client_rack=rack)
    for _ in range(3):
        produce(twins)
        twins.respond()
        twins.collect(100)
    assert ["cycle"] * 3 == twins.outcomes


@pytest.mark.parametrize("partitions", [127, 128, 256, 257])
def test_many_partitions(partitions: int) -> None:
    """A response of up to 256 partitions is ordinary. Sizes of arrays may take two bytes."""
    twins = ready_twins(partitions=partitions)
    produce(twins)
    twins.respond()
    assert ["cycle" if partitions <= 256 else "manager"] == twins.outcomes
    assert partitions * 3 == len(twins.collect(10_000)[0])


def test_many_topics() -> None:
    """Partitions are grouped by topic, in any order of the response."""
    twins = ready_twins(130, 2)
    produce(twins, *range(0, 260, 3))
    response = twins.response("0")
    for topic in list(response.responses):
        if len(topic.partitions) > 1:
            row = topic.partitions.pop()
            response.responses.append(FetchableTopicResponse(topic_id=topic.topic_id, partitions=[row]))
    twins.respond("0", response)
    assert ["cycle"] == twins.outcomes


def test_empty_response() -> None:
    """A response without partitions is ordinary: the next request follows, and no records are reported."""
    twins = ready_twins()
    twins.cycle.notes.clear()
    twins.respond("0", FetchResponse(session_id=100))
    assert (["cycle"], []) == (twins.outcomes, twins.cycle.notes)


def test_partition_without_room() -> None:
    """No request follows while a partition of the broker has no room, and one does after it was read."""
    twins = ready_twins(partitions=3)
    for _ in range(2):
        produce(twins, 0)
        twins.respond()
    assert (["cycle", "cycle, ended"], []) == (twins.outcomes, twins.poll())
    twins.collect(3)
    assert ["0"] == twins.poll()
    produce(twins, 1)
    twins.respond()
    assert "cycle" == twins.outcomes[-1]


def test_user_no_longer_polls() -> None:
    """The cycle sends no request after the time until which the user is expected to poll."""
    twins = ready_twins()
    twins.cycle.manager.continue_until = twins.now + 5
    twins.respond()
    twins.wait(5)
    twins.respond()
    assert ["cycle", "cycle, ended"] == twins.outcomes


def test_every_amount_of_memory() -> None:
    """Whether the response has room is decided as the manager does, for each size of the memory."""
    outcomes = set()
    for memory in range(1000, 9000, 160):
        twins = FetchTwins(1, 2, buffer_memory=memory, max_partition_fetch_bytes=200)
        twins.poll()
        for _ in range(8):
            if twins.plain.in_flight:
                produce(twins)
                twins.respond()
            twins.collect(memory % 7)
            twins.poll()
        outcomes |= set(twins.outcomes)
    assert {"cycle", "cycle, ended", "manager"} == outcomes


@pytest.mark.parametrize("left", [-1, 0, 1])
def test_memory_at_the_limit(left: int) -> None:
    """The next request follows if its reservation fits exactly, but not if a byte is missing."""
    twins = ready_twins(max_partition_fetch_bytes=10_000)
    for side in twins.sides:
        side.buffer.memory.least_response = 0  # so that reservations depend only on the size of requests
    produce(twins)
    twins.respond()
    size, _ = twins.cycle.blocks()
    twins.collect(100)
    twins.outcomes.clear()
    produce(twins)
    for side in twins.sides:
        memory = side.buffer.memory
        memory.decompressed = 500_000
        memory.limit = size + memory.reserved + memory.decompressed + left
    twins.respond()
    assert ["cycle" if left >= 0 else "cycle, ended"] == twins.outcomes
    assert (left >= 0) == bool(twins.cycle.in_flight)


@pytest.mark.parametrize("limit", [1, 100, 279, 1 << 20])
def test_fetch_max_bytes(limit: int) -> None:
    """The next request has the same limits as the one before, also if the response is larger."""
    twins = ready_twins(fetch_max_bytes=limit)
    for _ in range(3):
        produce(twins, count=9)
        twins.respond()
        twins.collect(100)
    assert 54 == sum(log.end for log in twins.logs.values())


def ordinary_bytes(twins: FetchTwins) -> bytes:
    """Returns a response with records of several topics, which the cycle would handle."""
    produce(twins)
    entry = twins.cycle.in_flight["0"]
    return encode_response(FETCH, entry.version, entry.correlation_id, twins.response("0"))[4:]


def unchanged(twins: FetchTwins, data: bytes, entry: Any = None) -> bool:
    """Returns True if the response is left to the manager. Checks that it has changed nothing."""
    entry = entry or twins.cycle.in_flight["0"]
    before = twins.cycle.untouched()
    received = twins.cycle.in_flight["0"].request.exchange.receive(
        twins.cycle.connections["0"], entry, make_frame(data), twins.now
    )
    assert received is not None or before == twins.cycle.untouched()
    return received is None


def test_every_cut() -> None:
    """A response that is cut anywhere, or has a byte too many, changes nothing."""
    twins = ready_twins(2, 2)
    data = ordinary_bytes(twins)
    assert all(unchanged(twins, data[:size]) for size in range(len(data)))
    assert unchanged(twins, data + b"\0")
    assert not unchanged(twins, data)


def test_lengths_beyond_the_end() -> None:
    """Sizes that are larger than what is left change nothing, whatever they are."""
    twins = ready_twins()
    head = ordinary_bytes(twins)[:15]  # correlation id, tags, throttle time, error, session id
    for size in (2, 3, 127, 2**31, 2**32 - 1):
        varint = b""
        while size >= 0x80:
            varint, size = varint + bytes([size & 0x7F | 0x80]), size >> 7
        assert unchanged(twins, head + varint + bytes([size]))
        assert unchanged(twins, head + b"\x02" + twins.topic_ids["t0"] + varint + bytes([size]))  # type: ignore[operator]  # it has one


@pytest.mark.parametrize("change", ["id", "session", "topic", "partition", "twice", "replaced"])
def test_wrong_response(change: str) -> None:
    """A response to another request, or with partitions that were not requested, changes nothing."""
    twins = ready_twins()
    produce(twins)
    entry, response = twins.cycle.in_flight["0"], twins.response("0")
    correlation_id = entry.correlation_id + (change == "id")
    if change == "session":
        response.session_id += 1
    if change == "topic":
        response.responses[0].topic_id = b"?" * 16
    if change == "partition":
        response.responses[0].partitions[1].partition_index = 7
    if change == "twice":
        response.responses[0].partitions.append(response.responses[0].partitions[0])
    if change == "replaced":
        flight = twins.cycle.manager.in_flight.pop(0)
    assert unchanged(twins, encode_response(FETCH, entry.version, correlation_id, response)[4:])
    if change == "replaced":
        twins.cycle.manager.in_flight[0] = flight


def test_memory_of_a_response_that_is_not_ordinary() -> None:
    """The memory of a response is freed without a garbage collection, although only its last partition is unusual."""
    twins = ready_twins(partitions=3)
    produce(twins)
    response = twins.response("0")
    twins.seek(twins.tps[2], 0)
    twins.seek(twins.tps[2], 1)
    twins.poll()
    twins.respond("0", response)
    twins.collect(100)
    assert (["manager"], (0, 0)) == (twins.outcomes, twins.cycle.blocks())


def test_dropped_chain_is_fetched_again() -> None:
    """A partition whose data the collector has dropped is requested again, although another partition is ordinary."""
    twins = ready_twins()
    log, tp = twins.logs[twins.tps[0]], twins.tps[0]
    log.append(2)
    log.append(2, crc=0)
    twins.respond()
    for _ in range(2):
        twins.collect(100)
        twins.poll()
    position = twins.plain.assignment.get(tp).position
    assert position is not None
    twins.seek(tp, position.offset)
    twins.poll()
    twins.collect(100)
    row = FetchPartitionData(partition_index=1, high_watermark=0)
    other = FetchableTopicResponse(topic_id=twins.topic_ids["t0"], partitions=[row])
    twins.respond("0", FetchResponse(session_id=100, responses=[other]))
    assert "cycle, ended" == twins.outcomes[-1]


@pytest.mark.parametrize(
    "name", ["fetch_min_bytes", "fetch_max_bytes", "fetch_max_wait_ms", "max_partition_fetch_bytes"]
)
def test_changed_limits(name: str) -> None:
    """After a limit has changed, the cycle sends no request with the old one. Only that of partitions needs a full one,
    because the broker keeps it in the session.
    """
    twins = ready_twins()
    for side in twins.sides:
        side.manager.configure(FetchLimits(vars(side.manager.limits) | {name: 1_900_000}))
    for _ in range(3):
        produce(twins)
        twins.respond()
        if not twins.cycle.in_flight:
            twins.poll()
        twins.collect(100)
    full = name == "max_partition_fetch_bytes"
    assert ["cycle, ended", "manager" if full else "cycle", "cycle"] == twins.outcomes
    message = twins.cycle.in_flight["0"].request.message
    field = {"fetch_min_bytes": message.min_bytes, "fetch_max_bytes": message.max_bytes}
    field["fetch_max_wait_ms"] = message.max_wait_ms
    [broker] = twins.cycle.manager.planner
    assert 1_900_000 == (broker.session.max_bytes if full else field[name])


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (FetchManager, "end_flight"),
        (CycleConnection, "encode"),
        (CycleConnection, "may_continue"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_exception_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: type[BaseException], before: bool
) -> None:
    """An exception in the middle loses and repeats no record, once the connection was closed because of it."""
    twins = ready_twins()
    produce(twins)
    side, entry, called = twins.cycle, twins.cycle.in_flight["0"], getattr(owner, name)
    body = encode_response(FETCH, entry.version, entry.correlation_id, twins.response("0"))[4:]
    twins.cycle.connections["0"].blocked = name == "end_flight"
    failed = []

    def fail(*args: Any) -> Any:
        if failed:
            return called(*args)
        failed.append(name)
        if not before:
            called(*args)
        raise error(name)

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(error):
        entry.request.exchange.receive(side.connections["0"], entry, make_frame(body), twins.now)
    if 0 in side.manager.in_flight:
        side.reply(side.in_flight.pop("0"), None, BrokerConnectionError("interrupted"), twins.now)
    twins.plain.in_flight["0"] = entry  # the broker reads what this side has sent
    side.connections["0"].blocked = False
    found: dict[Any, list[int]] = {tp: [] for tp in twins.tps}
    for _ in range(6):
        twins.wait(1000)
        for request in side.manager.poll(twins.now).requests:
            entry = InFlight(0, FETCH, twins.version, 0.0, 0.0, request)
            side.in_flight["0"] = twins.plain.in_flight["0"] = entry
            frame = make_frame(encode_response(FETCH, entry.version, 0, twins.response("0"))[4:])
            side.in_flight.pop("0")
            side.decode(entry, frame, twins.now)
        for record in side.components.collector.collect(100):
            found[record.topic_partition].append(record.offset)
        side.positions.delivery.open = False
    assert {tp: [0, 1, 2] for tp in twins.tps} == found
    assert sum(flight.reserved for flight in side.manager.in_flight.values()) == side.buffer.memory.reserved
