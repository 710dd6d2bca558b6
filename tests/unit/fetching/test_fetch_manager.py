"""Which fetches the fetch manager sends to which broker, when, and how it handles the responses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer.errors import BrokerConnectionError, OffsetOutOfRangeError, UnsupportedVersionError
from kconsumer.records import ConsumerRecords
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.metadata import MetadataResponse, MetadataResponseBroker
from kconsumer.state.partition import FetchState
from kconsumer.testing.batches import build_batch
from kconsumer.types import OffsetReset, TopicPartition
from support.harnesses.fetching import TOPIC_ID, FetchHarness, Log, offsets

# --- requests ------------------------------------------------------------------------------------------


def test_fields_of_a_request() -> None:
    """A request has the configured limits, starts a session, and has each partition's position and leader epoch."""
    harness = FetchHarness(2, fetch_max_wait_ms=77, fetch_min_bytes=3, max_partition_fetch_bytes=1000, client_rack="r1")
    harness.epochs = {0: 4, 1: 9}
    harness.update_metadata()
    harness.seek(harness.tps[1], 42)
    (request,) = harness.poll()
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
    """Any version may be used if the ids of all topics are known, else only versions with names."""
    harness = FetchHarness()
    (request,) = harness.poll()
    assert (TOPIC_ID, 32767) == (request.message.topics[0].topic_id, request.max_version)
    harness = FetchHarness()
    harness.topic_id = None
    harness.update_metadata()
    (request,) = harness.poll()
    assert ("t", ZERO_UUID, 12) == (
        request.message.topics[0].topic,
        request.message.topics[0].topic_id,
        request.max_version,
    )


def test_responses_by_name_and_by_id() -> None:
    """A response is read by name up to version 12 and by the ids of the request from 13 on."""
    for version in (4, 12, 13, 17):
        harness = FetchHarness()
        harness.version = version
        harness.logs[harness.tps[0]].append(3)
        harness.fetch()
        assert {harness.tps[0]: [0, 1, 2]} == harness.collect()


