"""Which broker a partition is fetched from: leaders named in responses (KIP-951) and preferred replicas (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import BrokerConnectionError
from kconsumer.schema.fetch import LeaderIdAndEpoch, NodeEndpoint
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchState
from kconsumer.types import Node
from support.harnesses.fetching import FetchHarness, offsets

LEASE_MS = 60_000
UNKNOWN_SERVER_ERROR, UNKNOWN_LEADER_EPOCH = -1, 75
PREFER_NONE: dict[str, Any] = {"records": None}
PREFER_1: dict[str, Any] = {"preferred_read_replica": 1, "records": None}
ENDPOINTS = [NodeEndpoint(node_id=7, host="b7", port=9092)]


def moved_to(leader: int, epoch: int, code: int = 6) -> dict[str, Any]:
    """Return the response of a broker that no longer leads the partition and names the new leader."""
    return {
        "error_code": code,
        "current_leader": LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        "records": None,
    }


def nodes(requests: list[UnsentRequest]) -> list[str | None]:
    return [request.node for request in requests]


# --- leaders named in the response ---------------------------------------------------------------------------------


def test_the_named_leader_is_asked_at_once() -> None:
    """The new leader is asked without a backoff and before the requested metadata arrives. Later metadata with the old
    leader does not bring it back.
    """
    harness = FetchHarness()
    harness.logs[harness.tps[0]].append(3)
    harness.respond(*harness.poll(), p0=moved_to(7, 3), node_endpoints=ENDPOINTS)
    requests = harness.poll()
    assert [("7", {0: 0})] == [(request.node, offsets(request)) for request in requests]
    assert [3] == [row.current_leader_epoch for topic in requests[0].message.topics for row in topic.partitions]
    harness.respond(*requests)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()
    assert 1 == harness.metadata_requests.count
    harness.brokers = 8  # broker 7 is in metadata, too
    harness.update_metadata()
    assert ["7"] == nodes(harness.poll())


def test_a_known_broker_needs_no_address() -> None:
    """If metadata has the named leader, the response need not contain its address."""
    harness = FetchHarness(brokers=2)
    harness.respond(*harness.poll(), p0=moved_to(1, 1))
    assert ["1"] == nodes(harness.poll())


@pytest.mark.parametrize(
    "hint", [moved_to(7, 3), moved_to(1, 0), moved_to(-1, 3), moved_to(1, -1)], ids=["address", "old", "none", "epoch"]
)
def test_a_hint_that_does_not_help(hint: dict[str, Any]) -> None:
    """A named leader without a known address or with an old leader epoch, or no leader, changes nothing: metadata is
    needed.
    """
    harness = FetchHarness(brokers=2)
    harness.respond(*harness.poll(), p0=hint)
    assert ([], 1) == (harness.poll(), harness.metadata_requests.count)
    assert 0 == getattr(harness.cluster.leader(harness.tps[0]).leader, "id", None)
    harness.now += harness.config.retry_backoff_ms
    assert ["0"] == nodes(harness.poll())


@pytest.mark.parametrize("code", [6, 74])
def test_position_is_checked_before_the_named_leader_is_asked(code: int) -> None:
    """A position with an epoch is validated against the new leader's log before it is fetched."""
    harness = FetchHarness()
    tp = harness.tps[0]
    harness.logs[tp].append(10)
    harness.fetch()
    harness.collect()
    harness.respond(*harness.poll(), p0=moved_to(7, 3, code), node_endpoints=ENDPOINTS)
    state = harness.assignment.get(tp)
    assert (FetchState.AWAIT_VALIDATION, []) == (state.fetch_state, harness.poll())
    assert state.position is not None
    assert (10, 0, LeaderAndEpoch(Node(7, "b7", 9092), 3)) == state.position
    harness.validate()
    assert [("7", {0: 10})] == [(request.node, offsets(request)) for request in harness.poll()]


@pytest.mark.parametrize("code", [0, 1, 3, 75])
def test_other_errors_name_no_leader(code: int) -> None:
    """Leaders are only accepted in responses with one of the two leadership errors."""
    harness = FetchHarness()
    harness.respond(*harness.poll(), p0=moved_to(7, 3, code), node_endpoints=ENDPOINTS)
    assert 0 == getattr(harness.cluster.leader(harness.tps[0]).leader, "id", None)


# --- replicas preferred --------------------------------------------------------------------------------------------


def following(partitions: int = 1, **options: Any) -> FetchHarness:
    """Return a harness in which broker 0 leads every partition and has just named broker 1 as the preferred replica."""
    harness = FetchHarness(partitions, brokers=2, metadata_max_age_ms=LEASE_MS, client_rack="r", **options)
    for partition in harness.leaders:
        harness.leaders[partition] = 0
    harness.update_metadata()
    (request,) = harness.poll()
    assert ("0", "r") == (request.node, request.message.rack_id)
    harness.respond(request, **{f"p{partition}": PREFER_1 for partition in range(partitions)})
    return harness


