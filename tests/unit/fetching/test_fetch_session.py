"""Fetch sessions (KIP-227): what requests say, and what follows from every kind of answer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kconsumer.errors import BrokerConnectionError
from kconsumer.fetching.buffer import FetchChain
from kconsumer.fetching.session import MAX_EPOCH, FetchSession, SessionRequest, next_epoch
from kconsumer.managers import UnsentRequest
from kconsumer.schema.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import TopicPartition
from support.harnesses.fetching import TOPIC_ID, FetchHarness, offsets

OTHER_ID = bytes(15) + b"\x07"
VERSION = 17
Contents = tuple[int, int, dict[int, int], list[int]]


def contents(request: UnsentRequest) -> Contents:
    """Session id, epoch, partitions with their offsets, and partitions to forget."""
    message = request.message
    forgotten = [p for topic in message.forgotten_topics_data for p in topic.partitions]
    return message.session_id, message.session_epoch, offsets(request), forgotten


def filled(partitions: int = 3, **options: int) -> FetchHarness:
    """A harness whose brokers keep sessions and whose partitions have five records each."""
    harness = FetchHarness(partitions, sessions=10, **options)
    for log in harness.logs.values():
        log.append(5)
    return harness


def fetch(harness: FetchHarness) -> Contents:
    """Send the one request there is, respond to it, read everything, and return what the request contained."""
    (request,) = harness.poll()
    said = contents(request)
    harness.answer(request)
    harness.collect()
    return said


# --- what requests say -----------------------------------------------------------------------------------


def test_first_request_is_full_and_the_next_name_what_changed() -> None:
    """A session begins with all partitions; from then on a request names those whose offset moved, or none."""
    harness = filled()
    assert (0, 0, {0: 0, 1: 0, 2: 0}, []) == fetch(harness)
    assert (100, 1, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert (100, 2, {}, []) == fetch(harness)
    harness.logs[harness.tps[1]].append(2)
    assert (100, 3, {}, []) == fetch(harness)
    assert (100, 4, {1: 7}, []) == fetch(harness)
    assert (100, 5, {}, []) == fetch(harness)


def test_partitions_come_and_go() -> None:
    """A partition that is no longer wanted is forgotten once; one that is wanted again is named once."""
    harness = FetchHarness(3, sessions=10)
    fetch(harness)
    harness.subscription.pause(harness.tps[1])
    assert (100, 1, {}, [1]) == fetch(harness)
    assert (100, 2, {}, []) == fetch(harness)
    harness.subscription.resume(harness.tps[1])
    assert (100, 3, {1: 0}, []) == fetch(harness)
    harness.subscription.assign(set(harness.tps[1:]))
    assert (100, 4, {}, [0]) == fetch(harness)


def test_leader_epoch_is_a_change() -> None:
    """A partition whose leader epoch grew is named again."""
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.epochs[1] = 4
    harness.update_metadata()
    (request,) = harness.poll()
    (topic,) = request.message.topics
    assert [(1, 4)] == [(row.partition, row.current_leader_epoch) for row in topic.partitions]


def test_partitions_without_room_stay_in_the_session() -> None:
    """While a partition has no room its broker is not asked at all, so that the session does not forget it."""
    harness = filled(2, max_partition_fetch_bytes=120)
    for _ in range(3):
        harness.logs[harness.tps[0]].append(5)
    said = []
    for _ in range(6):
        for request in harness.poll():
            said.append(contents(request)[2:])
            harness.answer(request)
    assert [({0: 0, 1: 0}, []), ({0: 5, 1: 5}, [])] == said
    harness.collect(5)
    assert [({0: 10}, [])] == [contents(request)[2:] for request in harness.poll()]


def test_partition_is_forgotten_during_its_backoff() -> None:
    """A broker answers at once while a partition fails, so a failed one is left out until its backoff ends."""
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.answer(*harness.poll(), p1={"error_code": 6, "records": None})
    assert (100, 2, {}, [1]) == fetch(harness)
    harness.now += harness.config.retry_backoff_ms
    assert (100, 3, {1: 0}, []) == fetch(harness)


def test_one_session_per_broker() -> None:
    """Each broker has a session of its own; a partition that moves leaves the one and enters the other."""
    harness = FetchHarness(4, brokers=2, sessions=10)
    harness.fetch()
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    assert {"0": (100, 1, {}, [0]), "1": (100, 1, {0: 0}, [])} == {r.node: contents(r) for r in harness.poll()}


def test_request_does_not_grow_with_the_partitions() -> None:
    """With a thousand idle partitions a request names none, and looking for changes finds none."""
    harness = FetchHarness(1000, sessions=1)
    fetch(harness)
    assert (100, 1, {}, []) == fetch(harness)
    harness.logs[harness.tps[7]].append(1)
    fetch(harness)
    assert (100, 3, {7: 1}, []) == fetch(harness)


def test_back_at_the_same_offset_needs_no_word() -> None:
    """After seeks that end where the session is, what the broker sent meanwhile is dropped and comes again unasked."""
    harness = FetchHarness(1, sessions=1)
    fetch(harness)
    (request,) = harness.poll()
    harness.logs[harness.tps[0]].append(3)
    for offset in (2, 0):
        harness.seek(harness.tps[0], offset)
        assert [] == harness.poll()
    harness.answer(request)
    assert {} == harness.collect()
    assert (100, 2, {}, []) == fetch(harness)
    assert {harness.tps[0]: 3} == {tp: at.offset for tp, at in harness.subscription.all_consumed().items()}


# --- topic ids -------------------------------------------------------------------------------------------


def test_topic_created_again() -> None:
    """When a topic's id changes its old id is forgotten and the new one named; both in one request."""
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.topic_id = OTHER_ID
    harness.update_metadata()
    (request,) = harness.poll()
    message = request.message
    assert [(OTHER_ID, [0, 1])] == [(t.topic_id, [p.partition for p in t.partitions]) for t in message.topics]
    assert [(TOPIC_ID, [0, 1])] == [(t.topic_id, list(t.partitions)) for t in message.forgotten_topics_data]
    harness.answer(request)
    assert {OTHER_ID: "t"} == harness.session().topic_names