def test_response_is_read_by_the_ids_of_its_request() -> None:
    """A response is matched by the ids of its request, even if a topic is re-created meanwhile."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(3)
    (request,) = harness.poll()
    harness.topic_id = bytes(15) + b"\x07"
    harness.update_metadata()
    harness.respond(request)
    assert 0 < harness.buffer.buffered_bytes(harness.tps[0])


@pytest.mark.parametrize("sessions", [0, 1])
@pytest.mark.parametrize("collected", [3, 0], ids=["read", "buffered"])
@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_position_of_a_deleted_topic_is_not_kept(collected: int, reset: str, sessions: int) -> None:
    """If a topic is deleted and re-created, records fetched from the old topic are returned, and then the position is
    out of range although the new log has that offset.
    """
    harness = FetchHarness(auto_offset_reset=reset, sessions=sessions)
    (tp,) = harness.tps
    harness.logs[tp].append(3)
    harness.fetch()
    assert collected == len(harness.collect(collected).get(tp, ()))
    harness.topic_id = bytes(15) + b"\x07"
    harness.update_metadata()
    harness.logs[tp] = Log()
    harness.logs[tp].append(10)
    harness.fetch()
    if not collected:
        assert {tp: [0, 1, 2]} == harness.collect()
    if reset == "none":
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError):
                harness.collect()
        harness.seek(tp, 0)
    else:
        assert {} == harness.collect()
        assert FetchState.AWAIT_RESET is harness.assignment.get(tp).fetch_state
        assert harness.positions.maybe_seek_after_reset(tp, 0, OffsetReset.EARLIEST)
    harness.wait(1000)
    harness.update_metadata()
    harness.fetch()
    assert {tp: list(range(10))} == harness.collect()


def test_topic_that_metadata_forgets_is_not_read_by_name() -> None:
    """Between the deletion of a topic and metadata of a new topic with its name nothing is fetched, because the leader
    could respond to a fetch by name from the new log.
    """
    harness = FetchHarness()
    (tp,) = harness.tps
    harness.logs[tp].append(3)
    harness.fetch()
    assert {tp: [0, 1, 2]} == harness.collect()
    brokers = [MetadataResponseBroker(node_id=0, host="b0", port=9092)]
    harness.cluster.update(MetadataResponse(brokers=brokers), 12, full=True)
    assert [] == harness.poll()
    assert harness.metadata_requests.count
    harness.update_metadata()
    assert 1 == harness.fetch(), "it was the broker that lagged behind"


def test_sought_position_of_a_new_topic_is_kept() -> None:
    """A position from a seek or a commit that was not read from is valid for any topic of that name."""
    harness = FetchHarness()
    (tp,) = harness.tps
    harness.logs[tp].append(10)
    harness.seek(tp, 5)
    harness.topic_id = bytes(15) + b"\x07"
    harness.update_metadata()
    harness.fetch()
    assert {tp: [5, 6, 7, 8, 9]} == harness.collect()


def test_one_fetch_per_broker() -> None:
    """Each broker receives one request with all its partitions, and none while that is in flight."""
    harness = FetchHarness(4, brokers=2)
    requests = harness.poll()
    assert {"0": {0: 0, 2: 0}, "1": {1: 0, 3: 0}} == {r.node: offsets(r) for r in requests}
    assert harness.manager.has_in_flight
    assert [] == harness.poll()
    harness.respond(requests[0])
    assert ["0"] == [r.node for r in harness.poll()]


@pytest.mark.parametrize("hold_back", ["pause", "revoke", "callback", "reset"])
def test_only_fetchable_partitions(hold_back: str) -> None:
    """Partitions that are paused, being revoked, or without a callback or a position are not fetched."""
    harness = FetchHarness(2)
    tp = harness.tps[0]
    match hold_back:
        case "pause":
            harness.assignment.pause(tp)
        case "revoke":
            harness.assignment.mark_pending_revocation([tp])
        case "callback":
            harness.assignment.mark_awaiting_callback([tp])
        case "reset":
            harness.positions.request_reset(tp)
    assert [{1: 0}] == [offsets(r) for r in harness.poll()]


def test_no_leader_asks_for_metadata() -> None:
    """A partition without a leader is not fetched, and metadata is requested."""
    harness = FetchHarness(2, brokers=2)
    harness.leaders[1] = -1
    harness.update_metadata()
    harness.seek(harness.tps[1], 5)
    assert [{0: 0}] == [offsets(r) for r in harness.poll()]
    assert 1 == harness.metadata_requests.count


# --- ahead of the caller -------------------------------------------------------------------------------


def test_next_fetch_leaves_when_the_response_has_arrived() -> None:
    """With data buffered and nothing collected, the next fetch starts at the end of the received batches."""
    harness = FetchHarness()
    log = harness.logs[harness.tps[0]]
    log.append(10)
    log.append(5)
    harness.respond(*harness.poll())
    (request,) = harness.poll()
    assert {0: 15} == offsets(request)


def test_no_more_than_two_fetches_ahead() -> None:
    """With two buffered fetches of a partition no fetch is sent to its broker until the first has been read."""
    harness = FetchHarness(max_partition_fetch_bytes=1)
    for _ in range(4):
        harness.logs[harness.tps[0]].append(10)
    assert [1, 1, 0] == [harness.fetch() for _ in range(3)]
    harness.collect(9)
    assert [] == harness.poll()
    harness.collect(1)
    assert [{0: 20}] == [offsets(r) for r in harness.poll()]


def test_a_full_partition_holds_its_broker_back_and_no_other() -> None:
    """No fetch is sent to a broker while one of its partitions is full, because that partition would have to wait for
    the next one.
    """
    harness = FetchHarness(4, brokers=2, max_partition_fetch_bytes=200)
    for _ in range(3):
        harness.logs[harness.tps[0]].append(10)
    harness.fetch()
    harness.fetch()
    assert ["1"] == [r.node for r in harness.poll()]


def test_partitions_with_data_go_to_the_end() -> None:
    """Partitions without data come first in the next request, so that a size limit affects those with data."""
    harness = FetchHarness(3)
    harness.logs[harness.tps[0]].append(1)
    harness.fetch()
    (request,) = harness.poll()
    assert [1, 2, 0] == list(offsets(request))


def test_order_of_partitions_is_kept_across_topics() -> None:
    """Adjacent partitions of one topic share an entry, without a change of the order of partitions."""
    harness = FetchHarness(3)
    for move in (harness.tps[1], harness.tps[0]):
        harness.assignment.move_to_end(move)
    (request,) = harness.poll()
    assert [2, 1, 0] == list(offsets(request))
    assert 1 == len(request.message.topics)


def test_needs_poll() -> None:
    """`needs_poll` is True after a response, freed memory, new metadata or a new assignment."""
    harness = FetchHarness(max_partition_fetch_bytes=1)
    log = harness.logs[harness.tps[0]]
    for _ in range(3):
        log.append(10)
    wants = []
    requests = harness.poll()
    wants.append(harness.manager.needs_poll)
    harness.respond(*requests)
    wants.append(harness.manager.needs_poll)
    harness.respond(*harness.poll())
    harness.poll()
    wants.append(harness.manager.needs_poll)
    harness.collect(5)
    wants.append(harness.manager.needs_poll)
    harness.collect(5)
    wants.append(harness.manager.needs_poll)
    harness.poll()
    harness.update_metadata()
    wants.append(harness.manager.needs_poll)
    harness.poll()
    harness.subscription.assign(set())
    wants.append(harness.manager.needs_poll)
    assert [False, True, False, False, True, True, True] == wants


def test_room_is_no_reason_to_poll_while_every_broker_is_asked() -> None:
    """Memory that is freed while every broker has a fetch in flight does not set `needs_poll`, because only the next
    fetch can use it.
    """
    harness = FetchHarness(max_partition_fetch_bytes=1)
    log = harness.logs[harness.tps[0]]
    for _ in range(3):
        log.append(10)
    harness.respond(*harness.poll())
    in_flight = harness.poll()
    assert in_flight
    assert 1 == len(harness.collect(5))
    assert not harness.manager.needs_poll
    harness.respond(*in_flight)
    assert harness.manager.needs_poll


# --- seek, pause, rebalance while a fetch is in flight -------------------------------------------------


def test_seek_with_data_buffered() -> None:
    """Data buffered before a seek is dropped at once, so that the fetch from the new position can be sent."""
    harness = FetchHarness(max_partition_fetch_bytes=1)
    log = harness.logs[harness.tps[0]]
    for _ in range(4):
        log.append(10)
    harness.fetch()
    harness.fetch()
    harness.seek(harness.tps[0], 35)
    assert 1 == harness.fetch()
    assert {harness.tps[0]: [35, 36, 37, 38, 39]} == harness.collect()


def test_partition_lost_while_in_flight() -> None:
    """Data of a partition that is no longer assigned is dropped, also if it is assigned again meanwhile."""
    harness = FetchHarness(2)
    for log in harness.logs.values():
        log.append(3)
    (request,) = harness.poll()
    harness.subscription.assign({harness.tps[1]})
    harness.subscription.assign(set(harness.tps))
    harness.seek(harness.tps[0], 2)
    harness.respond(request)
    assert {harness.tps[1]: [0, 1, 2]} == harness.collect()
    (request,) = harness.poll()
    assert {0: 2, 1: 3} == offsets(request)


def test_unassigned_data_is_freed_at_the_next_poll() -> None:
    """Buffered data of unassigned partitions is freed by the next poll, whatever its place in the order."""
    harness = FetchHarness(2)
    harness.logs[harness.tps[0]].append(3)
    harness.fetch()
    harness.subscription.assign({harness.tps[1]})
    harness.poll()
    assert 0 == harness.buffer.memory.total


def test_late_response_after_clear() -> None:
    """A response that arrives after the buffer was cleared, for example by unsubscribe(), is dropped."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(3)
    (request,) = harness.poll()
    harness.buffer.clear()
    harness.respond(request)
    assert (False, 0) == (harness.manager.has_in_flight, harness.buffer.memory.total)