def test_the_lease_lasts_as_long_as_metadata() -> None:
    """The follower is asked until metadata_max_age_ms has passed, then the leader, which may name a replica again."""
    harness = following()
    start = harness.now
    for now in (start, start + LEASE_MS // 2, start + LEASE_MS):
        harness.now = now
        requests = harness.poll()
        assert ["1"] == nodes(requests)
        harness.respond(*requests)
    harness.now = start + LEASE_MS + 1
    (request,) = harness.poll()
    assert "0" == request.node
    harness.respond(request, p0=PREFER_1)
    harness.now += LEASE_MS
    assert ["1"] == nodes(harness.poll())


def test_the_end_of_a_lease_needs_a_poll() -> None:
    """The manager is polled again when a lease has ended, also if nothing else happens until then."""
    harness = following()
    assert LEASE_MS + 1 == harness.manager.poll(harness.now).wait_ms
    harness.now += LEASE_MS + 1
    assert ["0"] == nodes(harness.poll())


def test_naming_the_same_replica_does_not_extend_the_lease() -> None:
    """Naming the same replica with records does not extend the lease; otherwise a follower that names itself would be
    used for ever.
    """
    harness = following()
    harness.logs[harness.tps[0]].append(3)
    start = harness.now
    harness.now = start + LEASE_MS - 10
    harness.respond(*harness.poll(), p0={"preferred_read_replica": 1})
    harness.collect()
    harness.now = start + LEASE_MS + 1
    assert ["0"] == nodes(harness.poll())


def test_the_lease_ends_while_a_fetch_is_in_flight() -> None:
    """If the lease ends while a fetch is in flight its response is used, and the next fetch is sent to the leader."""
    harness = following()
    harness.logs[harness.tps[0]].append(3)
    (request,) = harness.poll()
    harness.now += LEASE_MS + 1
    harness.respond(request)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()
    assert [("0", {0: 3})] == [(r.node, offsets(r)) for r in harness.poll()]


def test_partitions_without_preference_stay_with_the_leader() -> None:
    """Each partition is fetched from the replica that its leader prefers, and each record is returned once."""
    harness = FetchHarness(2, brokers=2)
    harness.leaders[1] = 0
    harness.update_metadata()
    for log in harness.logs.values():
        log.append(5)
    harness.respond(*harness.poll(), p0=PREFER_1)
    requests = {request.node: request for request in harness.poll()}
    assert {"0": {1: 5}, "1": {0: 0}} == {node: offsets(request) for node, request in requests.items()}
    for request in requests.values():
        harness.respond(request)
    read = harness.collect()
    assert {tp: list(range(5)) for tp in harness.tps} == read
    assert {} == harness.collect()


def test_a_new_leader_ends_the_lease() -> None:
    """The preference of the old leader does not apply to the new one."""
    harness = following()
    harness.epochs[0] = 1
    harness.update_metadata()
    assert ["0"] == nodes(harness.poll())


def test_a_lost_follower_costs_all_its_leases() -> None:
    """If a follower does not respond, all its partitions are fetched from the leader at once, at the same offsets."""
    harness = following(2)
    (request,) = harness.poll()
    assert ("1", {0: 0, 1: 0}) == (request.node, offsets(request))
    harness.reply(request, error=BrokerConnectionError("killed"))
    assert [("0", {0: 0, 1: 0})] == [(r.node, offsets(r)) for r in harness.poll()]
    assert 1 == harness.metadata_requests.count


def test_a_follower_that_is_offline_is_left() -> None:
    """Metadata that has the follower among the offline replicas ends the lease, and is requested again."""
    harness = following()
    topic = harness.cluster._topics["t"]
    topic.partitions[0] = topic.partitions[0]._replace(offline=(1,))
    harness.assignment.get(harness.tps[0]).mark_dirty()
    assert (["0"], 1) == (nodes(harness.poll()), harness.metadata_requests.count)


# --- replicas that give nothing --------------------------------------------------------------------------------------


def refuse(harness: FetchHarness, **response: Any) -> UnsentRequest:
    """Let the preferred replica send this response to the next fetch. Returns the fetch after it."""
    (request,) = harness.poll()
    assert "1" == request.node
    harness.respond(request, p0=response | {"records": None})
    (request,) = harness.poll()
    return request


OUT_OF_RANGE: dict[str, Any] = {"error_code": 1}


@pytest.mark.parametrize("response", [OUT_OF_RANGE, {"preferred_read_replica": 0}, {"preferred_read_replica": 1}])
def test_after_a_redirect_that_gave_nothing_the_leader_is_read(
    response: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """If the preferred replica refuses, or names another one, the leader is read without a rack until the lease ends.

    There is one warning, and the reason is in the status.
    """
    harness = following()
    start = harness.now
    request = refuse(harness, **response)
    assert ("0", {0: 0}, "") == (request.node, offsets(request), request.message.rack_id)
    assert "broker 1, the preferred read replica, gave no records" in harness.status(harness.tps[0]).reason
    harness.logs[harness.tps[0]].append(3)
    harness.respond(request)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()
    harness.now = start + LEASE_MS - 10
    (request,) = harness.poll()
    assert ("0", "") == (request.node, request.message.rack_id)
    harness.respond(request)
    harness.now = start + LEASE_MS + 10
    (request,) = harness.poll()
    assert ("0", "r") == (request.node, request.message.rack_id)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 1 == len(warnings)
    assert "reading t-0 from the leader for the next 60 s: " in warnings[0]


def test_a_leader_that_insists_is_followed_after_a_backoff() -> None:
    """A leader that names a refusing replica although the fetch has no rack is followed again, with growing
    backoffs.
    """
    harness = following()
    pauses = []
    for _ in range(4):
        request = refuse(harness, **OUT_OF_RANGE)
        assert ("0", "") == (request.node, request.message.rack_id)
        harness.respond(request, p0=PREFER_1)
        result = harness.manager.poll(harness.now)
        assert [] == result.requests
        pauses.append(result.wait_ms)
        harness.now += result.wait_ms
    backoff = harness.config.retry_backoff_ms
    assert [backoff, 2 * backoff, 4 * backoff, 8 * backoff] == pauses


def test_a_replica_that_gives_records_again_is_no_longer_refused() -> None:
    """After a replica has responded, the next fetches from the leader contain the rack again."""
    harness = following()
    harness.respond(refuse(harness, **OUT_OF_RANGE), p0=PREFER_1)
    harness.now += harness.config.retry_backoff_ms
    harness.logs[harness.tps[0]].append(3)
    (request,) = harness.poll()
    harness.respond(request)
    assert {harness.tps[0]: [0, 1, 2]} == harness.collect()
    assert harness.assignment.get(harness.tps[0]).replica.refusal(harness.now) is None


def test_a_new_leader_may_name_a_replica() -> None:
    """A redirect that gave nothing says nothing about the redirects of another leader."""
    harness = following()
    harness.respond(refuse(harness, **OUT_OF_RANGE))
    harness.epochs[0] = 1
    harness.update_metadata()
    (request,) = harness.poll()
    assert "r" == request.message.rack_id


def test_a_replica_that_was_offline_may_be_named() -> None:
    """The leader names no replica that is offline, so the fetches after such metadata contain the rack again."""
    harness = following()
    request = refuse(harness, **OUT_OF_RANGE)
    assert "" == request.message.rack_id
    harness.respond(request)
    harness.update_metadata()
    topic = harness.cluster._topics["t"]
    topic.partitions[0] = topic.partitions[0]._replace(offline=(1,))
    harness.assignment.get(harness.tps[0]).mark_dirty()
    (request,) = harness.poll()
    assert ("0", "r") == (request.node, request.message.rack_id)


def test_a_replica_that_gave_records_is_named_once_more() -> None:
    """An error after records costs only the lease: the leader may name the replica once more."""
    harness = following()
    harness.logs[harness.tps[0]].append(3)
    harness.respond(*harness.poll())
    harness.collect()
    request = refuse(harness, **OUT_OF_RANGE)
    assert ("0", "r") == (request.node, request.message.rack_id)


def test_an_unreachable_replica_does_not_stop_reading(caplog: pytest.LogCaptureFixture) -> None:
    """If the preferred replica cannot be reached, all partitions that it was named for are read from the leader."""
    harness = following(7)
    (request,) = harness.poll()
    harness.reply(request, error=BrokerConnectionError("refused"))
    (request,) = harness.poll()
    assert ("0", "", 7) == (request.node, request.message.rack_id, len(offsets(request)))
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "reading t-0, t-1, t-2, t-3, t-4 and 2 more from the leader" in warning
    assert "refused" in warning


@pytest.mark.parametrize("code", [UNKNOWN_SERVER_ERROR, UNKNOWN_LEADER_EPOCH])
def test_a_replica_that_keeps_failing_is_given_up(code: int) -> None:
    """Errors that are retried at the same replica are retried a few times, then the leader is read."""
    harness = following()
    read_from = []
    for _ in range(6):
        harness.now += 60.0 * harness.config.retry_backoff_ms
        (request,) = harness.poll()
        read_from.append(request.node)
        harness.respond(request, p0={"error_code": code, "records": None} if request.node == "1" else PREFER_NONE)
    assert ["1", "1", "1", "1", "0", "0"] == read_from


def test_leaders_that_name_each_other_are_not_asked_in_turn() -> None:
    """Two leaders named in a row are asked at once; the next one is asked after a backoff (KIP-951)."""
    harness = FetchHarness(brokers=2)
    asked = []
    for epoch in range(1, 4):
        (request,) = harness.poll()
        asked.append(request.node)
        harness.respond(request, p0=moved_to(1 - int(request.node or 0), epoch))
    assert (["0", "1", "0"], []) == (asked, nodes(harness.poll()))
