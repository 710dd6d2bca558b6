"""What the fetch manager asks of which broker, when, and what it makes of the answers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, OffsetOutOfRangeError, UnsupportedVersionError
from kconsumer.fetching.error_actions import ACCEPT, ERROR_ACTIONS, RAISE, REFRESH, RESET, RETRY
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.fetch import LeaderIdAndEpoch, NodeEndpoint
from kconsumer.schema.metadata import MetadataResponse, MetadataResponseBroker
from kconsumer.state.partition import FetchState
from kconsumer.types import Node, OffsetReset, TopicPartition
from support.harnesses.fetching import TOPIC_ID, Log, World, offsets

# --- requests ------------------------------------------------------------------------------------------


def test_fields_of_a_request() -> None:
    """A request carries the configured limits, asks for a session, and tells each partition's position and epoch."""
    world = World(2, fetch_max_wait_ms=77, fetch_min_bytes=3, max_partition_fetch_bytes=1000, client_rack="r1")
    world.epochs = {0: 4, 1: 9}
    world.update_metadata()
    world.seek(world.tps[1], 42)
    (request,) = world.poll()
    message = request.message
    assert ("0", 77, 3, 2000, 0) == (
        request.node,
        message.max_wait_ms,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
    )
    assert (-1, 0, 0, "r1") == (
        message.replica_id,
        message.session_id,
        message.session_epoch,
        message.rack_id,
    )
    (topic,) = message.topics
    assert [(0, 4, 0, 1000), (1, 9, 42, 1000)] == [
        (p.partition, p.current_leader_epoch, p.fetch_offset, p.partition_max_bytes) for p in topic.partitions
    ]
    assert {(-1, -1)} == {(p.last_fetched_epoch, p.log_start_offset) for p in topic.partitions}


def test_topic_ids_when_all_are_known() -> None:
    """With the ids of all topics any version may be spoken, else only those that have names."""
    world = World()
    (request,) = world.poll()
    assert (TOPIC_ID, 32767) == (request.message.topics[0].topic_id, request.max_version)
    world = World()
    world.topic_id = None
    world.update_metadata()
    (request,) = world.poll()
    assert ("t", ZERO_UUID, 12) == (
        request.message.topics[0].topic,
        request.message.topics[0].topic_id,
        request.max_version,
    )


def test_answers_by_name_and_by_id() -> None:
    """A response is read by name up to version 12 and by the ids of the request from 13 on."""
    for version in (4, 12, 13, 17):
        world = World()
        world.version = version
        world.logs[world.tps[0]].append(3)
        world.fetch()
        assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_answer_is_read_by_the_ids_of_its_request() -> None:
    """A topic made anew while a fetch is under way does not change what its response means."""
    world = World()
    world.logs[world.tps[0]].append(3)
    (request,) = world.poll()
    world.topic_id = bytes(15) + b"\x07"
    world.update_metadata()
    world.answer(request)
    assert 0 < world.buffer.buffered_bytes(world.tps[0])


@pytest.mark.parametrize("sessions", [0, 1])
@pytest.mark.parametrize("collected", [3, 0], ids=["read", "buffered"])
@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_position_of_a_deleted_topic_is_not_kept(collected: int, reset: str, sessions: int) -> None:
    """A topic that was deleted and created again is not read on from the old one's position, although the new log has
    that offset, too: what was fetched of the old one is returned, then the position is out of range."""
    world = World(auto_offset_reset=reset, sessions=sessions)
    (tp,) = world.tps
    world.logs[tp].append(3)
    world.fetch()
    assert collected == len(world.collect(collected).get(tp, ()))
    world.topic_id = bytes(15) + b"\x07"
    world.update_metadata()
    world.logs[tp] = Log()
    world.logs[tp].append(10)
    world.fetch()
    if not collected:
        assert {tp: [0, 1, 2]} == world.collect()
    if reset == "none":
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                world.collect()
        world.seek(tp, 0)
    else:
        assert {} == world.collect()
        assert FetchState.AWAIT_RESET is world.subscription.get(tp).fetch_state
        assert world.subscription.maybe_seek_after_reset(tp, 0, OffsetReset.EARLIEST)
    world.wait(1000)
    world.update_metadata()
    world.fetch()
    assert {tp: list(range(10))} == world.collect()


