"""Share sessions, fetches and acknowledgements: which broker gets which request, and the effect of each response."""

from __future__ import annotations

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer.errors import BrokerConnectionError, KafkaError, TimeoutError, TopicAuthorizationError
from kconsumer.schema.share_group import (
    ShareAcknowledgeResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
    ShareNodeEndpoint,
)
from kconsumer.share.acknowledgements import Commit
from kconsumer.share.types import AcknowledgeType
from kconsumer.types import TopicPartition
from support.harnesses.share_harness import LOCK_MS, T_ID, ShareHarness, acknowledged, named

TP = TopicPartition("t", 0)
TP1 = TopicPartition("t", 1)
FOREVER = float("inf")


def failed(share: ShareHarness) -> list[str]:
    """Returns the names of the errors of acknowledgements so far, and "" for success."""
    return [getattr(error, "name", type(error).__name__) if error else "" for _, error in share.results]


# --- fetching ---


def test_nothing_is_acquired_without_a_poll() -> None:
    """Records are acquired only after `want_records`, and no more once a response contains some."""
    share = ShareHarness(assigned=[0])
    assert {} == share.requests()
    share.manager.want_records()
    request = share.request()
    assert ("ShareFetch", 0, [0]) == (request.api.name, request.message.share_session_epoch, named(request))
    assert {} == share.requests()
    share.acquire(request, p0=[(0, 2)])
    assert ([0, 1, 2], {}, LOCK_MS) == ([*share.collect().records], share.requests(), share.manager.lock_timeout_ms)


def test_a_session_names_only_changes() -> None:
    """Later requests of a session have growing epochs, and name only partitions that were added or forgotten."""
    share = ShareHarness(assigned=[0])
    share.fetched()
    share.subscription.assign_from_group([TP, TopicPartition("t", 2)])
    request = share.request()
    assert (1, [2], []) == (
        request.message.share_session_epoch,
        named(request),
        request.message.forgotten_topics_data,
    )
    share.acquire(request)
    share.subscription.assign_from_group([TopicPartition("t", 2)])
    request = share.request()
    assert (2, [], [0]) == (
        request.message.share_session_epoch,
        named(request),
        [number for topic in request.message.forgotten_topics_data for number in topic.partitions],
    )


def test_record_limit_fetches_from_one_broker_at_a_time() -> None:
    """With record_limit the brokers are asked in turn, so that a poll never returns more than the limit."""
    share = ShareHarness(assigned=[0, 1], share_acquire_mode="record_limit")
    share.manager.want_records()
    order = []
    for _ in range(4):
        request = share.request()
        order.append(request.node)
        share.acquire(request)
    assert ["1", "2", "1", "2"] == order


def test_record_limit_waits_only_if_no_broker_has_records() -> None:
    """With record_limit, a broker without records responds at once until each of them had none."""
    share = ShareHarness(assigned=[0, 1], share_acquire_mode="record_limit", fetch_max_wait_ms=300)
    share.manager.want_records()
    waits = []
    for _ in range(4):
        request = share.request()
        waits.append(request.message.max_wait_ms)
        share.acquire(request)
    assert [0, 0, 300, 300] == waits
    share.acquire(share.request(), p0=[(0, 0)])
    share.manager.want_records()
    assert 0 == share.request().message.max_wait_ms


def test_a_new_leader_is_named_in_the_response() -> None:
    """After NOT_LEADER_OR_FOLLOWER the next fetch goes to the leader that the response names, after the backoff."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    moved = ShareFetchPartitionData(
        partition_index=0,
        error_code=Errors.NOT_LEADER_OR_FOLLOWER,
        records=b"",
        current_leader=ShareLeaderIdAndEpoch(leader_id=3, leader_epoch=5),
    )
    endpoint = ShareNodeEndpoint(node_id=3, host="other", port=9093)
    topic = ShareFetchableTopicResponse(topic_id=T_ID, partitions=[moved])
    share.reply(share.request(), ShareFetchResponse(responses=[topic], node_endpoints=[endpoint]))
    assert ("3", 0) == ((request := share.request()).node, request.message.share_session_epoch)
    leader = share.cluster.leader(TP).leader
    assert leader is not None
    assert ("other", 9093) == (leader.host, leader.port)


@pytest.mark.parametrize("code", [Errors.UNKNOWN_TOPIC_ID, Errors.KAFKA_STORAGE_ERROR, Errors.UNKNOWN_SERVER_ERROR])
def test_partition_errors_back_off(code: int) -> None:
    """After an error of a partition the broker is asked again after the backoff; the user sees no error."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    share.acquire(share.request(), p0=int(code))
    assert {} == share.requests()
    assert share.manager.take_error() is None
    share.now += 1000
    share.acquire(share.request(), p0=[(0, 0)])
    assert share.buffer.has_data()