# --- leaders -------------------------------------------------------------------------------------------


def test_nothing_is_fetched_ahead_from_a_new_leader() -> None:
    """After a change of the leader the next fetch waits until the data of the old leader has been read."""
    harness = FetchHarness(brokers=2)
    harness.logs[harness.tps[0]].append(10)
    harness.fetch()
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    assert [] == harness.poll()
    assert {harness.tps[0]: list(range(10))} == harness.collect()
    assert [] == harness.poll()
    harness.validate()
    (request,) = harness.poll()
    assert ("1", {0: 10}, 1) == (
        request.node,
        offsets(request),
        request.message.topics[0].partitions[0].current_leader_epoch,
    )


def test_position_is_checked_where_two_logs_are_joined() -> None:
    """A position is validated when the leader changes, and again after the old leader's data was read, because the new
    leader may not have all of that data.
    """
    harness = FetchHarness(brokers=2)
    tp = harness.tps[0]
    harness.logs[tp].append(5)
    harness.fetch()
    harness.collect(2)
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    assert [tp] == harness.positions.partitions_to_validate(harness.now)
    harness.poll()
    harness.validate()
    assert {tp: [2, 3, 4]} == harness.collect()
    assert [] == harness.poll()
    assert [tp] == harness.positions.partitions_to_validate(harness.now)
    harness.validate()
    assert [("1", {0: 5})] == [(request.node, offsets(request)) for request in harness.poll()]