def test_topic_that_metadata_forgets_is_not_read_by_name() -> None:
    """Between its deletion and the metadata of a new topic of its name nothing is asked for: the leader could answer a
    fetch by name from the new log."""
    world = World()
    (tp,) = world.tps
    world.logs[tp].append(3)
    world.fetch()
    assert {tp: [0, 1, 2]} == world.collect()
    brokers = [MetadataResponseBroker(node_id=0, host="b0", port=9092)]
    world.cluster.update(MetadataResponse(brokers=brokers), 12, full=True)
    assert [] == world.poll()
    assert world.metadata_requests.count
    world.update_metadata()
    assert 1 == world.fetch(), "it was the broker that lagged behind"


def test_sought_position_of_a_new_topic_is_kept() -> None:
    """What was sought, or taken from a commit, and not read yet is a position in any topic of that name."""
    world = World()
    (tp,) = world.tps
    world.logs[tp].append(10)
    world.seek(tp, 5)
    world.topic_id = bytes(15) + b"\x07"
    world.update_metadata()
    world.fetch()
    assert {tp: [5, 6, 7, 8, 9]} == world.collect()


def test_one_fetch_per_broker() -> None:
    """Each broker gets one request with all its partitions, and no second one while that is under way."""
    world = World(4, brokers=2)
    requests = world.poll()
    assert {"0": {0: 0, 2: 0}, "1": {1: 0, 3: 0}} == {r.node: offsets(r) for r in requests}
    assert world.manager.has_in_flight
    assert [] == world.poll()
    world.answer(requests[0])
    assert ["0"] == [r.node for r in world.poll()]


@pytest.mark.parametrize("hold_back", ["pause", "revoke", "callback", "reset"])
def test_only_fetchable_partitions(hold_back: str) -> None:
    """Partitions that are paused, being revoked, awaiting their callback or a position are not asked for."""
    world = World(2)
    tp = world.tps[0]
    match hold_back:
        case "pause":
            world.subscription.pause(tp)
        case "revoke":
            world.subscription.mark_pending_revocation([tp])
        case "callback":
            world.subscription.mark_awaiting_callback([tp])
        case "reset":
            world.subscription.request_reset(tp)
    assert [{1: 0}] == [offsets(r) for r in world.poll()]


def test_no_leader_asks_for_metadata() -> None:
    """A partition without a leader is left out, and metadata is asked for."""
    world = World(2, brokers=2)
    world.leaders[1] = -1
    world.update_metadata()
    world.seek(world.tps[1], 5)
    assert [{0: 0}] == [offsets(r) for r in world.poll()]
    assert 1 == world.metadata_requests.count


# --- ahead of the caller -------------------------------------------------------------------------------


def test_next_fetch_leaves_when_the_response_has_arrived() -> None:
    """With data buffered and nothing collected, the next fetch starts where the received batches end."""
    world = World()
    log = world.logs[world.tps[0]]
    log.append(10)
    log.append(5)
    world.answer(*world.poll())
    (request,) = world.poll()
    assert {0: 15} == offsets(request)


def test_no_more_than_two_fetches_ahead() -> None:
    """With two fetches of a partition buffered its broker waits until the first has been read."""
    world = World(max_partition_fetch_bytes=1)
    for _ in range(4):
        world.logs[world.tps[0]].append(10)
    assert [1, 1, 0] == [world.fetch() for _ in range(3)]
    world.collect(9)
    assert [] == world.poll()
    world.collect(1)
    assert [{0: 20}] == [offsets(r) for r in world.poll()]


