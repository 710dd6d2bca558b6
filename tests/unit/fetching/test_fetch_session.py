"""Fetch sessions (KIP-227): the contents of requests, and the effect of each kind of response."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kconsumer._core.cycle import next_epoch
from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import BrokerConnectionError
from kconsumer.fetching.buffer import FetchChain
from kconsumer.fetching.session import MAX_EPOCH, FetchSession, SessionRequest
from kconsumer.schema.fetch import FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import TopicPartition
from support.harnesses.fetching import TOPIC_ID, FetchHarness, offsets

OTHER_ID = bytes(15) + b"\x07"
VERSION = 17
Contents = tuple[int, int, dict[int, int], list[int]]


def contents(request: UnsentRequest) -> Contents:
    """Return session id, epoch, partitions with their offsets, and forgotten partitions of a request."""
    message = request.message
    forgotten = [p for topic in message.forgotten_topics_data for p in topic.partitions]
    return message.session_id, message.session_epoch, offsets(request), forgotten


def filled(partitions: int = 3, **options: int) -> FetchHarness:
    """Return a harness whose brokers keep sessions and whose partitions have five records each."""
    harness = FetchHarness(partitions, sessions=10, **options)
    for log in harness.logs.values():
        log.append(5)
    return harness


def fetch(harness: FetchHarness) -> Contents:
    """Send the one request there is, respond to it, read all records, and return the request's contents."""
    (request,) = harness.poll()
    said = contents(request)
    harness.respond(request)
    harness.collect()
    return said


# --- contents of requests --------------------------------------------------------------------------------