def test_a_missing_permission_is_raised() -> None:
    """TOPIC_AUTHORIZATION_FAILED is raised from poll, with the topic."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    share.acquire(share.request(), p0=int(Errors.TOPIC_AUTHORIZATION_FAILED))
    error = share.manager.take_error()
    assert isinstance(error, TopicAuthorizationError)
    assert frozenset({"t"}) == error.topics


def test_an_error_is_forgotten_after_a_response_of_its_broker() -> None:
    """After a later fetch from the same broker has succeeded, an error is not raised; another broker has no effect."""
    share = ShareHarness(assigned=[0, 1])
    share.manager.want_records()
    first, second = share.requests().values()
    share.fail(first, KafkaError("no"))
    share.acquire(second)
    share.now += 1000
    share.fail(share.requests()["1"], KafkaError("still no"))
    assert "still no" in str(share.manager.take_error())
    share.now += 1000
    share.fail(share.requests()["1"], KafkaError("no"))
    share.now += 1000
    share.acquire(share.requests()["1"])
    assert share.manager.take_error() is None


@pytest.mark.parametrize(
    "code",
    [Errors.SHARE_SESSION_NOT_FOUND, Errors.INVALID_SHARE_SESSION_EPOCH, Errors.SHARE_SESSION_LIMIT_REACHED],
)
def test_a_lost_session_is_opened_again(code: int) -> None:
    """After an error of the session the next request opens another one, after the backoff."""
    share = ShareHarness(assigned=[0])
    share.fetched()
    share.reply(share.request(), ShareFetchResponse(error_code=code))
    assert {} == share.requests()
    share.now += 1000
    request = share.request()
    assert (0, [0]) == (request.message.share_session_epoch, named(request))


def test_a_disconnect_ends_the_session() -> None:
    """The broker ends a session with its connection, so the next request opens another one. It may have died, so
    metadata is requested.
    """
    share = ShareHarness(assigned=[0])
    share.fetched()
    share.fail(share.request(), BrokerConnectionError("gone"))
    share.now += 1000
    assert ["Metadata"] == [request.api.name for request in share.metadata.poll(share.now).requests]
    share.now += 1000
    assert 0 == share.request().message.share_session_epoch
    assert share.manager.take_error() is None


def test_a_disconnect_drops_the_data_of_the_broker() -> None:
    """The broker releases the records of a session that ends. Data of other brokers stays in the buffer."""
    share = ShareHarness(assigned=[0, 1])
    share.manager.want_records()
    requests = share.requests()
    share.acquire(requests["1"], p0=[(0, 2)])
    share.acquire(requests["2"], p1=[(0, 2)])
    share.manager.want_records()
    share.fail(share.requests()["1"], BrokerConnectionError("gone"))
    assert TP1 == share.buffer.pop(500).topic_partition
    assert not share.buffer.has_data()


# --- acknowledging ---


def test_acknowledgements_go_with_the_next_fetch() -> None:
    """A fetch carries the acknowledgements of its broker, and the result of each partition is reported."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 11)])
    share.acknowledge(batch)
    share.manager.want_records()
    request = share.request()
    assert ("ShareFetch", {0: [(0, 11, [1])]}) == (request.api.name, acknowledged(request))
    share.acquire(request, p0=[(12, 12)])
    assert [""] == failed(share)


def test_acknowledgements_wait_for_the_response_of_their_broker() -> None:
    """While a fetch is in flight, its broker gets no acknowledgements, so that no thread need be woken for them."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 1)])
    share.manager.want_records()
    request = share.request()
    share.acknowledge(batch)
    assert (False, {}) == (share.manager.may_acknowledge, share.requests())
    share.acquire(request)
    assert share.manager.may_acknowledge
    assert {0: [(0, 1, [1])]} == acknowledged(share.request())
    assert not share.manager.may_acknowledge


def test_partitions_follow_their_leaders() -> None:
    """A change of the metadata or of the assignment changes what is fetched from which broker."""
    share = ShareHarness(assigned=[0, 1])
    share.learn({1: 1})
    share.manager.want_records()
    request = share.request()
    assert ("1", [0, 1]) == (request.node, named(request))
    share.acquire(request)
    share.cluster.forget()
    assert {} == share.requests()
    share.learn({0: 2, 1: 2})
    share.subscription.assign_from_group([TP])
    request = share.request()
    assert ("2", [0]) == (request.node, named(request))


def test_acknowledgements_go_alone_without_a_poll() -> None:
    """If no fetch is due, acknowledgements are sent by themselves, in the same session."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 3)])
    batch.acknowledge(1, AcknowledgeType.REJECT)
    share.acknowledge(batch, AcknowledgeType.ACCEPT)
    request = share.request()
    assert ("ShareAcknowledge", 1, {0: [(0, 3, [1, 3, 1, 1])]}) == (
        request.api.name,
        request.message.share_session_epoch,
        acknowledged(request),
    )
    share.confirm(request)
    assert [""] == failed(share)
    share.manager.want_records()
    assert 2 == share.request().message.share_session_epoch