def test_a_full_partition_holds_its_broker_back_and_no_other() -> None:
    """Nothing is asked of a broker without all of its partitions: the one left out would have to wait."""
    world = World(4, brokers=2, max_partition_fetch_bytes=200)
    for _ in range(3):
        world.logs[world.tps[0]].append(10)
    world.fetch()
    world.fetch()
    assert ["1"] == [r.node for r in world.poll()]


def test_partitions_with_data_go_to_the_end() -> None:
    """Those that returned nothing come first in the next request, so that a size limit hits them last."""
    world = World(3)
    world.logs[world.tps[0]].append(1)
    world.fetch()
    (request,) = world.poll()
    assert [1, 2, 0] == list(offsets(request))


def test_order_of_partitions_is_kept_across_topics() -> None:
    """Neighbours of one topic share an entry; the order of partitions is not changed for it."""
    world = World(3)
    for move in (world.tps[1], world.tps[0]):
        world.subscription.move_to_end(move)
    (request,) = world.poll()
    assert [2, 1, 0] == list(offsets(request))
    assert 1 == len(request.message.topics)


def test_wants_poll() -> None:
    """The engine is told when there may be something to do: a response, room made, metadata, an assignment."""
    world = World(max_partition_fetch_bytes=1)
    log = world.logs[world.tps[0]]
    for _ in range(3):
        log.append(10)
    wants = []
    requests = world.poll()
    wants.append(world.manager.wants_poll)
    world.answer(*requests)
    wants.append(world.manager.wants_poll)
    world.answer(*world.poll())
    world.poll()
    wants.append(world.manager.wants_poll)
    world.collect(5)
    wants.append(world.manager.wants_poll)
    world.collect(5)
    wants.append(world.manager.wants_poll)
    world.poll()
    world.update_metadata()
    wants.append(world.manager.wants_poll)
    world.poll()
    world.subscription.assign(set())
    wants.append(world.manager.wants_poll)
    assert [False, True, False, False, True, True, True] == wants


def test_room_is_no_reason_to_poll_while_every_broker_is_asked() -> None:
    """What is read during a fetch makes room that only the next one can use."""
    world = World(max_partition_fetch_bytes=1)
    log = world.logs[world.tps[0]]
    for _ in range(3):
        log.append(10)
    world.answer(*world.poll())
    under_way = world.poll()
    assert under_way
    assert 1 == len(world.collect(5))
    assert not world.manager.wants_poll
    world.answer(*under_way)
    assert world.manager.wants_poll


# --- seek, pause, rebalance while a fetch is under way -------------------------------------------------


def test_seek_while_in_flight() -> None:
    """The response to a fetch from before a seek is dropped, and the next fetch starts at the new position."""
    world = World()
    log = world.logs[world.tps[0]]
    log.append(10)
    log.append(10)
    (request,) = world.poll()
    world.seek(world.tps[0], 13)
    world.answer(request)
    assert {} == world.collect()
    assert [{0: 13}] == [offsets(r) for r in world.poll()]


def test_seek_with_data_buffered() -> None:
    """What is buffered from before a seek goes at once, so that the fetch from the new position can leave."""
    world = World(max_partition_fetch_bytes=1)
    log = world.logs[world.tps[0]]
    for _ in range(4):
        log.append(10)
    world.fetch()
    world.fetch()
    world.seek(world.tps[0], 35)
    assert 1 == world.fetch()
    assert {world.tps[0]: [35, 36, 37, 38, 39]} == world.collect()


def test_seek_between_two_buffered_fetches() -> None:
    """After a seek to where the second buffered fetch starts nothing is returned twice or left out."""
    world = World(max_partition_fetch_bytes=1)
    log = world.logs[world.tps[0]]
    for _ in range(3):
        log.append(10)
    world.fetch()
    world.fetch()
    world.collect(3)
    world.seek(world.tps[0], 10)
    got: list[int] = []
    for _ in range(4):
        got += world.collect().get(world.tps[0], [])
        world.fetch()
    assert list(range(10, 30)) == got