def test_same_fetch_to_two_leaders_counts_once() -> None:
    """If the old and the new leader both have a fetch in flight, the data is returned once."""
    harness = FetchHarness(brokers=2)
    harness.logs[harness.tps[0]].append(10)
    (old,) = harness.poll()
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    (new,) = harness.poll()
    harness.respond(old)
    harness.respond(new)
    assert {harness.tps[0]: list(range(10))} == harness.collect()
    assert {} == harness.collect()


# --- errors --------------------------------------------------------------------------------------------


def test_new_leader_ends_the_backoff() -> None:
    """A partition that failed at one leader is fetched from a new leader at once."""
    harness = FetchHarness(brokers=2)
    harness.respond(*harness.poll(), p0={"error_code": 6, "records": None})
    assert [] == harness.poll()
    harness.leaders[0], harness.epochs[0] = 1, 1
    harness.update_metadata()
    assert ["1"] == [r.node for r in harness.poll()]


def test_lost_connection_is_retried_after_a_backoff() -> None:
    """A failed request is sent again after retry_backoff_ms; other brokers are not delayed."""
    harness = FetchHarness(2, brokers=2)
    first, second = harness.poll()
    harness.reply(first, error=BrokerConnectionError("gone"))
    harness.respond(second)
    requests = harness.poll()
    assert ["1"] == [r.node for r in requests]
    harness.respond(*requests)
    harness.now += harness.config.retry_backoff_ms
    assert ["0", "1"] == sorted(str(r.node) for r in harness.poll())
    assert 1 == harness.metadata_requests.count
    assert {} == harness.collect()


def test_lasting_failure_is_raised_by_collect() -> None:
    """A failure that is not retriable is raised once by the next collect."""
    harness = FetchHarness()
    harness.reply(*harness.poll(), error=UnsupportedVersionError("Fetch"))
    assert harness.buffer.has_data()
    with pytest.raises(UnsupportedVersionError):
        harness.collect()
    assert {} == harness.collect()


# --- what the broker reports besides records -------------------------------------------------------------