def test_a_commit_is_not_delayed_by_a_fetch() -> None:
    """Acknowledgements of a commit do not go with a fetch, whose response may take `fetch_max_wait_ms`."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 3)])
    commit = Commit(FOREVER)
    share.acknowledge(batch, commit=commit)
    share.manager.want_records()
    request = share.request()
    assert "ShareAcknowledge" == request.api.name
    share.confirm(request)
    assert {TP: None} == commit.promise.result()


def test_renewals_go_alone() -> None:
    """A renewal is marked in the request, which needs v2, and is never part of a fetch."""
    share = ShareHarness(share_acknowledgement_mode="explicit", assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    batch.acknowledge(0, AcknowledgeType.RENEW)
    share.manager.acknowledge(batch.take())
    share.manager.want_records()
    request = share.request()
    assert ("ShareAcknowledge", True, 2) == (request.api.name, request.message.is_renew_ack, request.min_version)
    share.confirm(request)
    assert [0] == [record.offset for record in batch.take_renewed()]


def test_acknowledgements_that_may_be_refused_go_alone() -> None:
    """Renewals are sent neither with acknowledgements before them nor with those after them."""
    share = ShareHarness(share_acknowledgement_mode="explicit", assigned=[0])
    (batch,) = share.fetched(p0=[(0, 2)])
    for offset, kind in ((0, AcknowledgeType.ACCEPT), (1, AcknowledgeType.RENEW), (2, AcknowledgeType.ACCEPT)):
        batch.acknowledge(offset, kind)
        share.manager.acknowledge(batch.take())
    sent = []
    for _ in range(3):
        request = share.request()
        sent.append((request.message.is_renew_ack, acknowledged(request)[0]))
        share.confirm(request)
    assert [(False, [(0, 0, [1])]), (True, [(1, 1, [4])]), (False, [(2, 2, [1])])] == sent
    assert ["", "", ""] == failed(share)


def test_a_session_ends_after_what_must_go_alone() -> None:
    """The last request of a session has acknowledgements of one kind. Others are sent before it."""
    share = ShareHarness(share_acknowledgement_mode="explicit", assigned=[0])
    (batch,) = share.fetched(p0=[(0, 1)])
    batch.acknowledge(0, AcknowledgeType.ACCEPT)
    batch.acknowledge(1, AcknowledgeType.RENEW)
    share.manager.acknowledge(batch.take())
    share.manager.close()
    epochs = []
    for _ in range(2):
        request = share.request()
        epochs.append(request.message.share_session_epoch)
        share.confirm(request)
    assert ([1, -1], True) == (epochs, share.manager.sessions_closed)


def test_a_group_that_refuses_renewals() -> None:
    """INVALID_RECORD_STATE for a renewal in time says that the group does not allow any."""
    share = ShareHarness(share_acknowledgement_mode="explicit", assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    batch.acknowledge(0, AcknowledgeType.RENEW)
    share.manager.acknowledge(batch.take())
    assert not share.manager.renewals_refused
    share.confirm(share.request(), p0=int(Errors.INVALID_RECORD_STATE))
    assert share.manager.renewals_refused


def test_a_limit_for_one_fetch() -> None:
    """With a limit, at most this number of records is acquired, and a broker waits no longer than is allowed."""
    share = ShareHarness(assigned=[0], max_poll_records=500, fetch_max_wait_ms=400)
    share.manager.want_records(3, 100.0)
    request = share.request()
    message = request.message
    assert (3, 3, 100, 1) == (
        message.max_records,
        message.batch_size,
        message.max_wait_ms,
        message.share_acquire_mode,
    )
    share.acquire(request)
    share.manager.want_no_records()
    assert {} == share.requests()
    share.manager.want_records()
    message = share.request().message
    assert (500, 400, 0) == (message.max_records, message.max_wait_ms, message.share_acquire_mode)


def test_acknowledgements_go_to_the_broker_that_delivered() -> None:
    """After a leader change the old leader receives them, although nothing is fetched from it any more."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    share.learn({0: 2})
    share.acknowledge(batch)
    share.manager.want_records()
    requests = share.requests()
    assert {"1": "ShareAcknowledge", "2": "ShareFetch"} == {n: r.api.name for n, r in requests.items()}
    share.confirm(requests["1"], p0=int(Errors.NOT_LEADER_OR_FOLLOWER))
    assert ["NOT_LEADER_OR_FOLLOWER"] == failed(share)