def test_pause_while_in_flight() -> None:
    """Data of a partition paused meanwhile is kept and returned after it resumes, without another fetch."""
    world = World()
    world.logs[world.tps[0]].append(3)
    (request,) = world.poll()
    world.subscription.pause(world.tps[0])
    world.answer(request)
    assert {} == world.collect()
    assert [] == world.poll()
    world.subscription.resume(world.tps[0])
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_partition_lost_while_in_flight() -> None:
    """Data of a partition that is no longer assigned is dropped, also if it is assigned again meanwhile."""
    world = World(2)
    for log in world.logs.values():
        log.append(3)
    (request,) = world.poll()
    world.subscription.assign({world.tps[1]})
    world.subscription.assign(set(world.tps))
    world.seek(world.tps[0], 2)
    world.answer(request)
    assert {world.tps[1]: [0, 1, 2]} == world.collect()
    (request,) = world.poll()
    assert {0: 2, 1: 3} == offsets(request)


def test_unassigned_data_is_freed_at_the_next_poll() -> None:
    """What is buffered of partitions that left does not wait for its turn to be freed."""
    world = World(2)
    world.logs[world.tps[0]].append(3)
    world.fetch()
    world.subscription.assign({world.tps[1]})
    world.poll()
    assert 0 == world.buffer.memory.total


def test_late_response_after_clear() -> None:
    """Nothing is kept of a response that comes after the buffer was cleared, as unsubscribing does."""
    world = World()
    world.logs[world.tps[0]].append(3)
    (request,) = world.poll()
    world.buffer.clear()
    world.answer(request)
    assert (False, 0) == (world.manager.has_in_flight, world.buffer.memory.total)


# --- leaders -------------------------------------------------------------------------------------------


def test_nothing_is_fetched_ahead_from_a_new_leader() -> None:
    """After a change of leader the next fetch waits until what came from the old one has been read."""
    world = World(brokers=2)
    world.logs[world.tps[0]].append(10)
    world.fetch()
    world.leaders[0], world.epochs[0] = 1, 1
    world.update_metadata()
    assert [] == world.poll()
    assert {world.tps[0]: list(range(10))} == world.collect()
    assert [] == world.poll()
    world.validate()
    (request,) = world.poll()
    assert ("1", {0: 10}, 1) == (
        request.node,
        offsets(request),
        request.message.topics[0].partitions[0].current_leader_epoch,
    )


def test_position_is_checked_where_two_logs_are_joined() -> None:
    """The position was checked when the leader changed; having moved over what the old leader sent, it is checked once
    more before the new one is asked, as that may not have all of it."""
    world = World(brokers=2)
    tp = world.tps[0]
    world.logs[tp].append(5)
    world.fetch()
    world.collect(2)
    world.leaders[0], world.epochs[0] = 1, 1
    world.update_metadata()
    assert [tp] == world.subscription.partitions_to_validate(world.now)
    world.poll()
    world.validate()
    assert {tp: [2, 3, 4]} == world.collect()
    assert [] == world.poll()
    assert [tp] == world.subscription.partitions_to_validate(world.now)
    world.validate()
    assert [("1", {0: 5})] == [(request.node, offsets(request)) for request in world.poll()]


def test_same_fetch_to_two_leaders_counts_once() -> None:
    """With a fetch under way at the old leader the new one is asked too, and the same data is taken once."""
    world = World(brokers=2)
    world.logs[world.tps[0]].append(10)
    (old,) = world.poll()
    world.leaders[0], world.epochs[0] = 1, 1
    world.update_metadata()
    (new,) = world.poll()
    world.answer(old)
    world.answer(new)
    assert {world.tps[0]: list(range(10))} == world.collect()
    assert {} == world.collect()