def test_offsets_of_the_log_are_kept() -> None:
    """High watermark, last stable offset and log start offset are stored in the partition's state; -1
    changes nothing.
    """
    harness = FetchHarness()
    reported: dict[str, Any] = {
        "high_watermark": 30,
        "last_stable_offset": 20,
        "log_start_offset": 4,
        "records": None,
    }
    harness.respond(*harness.poll(), p0=reported)
    harness.respond(*harness.poll(), p0=dict.fromkeys(reported, -1) | {"records": None})
    state = harness.assignment.get(harness.tps[0])
    assert (30, 20, 4, 30) == (
        state.high_watermark,
        state.last_stable_offset,
        state.log_start_offset,
        state.lag(),
    )


def values(harness: FetchHarness, **tags: str) -> dict[str, float]:
    """Returns the metrics with exactly these tags besides the client id."""
    wanted = (("client-id", harness.config.client_id), *tags.items())
    harness.poll()
    return {m.name: v for m, v in harness.metrics.snapshot(harness.now).items() if m.tags == wanted}


def test_metrics_of_fetches() -> None:
    """Latency and throttle time are recorded per response, its sums once its data has been read. Each poll adds what it
    takes to the totals, in bytes of the records: here 7 and those of the value."""
    harness = FetchHarness(2)
    for log in harness.logs.values():
        log.append(10)
        log.append(10)
    (request,) = harness.poll()
    harness.now += 40
    harness.respond(request, throttle_time_ms=6)
    harness.collect(30)
    harness.collect(5)
    got = values(harness)
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
    names = "records-consumed-total", "bytes-consumed-total", "records-per-request-avg", "fetch-size-max"
    assert [35, 20 * 8 + 15 * 9] == [got[name] for name in names[:2]]
    assert [True, True] == [math.isnan(got[name]) for name in names[2:]]
    harness.collect(5)
    got, of_topic = values(harness), values(harness, topic="t")
    expected = [40, 20 * 8 + 20 * 9, 40, 20 * 8 + 20 * 9]
    assert [expected, expected] == [[found[name] for name in names] for found in (got, of_topic)]


def test_bytes_are_uncompressed() -> None:
    """The bytes of compressed records are counted as Java counts them: those of the records, decompressed."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].add(build_batch([b"0" * 1000] * 50, codec="gzip"), 50)
    harness.respond(*harness.poll())
    harness.collector.collect(500)
    got = values(harness)
    assert [50 * 1009] * 2 == [got[name] for name in ("bytes-consumed-total", "fetch-size-max")]


def test_bytes_of_a_run_that_a_deserializer_cuts_off() -> None:
    """Of records that are taken up to one that cannot be deserialized, only these count."""

    def deserialize(data: bytes) -> bytes:
        if data == b"7":
            raise ValueError(data)
        return data

    harness = FetchHarness(value_deserializer=deserialize)
    harness.logs[harness.tps[0]].append(10)
    harness.respond(*harness.poll())
    harness.collect()
    got = values(harness)
    assert [7, 7 * 8] == [got[name] for name in ("records-consumed-total", "bytes-consumed-total")]


def test_metrics_of_partitions() -> None:
    """Lag and lead are recorded when the data of a fetch has been read, and removed with the partition."""
    harness = FetchHarness()
    log = harness.logs[harness.tps[0]]
    log.append(10)
    harness.respond(*harness.poll(), p0={"high_watermark": 25, "log_start_offset": 0})
    harness.collect()
    got = values(harness, topic="t", partition="0")
    assert (15, 15, 10, -1) == tuple(
        got[name] for name in ("records-lag", "records-lag-max", "records-lead", "preferred-read-replica")
    )
    harness.subscription.assign(set())
    assert {} == values(harness, topic="t", partition="0")


def test_lag_and_lead_follow_every_poll() -> None:
    """If the data of a fetch is read by several polls, lag and lead are recorded by each, as in Java."""
    harness = FetchHarness()
    log = harness.logs[harness.tps[0]]
    log.append(10)
    harness.respond(*harness.poll(), p0={"high_watermark": 25, "log_start_offset": 0})
    for position, lag_avg, lead_avg in ((3, 22, 3), (6, 20.5, 4.5)):
        harness.collect(3)
        got = values(harness, topic="t", partition="0")
        assert (25 - position, position) == (got["records-lag"], got["records-lead"])
        assert (22, lag_avg) == (got["records-lag-max"], got["records-lag-avg"])
        assert (3, lead_avg) == (got["records-lead-min"], got["records-lead-avg"])
        assert [22, 3] == [values(harness)[name] for name in ("records-lag-max", "records-lead-min")]
    harness.positions.request_reset(harness.tps[0], OffsetReset.LATEST)
    assert math.isnan(values(harness, topic="t", partition="0")["records-lag"])


def test_lag_of_a_consumer_that_reads_nothing() -> None:
    """The largest lag and the smallest lead of any partition have values while the consumer polls no records, however
    long. Those of one partition have none, as in Java."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(10)
    harness.respond(*harness.poll(), p0={"high_watermark": 25, "log_start_offset": 0})
    names = "records-lag-max", "records-lead-min"
    for _ in range(2):
        assert [25, 0] == [values(harness)[name] for name in names]
        assert [True, True] == [math.isnan(values(harness, topic="t", partition="0")[name]) for name in names]
        harness.now += 3_600_000