def test_first_request_is_full_and_the_next_name_what_changed() -> None:
    """The first request of a session has all partitions, and later ones only those whose offset changed."""
    harness = filled()
    assert (0, 0, {0: 0, 1: 0, 2: 0}, []) == fetch(harness)
    assert (100, 1, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert (100, 2, {}, []) == fetch(harness)
    harness.logs[harness.tps[1]].append(2)
    assert (100, 3, {}, []) == fetch(harness)
    assert (100, 4, {1: 7}, []) == fetch(harness)
    assert (100, 5, {}, []) == fetch(harness)


def test_partitions_come_and_go() -> None:
    """A partition that is no longer fetched is forgotten once, and added once when it is fetched again."""
    harness = FetchHarness(3, sessions=10)
    fetch(harness)
    harness.assignment.pause(harness.tps[1])
    assert (100, 1, {}, [1]) == fetch(harness)
    assert (100, 2, {}, []) == fetch(harness)
    harness.assignment.resume(harness.tps[1])
    assert (100, 3, {1: 0}, []) == fetch(harness)
    harness.subscription.assign(set(harness.tps[1:]))
    assert (100, 4, {}, [0]) == fetch(harness)


def test_leader_epoch_is_a_change() -> None:
    """A partition whose leader epoch increased is in the next request."""
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.epochs[1] = 4
    harness.update_metadata()
    (request,) = harness.poll()
    (topic,) = request.message.topics
    assert [(1, 4)] == [(row.partition, row.current_leader_epoch) for row in topic.partitions]


def test_partitions_without_room_stay_in_the_session() -> None:
    """While there is no memory for a partition its broker is not asked, so that the session keeps the partition."""
    harness = filled(2, max_partition_fetch_bytes=120)
    for _ in range(3):
        harness.logs[harness.tps[0]].append(5)
    said = []
    for _ in range(6):
        for request in harness.poll():
            said.append(contents(request)[2:])
            harness.respond(request)
    assert [({0: 0, 1: 0}, []), ({0: 5, 1: 5}, [])] == said
    harness.collect(5)
    assert [({0: 10}, [])] == [contents(request)[2:] for request in harness.poll()]


def test_partition_is_forgotten_during_its_backoff() -> None:
    """A failed partition is removed from the session until its backoff ends, because the broker responds at once while
    a partition fails.
    """
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.respond(*harness.poll(), p1={"error_code": 6, "records": None})
    assert (100, 2, {}, [1]) == fetch(harness)
    harness.now += harness.config.retry_backoff_ms
    assert (100, 3, {1: 0}, []) == fetch(harness)


def test_one_session_per_broker() -> None:
    """Each broker has its own session; a partition that moves is removed from one and added to the other."""
    harness = FetchHarness(4, brokers=2, sessions=10)
    harness.fetch()
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    assert {"0": (100, 1, {}, [0]), "1": (100, 1, {0: 0}, [])} == {r.node: contents(r) for r in harness.poll()}


def test_request_does_not_grow_with_the_partitions() -> None:
    """With a thousand idle partitions a request has none of them, and no scan for changes finds any."""
    harness = FetchHarness(1000, sessions=1)
    fetch(harness)
    assert (100, 1, {}, []) == fetch(harness)
    harness.logs[harness.tps[7]].append(1)
    fetch(harness)
    assert (100, 3, {7: 1}, []) == fetch(harness)


def test_back_at_the_same_offset_needs_no_word() -> None:
    """If seeks end at the session's offset no request mentions the partition: data sent meanwhile is dropped, and the
    broker sends it again.
    """
    harness = FetchHarness(1, sessions=1)
    fetch(harness)
    (request,) = harness.poll()
    harness.logs[harness.tps[0]].append(3)
    for offset in (2, 0):
        harness.seek(harness.tps[0], offset)
        assert [] == harness.poll()
    harness.respond(request)
    assert {} == harness.collect()
    assert (100, 2, {}, []) == fetch(harness)
    assert {harness.tps[0]: 3} == {tp: at.offset for tp, at in harness.positions.all_consumed().items()}


# --- topic ids -------------------------------------------------------------------------------------------


def test_topic_created_again() -> None:
    """When a topic's id changes one request forgets the old id and adds the new one."""
    harness = FetchHarness(2, sessions=10)
    fetch(harness)
    harness.topic_id = OTHER_ID
    harness.update_metadata()
    (request,) = harness.poll()
    message = request.message
    assert [(OTHER_ID, [0, 1])] == [(t.topic_id, [p.partition for p in t.partitions]) for t in message.topics]
    assert [(TOPIC_ID, [0, 1])] == [(t.topic_id, list(t.partitions)) for t in message.forgotten_topics_data]
    harness.respond(request)
    assert {OTHER_ID: "t"} == harness.session().topic_names


def test_session_goes_from_ids_to_names_and_back() -> None:
    """A switch between ids and names ends the session and starts another one, in one request."""
    harness = filled()
    fetch(harness)
    harness.topic_id = None
    harness.update_metadata()
    (request,) = harness.poll()
    assert ((100, 0, {0: 5, 1: 5, 2: 5}, []), 12) == (contents(request), request.max_version)
    harness.respond(request)
    assert (101, 1, {}, []) == fetch(harness)
    harness.topic_id = TOPIC_ID
    harness.update_metadata()
    assert (101, 0, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert {102} == set(harness.caches["0"].sessions)


def test_brokers_without_topic_ids() -> None:
    """Up to version 12 topics are identified by name, even if their ids are known."""
    harness = filled()
    harness.version = 11
    assert (0, 0, {0: 0, 1: 0, 2: 0}, []) == fetch(harness)
    assert (100, 1, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert dict.fromkeys(harness.tps, 5) == {tp: at.offset for tp, at in harness.positions.all_consumed().items()}


# --- effects of responses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "following"),
    [(70, (0, 0)), (71, (100, 0)), (106, (100, 0)), (-1, (100, 0)), (42, (100, 0))],
)
def test_error_of_a_session(code: int, following: tuple[int, int]) -> None:
    """After any error of the session the response is ignored and the next request is full and sent at once. It ends the
    old session unless the broker did not find it.
    """
    harness = filled()
    fetch(harness)
    harness.respond(*harness.poll(), error_code=code)
    (request,) = harness.poll()
    assert (*following, {0: 5, 1: 5, 2: 5}, []) == contents(request)
    assert (0 if code in (70, 71) else 1) == harness.metadata_requests.count
    harness.respond(request)
    assert (101, 1, {}, []) == fetch(harness)


def test_session_evicted_by_the_broker() -> None:
    """A session that the broker evicted is created again, and no record is lost or repeated."""
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


def test_lost_response() -> None:
    """After a lost response, as the broker may have processed the request, the next request is full and ends the old
    session.
    """
    harness = filled()
    fetch(harness)
    (request,) = harness.poll()
    harness.process(request)
    harness.reply(request, error=BrokerConnectionError("gone"))
    harness.now += harness.config.retry_backoff_ms
    assert (100, 0, {0: 5, 1: 5, 2: 5}, []) == fetch(harness)
    assert {101} == set(harness.caches["0"].sessions)


def test_broker_without_room_for_sessions() -> None:
    """If the broker creates no session every request is full."""
    harness = FetchHarness(2, sessions=0)
    assert [(0, 0, {0: 0, 1: 0}, [])] * 3 == [fetch(harness) for _ in range(3)]


def test_session_closed_by_the_broker() -> None:
    """Session id 0 in an incremental response ends the session; its data is used."""
    harness = filled()
    fetch(harness)
    fetch(harness)
    harness.logs[harness.tps[0]].append(3)
    harness.respond(*harness.poll(), session_id=0)
    assert {harness.tps[0]: [5, 6, 7]} == harness.collect()
    assert (0, 0, {1: 5, 2: 5, 0: 8}, []) == fetch(harness)


def test_throttled_response_without_partitions() -> None:
    """An empty response to a full request, from a broker that throttles, creates no session and is not an error."""
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
    """Return a session whose first request has been sent."""
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
def test_full_response_must_name_exactly_what_was_asked(partitions: dict[bytes, list[int]]) -> None:
    """A full response with missing or additional partitions is dropped, and its session is ended."""
    session, chains = started()
    assert not session.accept(response(partitions), VERSION)
    assert (0, 0) == (session.id, session.epoch)
    request = ask(session, chains)
    assert (0, 0) == (request.session_id, request.epoch)


@pytest.mark.parametrize("partitions", [{TOPIC_ID: [2]}, {OTHER_ID: [0]}])
def test_incremental_response_with_strange_partitions(partitions: dict[bytes, list[int]]) -> None:
    """An incremental response with partitions that are not in the session is dropped; the next request ends the
    session.
    """
    session, chains = started()
    assert session.accept(response({TOPIC_ID: [0, 1]}), VERSION)
    ask(session, chains)
    assert not session.accept(response(partitions), VERSION)
    assert (9, 0) == (session.id, session.epoch)


def test_incremental_response_may_leave_partitions_out() -> None:
    """An incremental response need not contain partitions without changes."""
    session, chains = started()
    session.accept(response({TOPIC_ID: [0, 1]}), VERSION)
    ask(session, chains)
    assert session.accept(response({TOPIC_ID: [1]}), VERSION)
    assert (9, 2) == (session.id, session.epoch)


def test_epoch_wraps_to_one() -> None:
    """After the largest epoch comes 1, because 0 and -1 have other meanings."""
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
        harness.process(request)
    assert [{}, {}] == [cache.sessions for cache in harness.caches.values()]
    assert [] == harness.manager.close()


def test_close_without_sessions() -> None:
    """Brokers that gave no session get no request."""
    harness = FetchHarness(2)
    harness.fetch()
    assert [] == harness.manager.close()