@pytest.mark.parametrize("code", [6, 74])
def test_leader_named_in_the_response(code: int) -> None:
    """A newer leader with its address in the response is used at once (KIP-951)."""
    world = World()
    hint = {
        "error_code": code,
        "current_leader": LeaderIdAndEpoch(leader_id=7, leader_epoch=3),
        "records": None,
    }
    endpoint = NodeEndpoint(node_id=7, host="b7", port=9099)
    world.answer(*world.poll(), p0=hint, node_endpoints=[endpoint])
    assert Node(7, "b7", 9099) == world.cluster.leader(world.tps[0]).leader
    assert [("7", {0: 0})] == [(r.node, offsets(r)) for r in world.poll()]


def test_old_leader_in_the_response_is_ignored() -> None:
    """A leader whose epoch is not newer than the known one changes nothing."""
    world = World()
    hint = {"error_code": 6, "current_leader": LeaderIdAndEpoch(leader_id=7, leader_epoch=0), "records": None}
    world.answer(*world.poll(), p0=hint, node_endpoints=[NodeEndpoint(node_id=7, host="b7", port=9099)])
    leader = world.cluster.leader(world.tps[0]).leader
    assert leader is not None
    assert 0 == leader.id


def test_preferred_replica() -> None:
    """A replica that the leader prefers for us is fetched from while its lease lasts (KIP-392)."""
    world = World(brokers=2)
    world.answer(*world.poll(), p0={"preferred_read_replica": 1, "records": None})
    requests = world.poll()
    assert ["1"] == [r.node for r in requests]
    world.answer(*requests)
    world.now += world.config.metadata_max_age_ms + 1
    assert ["0"] == [r.node for r in world.poll()]


def test_preferred_replica_out_of_range_asks_the_leader() -> None:
    """A follower that says out of range may only lag behind: the leader is asked, the position stays."""
    world = World(brokers=2)
    world.seek(world.tps[0], 5)
    world.answer(*world.poll(), p0={"preferred_read_replica": 1, "records": None})
    world.answer(*world.poll(), p0={"error_code": 1, "records": None})
    assert [("0", {0: 5})] == [(r.node, offsets(r)) for r in world.poll()]
    assert {} == world.collect()


def test_preferred_replica_that_is_not_known() -> None:
    """A preferred replica that metadata does not have is not used: metadata and, later, the leader are asked."""
    world = World(brokers=2)
    world.answer(*world.poll(), p0={"preferred_read_replica": 5, "records": None})
    assert ([], 1) == (world.poll(), world.metadata_requests.count)
    world.now += world.config.retry_backoff_ms
    assert ["0"] == [r.node for r in world.poll()]


def test_preferred_replica_gone_offline() -> None:
    """A preferred replica that left the cluster is forgotten, and the leader asked at once."""
    world = World(brokers=2)
    world.answer(*world.poll(), p0={"preferred_read_replica": 1, "records": None})
    world.brokers = 1
    world.update_metadata()
    assert ["0"] == [r.node for r in world.poll()]
    assert 1 == world.metadata_requests.count


# --- errors --------------------------------------------------------------------------------------------


def test_the_table_of_reactions() -> None:
    """The reactions to partition errors are those of the Java client."""
    assert {
        ACCEPT: {0},
        RETRY: {-1, 75},
        RESET: {1},
        RAISE: {2, 29},
        REFRESH: {3, 6, 9, 56, 74, 78, 100, 103},
    } == {reaction: {c for c, r in ERROR_ACTIONS.items() if r is reaction} for reaction in ERROR_ACTIONS.values()}