def dropped_by_a_pause(harness: FetchHarness, records: ConsumerRecords) -> None:
    """Pause a partition before the poll that has taken its records ends."""
    harness.assignment.get(harness.tps[0]).pause()
    harness.collector.recheck(records)


@pytest.mark.parametrize(
    ("drop", "left"), [(dropped_by_a_pause, 10), (lambda harness, _: harness.collector.rollback(), 0)]
)
def test_records_that_a_poll_does_not_return_are_not_counted(
    drop: Callable[[FetchHarness, ConsumerRecords], None], left: int
) -> None:
    """What a poll takes, and drops because of another thread or an exception, counts when it is taken again."""
    harness = FetchHarness(partitions=2)
    for tp in harness.tps:
        harness.logs[tp].append(10)
    harness.fetch()
    records = harness.collector.collect(500)
    names = "records-consumed-total", "bytes-consumed-total"
    for expected in (20, left):
        for tags in ({}, {"topic": "t"}):
            assert [expected, expected * 8] == [values(harness, **tags)[name] for name in names]
        drop(harness, records)


def test_metrics_of_topics_that_are_gone() -> None:
    """The metrics of a topic are removed when it is neither assigned nor subscribed; its last records, which are
    counted later, do not create them again. While another member reads a subscribed topic, they stay."""
    harness = FetchHarness(assign=False)
    (tp,) = harness.tps
    harness.subscription.subscribe(["t"])
    harness.subscription.assign_from_group([tp])
    harness.seek(tp, 0)
    harness.logs[tp].append(10)
    harness.respond(*harness.poll())
    harness.collect(3)
    harness.poll()
    assert 3 == values(harness, topic="t")["records-consumed-total"]
    harness.subscription.assign_from_group([])
    assert 3 == values(harness, topic="t")["records-consumed-total"]
    harness.subscription.subscribe(["u"])
    harness.subscription.assign_from_group([])
    assert {} == values(harness, topic="t")
    assert 3 == values(harness)["records-consumed-total"]


def test_late_records_of_a_topic_that_is_gone() -> None:
    """The rest of a response that is dropped with the assignment does not create metrics of its topic again."""
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(10)
    harness.respond(*harness.poll())
    harness.collect(3)
    harness.subscription.assign({TopicPartition("u", 0)})
    for _ in range(3):
        assert {} == values(harness, topic="t")
    assert 3 == values(harness)["records-per-request-avg"]


def test_topics_with_dots_are_reported_twice() -> None:
    """A topic name with a dot also has metrics under the name that older clients used (KIP-1109)."""
    harness = FetchHarness(assign=False)
    harness.subscription.assign({TopicPartition("a.b", 0)})
    harness.poll()
    assert {"a.b", "a_b"} == {
        dict(m.tags)["topic"] for m in harness.metrics.snapshot(harness.now) if m.name == "preferred-read-replica"
    }