def test_session_goes_from_ids_to_names_and_back() -> None:
    """A session speaks of topics by id or by name, so a switch starts another one, which ends the first."""
    harness = filled()
    fetch(harness)
    harness.topic_id = None
    harness.update_metadata()
    (request,) = harness.poll()
    assert ((100, 0, {0: 5, 1: 5, 2: 5}, []), 12) == (contents(request), request.max_version)
    harness.answer(request)
    assert (101, 1, {}, []) == fetch(harness)
    harness.topic_id = TOPIC_ID
    harness.update_metadata()
    assert (101, 0, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert {102} == set(harness.caches["0"].sessions)


def test_brokers_without_topic_ids() -> None:
    """Version 12 and below name topics, also when their ids are known."""
    harness = filled()
    harness.version = 11
    assert (0, 0, {0: 0, 1: 0, 2: 0}, []) == fetch(harness)
    assert (100, 1, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert dict.fromkeys(harness.tps, 5) == {tp: at.offset for tp, at in harness.subscription.all_consumed().items()}


# --- what answers mean -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "following"),
    [(70, (0, 0)), (71, (100, 0)), (106, (100, 0)), (-1, (100, 0)), (42, (100, 0))],
)
def test_error_of_a_session(code: int, following: tuple[int, int]) -> None:
    """After any error the next request is full, at once; only a session that the broker does not know needs no end.
    Nothing of the response is used."""
    harness = filled()
    fetch(harness)
    harness.answer(*harness.poll(), error_code=code)
    (request,) = harness.poll()
    assert (*following, {0: 5, 1: 5, 2: 5}, []) == contents(request)
    assert (0 if code in (70, 71) else 1) == harness.metadata_requests.count
    harness.answer(request)
    assert (101, 1, {}, []) == fetch(harness)


def test_session_evicted_by_the_broker() -> None:
    """A session that gave way to another client's is made again, and nothing is lost or repeated."""
    harness = filled()
    fetch(harness)
    harness.caches["0"].sessions.clear()
    for log in harness.logs.values():
        log.append(4)
    got: dict[TopicPartition, list[int]] = {}
    for _ in range(3):
        harness.fetch()
        for tp, found in harness.collect().items():
            got.setdefault(tp, []).extend(found)
    assert {tp: [5, 6, 7, 8] for tp in harness.tps} == got


def test_lost_answer() -> None:
    """When it is unknown whether the broker processed a request, the next one is full and ends the old session."""
    harness = filled()
    fetch(harness)
    (request,) = harness.poll()
    harness.caches["0"].read(request.message, VERSION)
    harness.reply(request, error=BrokerConnectionError("gone"))
    harness.now += harness.config.retry_backoff_ms
    assert (100, 0, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert {101} == set(harness.caches["0"].sessions)


def test_broker_without_room_for_sessions() -> None:
    """Without a session every request is full."""
    harness = FetchHarness(2, sessions=0)
    assert [(0, 0, {0: 0, 1: 0}, [])] * 3 == [fetch(harness) for _ in range(3)]


def test_session_closed_by_the_broker() -> None:
    """Session id 0 in an incremental response ends the session; the response's data counts."""
    harness = filled()
    fetch(harness)
    fetch(harness)
    harness.logs[harness.tps[0]].append(3)
    harness.answer(*harness.poll(), session_id=0)
    assert {harness.tps[0]: [5, 6, 7]} == harness.collect()
    assert (0, 0, {1: 5, 2: 5, 0: 8}, []) == fetch(harness)


def test_throttled_answer_without_partitions() -> None:
    """A broker that throttles answers a full request with nothing: that is no session, and no error."""
    harness = FetchHarness(2, sessions=10)
    (request,) = harness.poll()
    harness.reply(request, FetchResponse(throttle_time_ms=50, session_id=100))
    assert (0, 0, {0: 0, 1: 0}, []) == fetch(harness)


def response(partitions: Mapping[bytes, list[int]], session_id: int = 9, **fields: int) -> FetchResponse:
    topics = [
        FetchableTopicResponse(topic_id=topic, partitions=[FetchPartitionData(partition_index=p) for p in numbers])
        for topic, numbers in partitions.items()
    ]
    return FetchResponse(responses=topics, session_id=session_id, **fields)


def started(partitions: int = 2) -> tuple[FetchSession, dict[TopicPartition, FetchChain]]:
    """A session of which the first request has been sent."""
    session = FetchSession(0, 1000)
    chains = {}
    for partition in range(partitions):
        tp = TopicPartition("t", partition)
        chains[tp] = FetchChain(tp, PartitionState(), FetchPosition(0))
    ask(session, chains)
    return session, chains


def ask(session: FetchSession, chains: dict[TopicPartition, FetchChain]) -> SessionRequest:
    return session.next_request(chains, chains, lambda: chains, lambda _: TOPIC_ID)


@pytest.mark.parametrize("partitions", [{TOPIC_ID: [0]}, {TOPIC_ID: [0, 1, 2]}, {OTHER_ID: [0, 1]}, {}])
def test_full_answer_must_name_exactly_what_was_asked(partitions: dict[bytes, list[int]]) -> None:
    """A full response that leaves partitions out, or names others, is dropped with its session."""
    session, chains = started()
    assert not session.accept(response(partitions), VERSION)
    assert (0, 0) == (session.id, session.epoch)
    request = ask(session, chains)
    assert (0, 0) == (request.session_id, request.epoch)


@pytest.mark.parametrize("partitions", [{TOPIC_ID: [2]}, {OTHER_ID: [0]}])
def test_incremental_answer_with_strange_partitions(partitions: dict[bytes, list[int]]) -> None:
    """An incremental response that names partitions of no session is dropped; the session is ended by the next
    request."""
    session, chains = started()
    assert session.accept(response({TOPIC_ID: [0, 1]}), VERSION)
    ask(session, chains)
    assert not session.accept(response(partitions), VERSION)
    assert (9, 0) == (session.id, session.epoch)


def test_incremental_answer_may_leave_partitions_out() -> None:
    """Partitions without changes are not in an incremental response."""
    session, chains = started()
    session.accept(response({TOPIC_ID: [0, 1]}), VERSION)
    ask(session, chains)
    assert session.accept(response({TOPIC_ID: [1]}), VERSION)
    assert (9, 2) == (session.id, session.epoch)


def test_epoch_wraps_to_one() -> None:
    """0 and -1 mean other things, so the epoch after the largest is 1."""
    assert [2, MAX_EPOCH, 1] == [next_epoch(epoch) for epoch in (1, MAX_EPOCH - 1, MAX_EPOCH)]
    session, chains = started()
    session.accept(response({TOPIC_ID: [0, 1]}), VERSION)
    session.epoch = MAX_EPOCH
    request = ask(session, chains)
    assert MAX_EPOCH == request.epoch
    session.accept(response({}), VERSION)
    assert 1 == session.epoch


# --- the end -----------------------------------------------------------------------------------------------


def test_close_ends_every_session() -> None:
    """Closing sends epoch -1 without partitions to each broker that keeps a session, once."""
    harness = FetchHarness(4, brokers=2, sessions=10)
    harness.fetch()
    requests = harness.manager.close()
    assert {"0": (100, -1, {}, []), "1": (100, -1, {}, [])} == {r.node: contents(r) for r in requests}
    for request in requests:
        harness.caches[request.node or ""].read(request.message, VERSION)
    assert [{}, {}] == [cache.sessions for cache in harness.caches.values()]
    assert [] == harness.manager.close()


def test_close_without_sessions() -> None:
    """Brokers that gave no session get no request."""
    harness = FetchHarness(2)
    harness.fetch()
    assert [] == harness.manager.close()