@pytest.mark.parametrize("code", sorted(c for c, r in ERROR_ACTIONS.items() if r in (REFRESH, RETRY)))
def test_passing_errors_are_retried_after_a_backoff(code: int) -> None:
    """Passing errors are not raised: the partition is asked again from the same offset after
    retry_backoff_ms, its neighbours at once, and stale metadata is asked for anew."""
    world = World(2)
    world.logs[world.tps[0]].append(3)
    world.answer(*world.poll(), p0={"error_code": code, "records": None})
    assert (1 if ERROR_ACTIONS[code] is REFRESH else 0) == world.metadata_requests.count
    assert {} == world.collect()
    result = world.manager.poll(world.now)
    (request,) = result.requests
    assert ({1: 0}, world.config.retry_backoff_ms) == (offsets(request), result.wait_ms)
    world.answer(request)
    world.now += world.config.retry_backoff_ms
    (request,) = world.poll()
    assert {0: 0, 1: 0} == offsets(request)
    world.answer(request)
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_new_leader_ends_the_backoff() -> None:
    """A partition that failed at one leader is asked of another one at once."""
    world = World(brokers=2)
    world.answer(*world.poll(), p0={"error_code": 6, "records": None})
    assert [] == world.poll()
    world.leaders[0], world.epochs[0] = 1, 1
    world.update_metadata()
    assert ["1"] == [r.node for r in world.poll()]


def test_lost_connection_is_retried_after_a_backoff() -> None:
    """A failed request is made again after retry_backoff_ms; other brokers are not held back."""
    world = World(2, brokers=2)
    first, second = world.poll()
    world.reply(first, error=BrokerConnectionError("gone"))
    world.answer(second)
    requests = world.poll()
    assert ["1"] == [r.node for r in requests]
    world.answer(*requests)
    world.now += world.config.retry_backoff_ms
    assert ["0", "1"] == sorted(str(r.node) for r in world.poll())
    assert 1 == world.metadata_requests.count
    assert {} == world.collect()


def test_failed_request_forgets_the_preferred_replica() -> None:
    """When a follower cannot be reached the leader is asked again."""
    world = World(brokers=2)
    world.answer(*world.poll(), p0={"preferred_read_replica": 1, "records": None})
    (request,) = world.poll()
    world.reply(request, error=BrokerConnectionError("gone"))
    assert ["0"] == [r.node for r in world.poll()]


def test_lasting_failure_is_raised_by_collect() -> None:
    """A failure that trying again cannot mend is raised once by the next collect."""
    world = World()
    world.reply(*world.poll(), error=UnsupportedVersionError("Fetch"))
    assert world.buffer.has_data()
    with pytest.raises(UnsupportedVersionError):
        world.collect()
    assert {} == world.collect()


def test_error_of_the_whole_response() -> None:
    """A full request that is refused is made again after a backoff, with new metadata."""
    world = World()
    world.logs[world.tps[0]].append(3)
    world.answer(*world.poll(), error_code=-1)
    assert 1 == world.metadata_requests.count
    assert ({}, []) == (world.collect(), world.poll())
    world.now += world.config.retry_backoff_ms
    assert 1 == world.fetch()
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_answer_to_another_question() -> None:
    """A full response that does not name exactly the partitions asked for is dropped; all is asked again, later."""
    world = World(2)
    world.logs[world.tps[0]].append(3)
    (request,) = world.poll()
    request.message.topics[0].partitions[1].partition = 0  # the answer then names partition 0 only
    world.answer(request)
    request.message.topics[0].partitions[1].partition = 1
    assert ({}, []) == (world.collect(), world.poll())
    world.now += world.config.retry_backoff_ms
    world.fetch()
    assert {world.tps[0]: [0, 1, 2]} == world.collect()


def test_empty_response_is_harmless() -> None:
    """A throttled broker may answer without any partition; they are asked for again."""
    world = World()
    (request,) = world.poll()
    topics, request.message.topics = request.message.topics, []
    world.answer(request, throttle_time_ms=10)
    request.message.topics = topics
    assert [{0: 0}] == [offsets(r) for r in world.poll()]