def test_without_a_session_acknowledgements_fail() -> None:
    """After the loss of a session the broker has released the records: their acknowledgements fail at once."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    share.manager.want_records()
    share.fail(share.request(), BrokerConnectionError("gone"))
    share.now += 1000
    share.acknowledge(batch)
    assert {} == acknowledged(share.request())
    assert ["SHARE_SESSION_NOT_FOUND"] == failed(share)


def test_retriable_errors_are_retried_until_the_deadline() -> None:
    """A retriable error of a partition is retried after the backoff; after the deadline it is the result."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    commit = Commit(share.now + 1500)
    share.acknowledge(batch, commit=commit)
    share.confirm(share.request(), p0=int(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    assert ({}, False) == (share.requests(), commit.promise.done)
    share.now += 1000
    share.confirm(share.request(), p0=int(Errors.COORDINATOR_LOAD_IN_PROGRESS))
    assert not commit.promise.done
    share.now += 1000
    assert {} == share.requests()
    assert isinstance(commit.promise.result()[TP], TimeoutError)


def test_a_retriable_error_of_the_request_is_retried() -> None:
    """A request that failed as a whole, with the session intact, is sent again with the same epoch."""
    share = ShareHarness(assigned=[0])
    (batch,) = share.fetched(p0=[(0, 0)])
    share.acknowledge(batch)
    share.reply(share.request(), ShareAcknowledgeResponse(error_code=Errors.COORDINATOR_LOAD_IN_PROGRESS))
    share.now += 1000
    request = share.request()
    assert (1, {0: [(0, 0, [1])]}) == (request.message.share_session_epoch, acknowledged(request))


def test_results_of_several_partitions() -> None:
    """Each partition has its own result, from its own broker."""
    share = ShareHarness(assigned=[0, 1])
    batches = share.fetched(p0=[(0, 0)], p1=[(4, 5)])
    commit = Commit(FOREVER)
    for batch in batches:
        share.acknowledge(batch, commit=commit)
    requests = share.requests()
    share.confirm(requests["2"], p1=int(Errors.INVALID_RECORD_STATE))
    assert not commit.promise.done
    share.confirm(requests["1"])
    results: dict[TopicPartition, KafkaError | None] = commit.promise.result()
    assert (None, "INVALID_RECORD_STATE") == (results[TP], getattr(results[TP1], "name", None))


# --- closing ---


def test_closing_sends_the_last_acknowledgements() -> None:
    """Each open session is ended with epoch -1, with the last acknowledgements; nothing is fetched any more."""
    share = ShareHarness(assigned=[0, 1])
    batch, _ = share.fetched(p0=[(0, 3)], p1=[(0, 0)])
    share.acknowledge(batch)
    share.manager.close()
    requests = share.requests()
    assert {"1": (-1, {0: [(0, 3, [1])]}), "2": (-1, {})} == {
        node: (r.message.share_session_epoch, acknowledged(r)) for node, r in requests.items()
    }
    assert not share.manager.sessions_closed
    for request in requests.values():
        share.confirm(request)
    assert (True, [""]) == (share.manager.sessions_closed, failed(share))


def test_closing_waits_for_the_fetch_in_flight() -> None:
    """A session with a request in flight is ended after its response; records that arrive then are not kept."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    fetch = share.request()
    share.manager.close()
    assert {} == share.requests()
    share.acquire(fetch, p0=[(0, 2)])
    assert not share.buffer.has_data()
    request = share.request()
    assert ("ShareAcknowledge", -1) == (request.api.name, request.message.share_session_epoch)
    share.fail(request, BrokerConnectionError("gone"))
    assert share.manager.sessions_closed


def test_a_session_ends_before_the_next_fetch() -> None:
    """A consumer may subscribe again before its session has ended. Records of the fetch in flight are not kept."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    fetch = share.request()
    share.manager.close()
    share.manager.want_records()
    share.acquire(fetch, p0=[(0, 2)])
    assert not share.buffer.has_data()
    end = share.request()
    assert ("ShareAcknowledge", -1) == (end.api.name, end.message.share_session_epoch)
    share.confirm(end)
    assert 0 == share.request().message.share_session_epoch