# --- what the broker tells besides records -------------------------------------------------------------


def test_offsets_of_the_log_are_kept() -> None:
    """High watermark, last stable offset and log start go to the partition's state; -1 changes nothing."""
    world = World()
    told: dict[str, Any] = {
        "high_watermark": 30,
        "last_stable_offset": 20,
        "log_start_offset": 4,
        "records": None,
    }
    world.answer(*world.poll(), p0=told)
    world.answer(*world.poll(), p0=dict.fromkeys(told, -1) | {"records": None})
    state = world.subscription.get(world.tps[0])
    assert (30, 20, 4, 30) == (
        state.high_watermark,
        state.last_stable_offset,
        state.log_start_offset,
        state.lag(),
    )


def values(world: World, **tags: str) -> dict[str, float]:
    """Returns the metrics with exactly these tags besides the client id."""
    wanted = (("client-id", world.config.client_id), *tags.items())
    world.poll()
    return {m.name: v for m, v in world.metrics.snapshot(world.now).items() if m.tags == wanted}


def test_metrics_of_fetches() -> None:
    """Latency and throttling are recorded per response; sizes and counts once its data has been read."""
    world = World(2)
    for log in world.logs.values():
        log.append(10)
        log.append(10)
    (request,) = world.poll()
    world.now += 40
    world.answer(request, throttle_time_ms=6)
    size = world.buffer.memory.total
    world.collect(30)
    assert 0 == values(world)["records-consumed-total"]
    world.collect(5)
    got = values(world)
    assert (40, 40, 1, 6, 6) == tuple(
        got[name]
        for name in (
            "fetch-latency-avg",
            "fetch-latency-max",
            "fetch-total",
            "fetch-throttle-time-avg",
            "fetch-throttle-time-max",
        )
    )
    assert 0 == got["records-consumed-total"]
    world.collect(5)
    got, of_topic = values(world), values(world, topic="t")
    assert (40, 40, size, size) == tuple(
        got[name]
        for name in (
            "records-consumed-total",
            "records-per-request-avg",
            "bytes-consumed-total",
            "fetch-size-max",
        )
    )
    assert (40, size) == (of_topic["records-consumed-total"], of_topic["bytes-consumed-total"])


def test_metrics_of_partitions() -> None:
    """Lag and lead are recorded when a fetched part has been read, and go with the partition."""
    world = World()
    log = world.logs[world.tps[0]]
    log.append(10)
    world.answer(*world.poll(), p0={"high_watermark": 25, "log_start_offset": 0})
    world.collect()
    got = values(world, topic="t", partition="0")
    assert (15, 15, 10, -1) == tuple(
        got[name] for name in ("records-lag", "records-lag-max", "records-lead", "preferred-read-replica")
    )
    world.subscription.assign(set())
    assert {} == values(world, topic="t", partition="0")


def test_lag_and_lead_follow_every_poll() -> None:
    """While a fetched part is read in several polls, lag and lead are those of the position each left."""
    world = World()
    log = world.logs[world.tps[0]]
    log.append(10)
    world.answer(*world.poll(), p0={"high_watermark": 25, "log_start_offset": 0})
    for position in (3, 6):
        world.collect(3)
        got = values(world, topic="t", partition="0")
        assert (25 - position, position) == (got["records-lag"], got["records-lead"])
    world.subscription.request_reset(world.tps[0], OffsetReset.LATEST)
    assert math.isnan(values(world, topic="t", partition="0")["records-lag"])


def test_topics_with_dots_are_reported_twice() -> None:
    """A topic name with a dot also appears as older clients spelled it (KIP-1109)."""
    world = World(assign=False)
    world.subscription.assign({TopicPartition("a.b", 0)})
    world.poll()
    assert {"a.b", "a_b"} == {
        dict(m.tags)["topic"] for m in world.metrics.snapshot(world.now) if m.name == "preferred-read-replica"
    }
