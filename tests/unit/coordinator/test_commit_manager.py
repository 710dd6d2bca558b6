"""Commits and committed offsets: requests, the action for each error code, retries and deadlines."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import Promise, UnsentRequest
from kconsumer.coordinator.commits import MAX_IN_FLIGHT
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import (
    BrokerConnectionError,
    CommitFailedError,
    RebalanceInProgressError,
    TimeoutError,
    TopicAuthorizationError,
)
from kconsumer.types import OffsetAndMetadata, TopicPartition
from support.harnesses.group_harness import GroupHarness, committed, tps

T0 = TopicPartition("t", 0)
OFFSETS = {T0: OffsetAndMetadata(5, "note", 3)}


def member(**options: Any) -> GroupHarness:
    """Returns a stable member of generation 1."""
    group = GroupHarness(**options)
    group.stable(T0)
    return group


def sent(group: GroupHarness) -> list[UnsentRequest]:
    """Returns the requests that the commit manager sends now."""
    return group.commits.poll(group.now).requests


@pytest.mark.parametrize("during_join", [True, False])
def test_commit_without_membership_fails_at_once(during_join: bool) -> None:
    """Without membership no request is sent: the commit fails with RebalanceInProgressError during a join, else with
    CommitFailedError.
    """
    group = GroupHarness()
    if during_join:
        group.until("JoinGroup")
    promise = group.commits.commit(OFFSETS, group.now + 1000)
    assert [] == sent(group)
    assert isinstance(promise.error, RebalanceInProgressError if during_join else CommitFailedError)


def test_refusal_of_an_older_generation_while_rejoining_is_a_rebalance() -> None:
    """ILLEGAL_GENERATION for a commit that was sent before the rejoin becomes RebalanceInProgressError and does not
    reset the member.
    """
    group = member()
    promise = group.commits.commit(OFFSETS, group.now + 10_000)
    (request,) = sent(group)
    group.member.request_rejoin("test")
    group.until("JoinGroup")
    group.member.generation = newer = Generation(2, "me", "first-takes-all")
    group.respond(request, committed(request, 22))
    assert isinstance(promise.error, RebalanceInProgressError)
    assert newer == group.member.generation


def test_retriable_error_after_the_deadline_is_a_timeout() -> None:
    """A response that could be retried, but comes after the deadline, makes the commit a TimeoutError with its error as
    the cause, as one that comes before does.
    """
    group = member()
    promise = group.commits.commit(OFFSETS, group.now + 1000)
    (request,) = sent(group)
    group.now += 1000
    group.respond(request, committed(request, 3))
    assert [] == sent(group)
    assert isinstance(promise.error, TimeoutError)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(promise.error)
    assert "UNKNOWN_TOPIC_OR_PARTITION" == getattr(promise.error.__cause__, "name", "")


def test_async_commit_waits_for_the_coordinator_and_fails_with_it() -> None:
    """While the coordinator is unknown an async commit waits for the next lookup, and fails if that one fails."""
    group = member()
    group.coordinator.coordinator = None
    for number in range(2):
        promise = group.commits.commit(OFFSETS)
        assert ([], False) == (sent(group), promise.done)
        group.now += 80_000
        [lookup] = group.coordinator.poll(group.now).requests
        group.break_connection(lookup, BrokerConnectionError(f"refused {number}"))
        assert f"refused {number}" in str(promise.error)


def committed_by(requests: list[UnsentRequest]) -> list[int]:
    """Returns the offsets that these requests commit."""
    return [request.message.topics[0].partitions[0].committed_offset for request in requests]


def merged(group: GroupHarness, *commits: dict[TopicPartition, OffsetAndMetadata]) -> list[Promise[Any]]:
    """Returns asynchronous commits that wait for those in flight and will be sent in one request."""
    for n in range(MAX_IN_FLIGHT):
        group.commits.commit({T0: OffsetAndMetadata(n)})
    return [group.commits.commit(offsets) for offsets in commits]


def the_rest(group: GroupHarness) -> list[UnsentRequest]:
    """Returns the requests that are sent when the first commits of `merged` are complete."""
    for request in sent(group):
        group.respond(request, committed(request))
    return sent(group)


def test_merged_commits_fail_separately() -> None:
    """Each merged commit completes with the error codes of its own partitions; if one is refused the others succeed."""
    group = member()
    one, two = TopicPartition("t", 1), TopicPartition("t", 2)
    offsets = [{one: OffsetAndMetadata(1)}, {two: OffsetAndMetadata(2)}, {T0: OffsetAndMetadata(3)}]
    reported: list[Any] = []
    group.commits.set_listeners(on_committed=lambda done: reported.append(dict(done)))
    promises = merged(group, *offsets)
    (request,) = the_rest(group)
    reported.clear()
    response = committed(request)
    for partition in response.topics[0].partitions:
        partition.error_code = {1: 12, 2: 0, 0: 29}[partition.partition_index]
    group.respond(request, response)
    too_large, good, refused = promises
    assert "OFFSET_METADATA_TOO_LARGE" == getattr(too_large.error, "name", "")
    assert offsets[1] == good.result()
    assert isinstance(refused.error, TopicAuthorizationError)
    assert [offsets[1]] == reported
    assert not group.commits.pending_commits()


def test_waiting_for_all_commits_waits_for_merged_ones() -> None:
    """An empty commit with a deadline completes after the last commit that was merged into another request."""
    group = member()
    promises = merged(group, {T0: OffsetAndMetadata(1)}, {T0: OffsetAndMetadata(2)})
    nothing = group.commits.commit({}, group.now + 1000)
    *before, last = sent(group)
    assert [2] == committed_by([last])
    for request in before:
        group.respond(request, committed(request))
    assert not nothing.done
    group.respond(last, committed(last))
    assert [True] * 3 == [promise.done for promise in (*promises, nothing)]


@pytest.mark.parametrize("waiting", ["commit", "empty commit", "rebalance"])
def test_no_limit_delays_a_commit_with_a_deadline(waiting: str) -> None:
    """A commit with a deadline, an empty commit and a rebalance each send all earlier commits at once."""
    group = member(enable_auto_commit=False)
    expected = [*range(MAX_IN_FLIGHT), MAX_IN_FLIGHT + 1]
    for number in range(MAX_IN_FLIGHT + 2):
        group.commits.commit({T0: OffsetAndMetadata(number)})
    if waiting == "rebalance":
        assert group.commits.auto_commit_before_rebalance(group.now + 1000) is None
    else:
        group.commits.commit({T0: OffsetAndMetadata(99)} if waiting == "commit" else {}, group.now + 1000)
    group.commits.commit({T0: OffsetAndMetadata(100)})
    assert [*expected, 99][: len(expected) + (waiting == "commit")] == committed_by(sent(group))


def test_failed_auto_commit_is_tried_again_soon() -> None:
    """After failures that may pass, the next auto-commit comes after a backoff that grows, not after a whole interval.
    After a success, the backoff starts again from its first value.
    """
    group = member(auto_commit_interval_ms=60_000, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    group.consume(T0, 7)
    for _ in range(2):
        group.now = group.commits.auto_commit_due
        for backoff_ms in (100, 200, 400, 800, 1000, 1000):
            assert group.commits.maybe_auto_commit(group.now)
            (request,) = sent(group)
            group.respond(request, committed(request, 14))
            waits_ms = group.commits.auto_commit_due - group.now
            assert 0.8 * backoff_ms <= waits_ms <= min(1000, 1.2 * backoff_ms)
            group.now += waits_ms
        assert group.commits.maybe_auto_commit(group.now)
        (request,) = sent(group)
        group.respond(request, committed(request))


def test_repeated_failures_of_auto_commits_are_not_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """While the coordinator is unavailable, one warning a minute is logged, with the number of failures."""
    group = member(auto_commit_interval_ms=1_000)
    group.consume(T0, 7)
    attempts, end = 0, group.now + 130_000
    while group.now < end:
        group.now += 1_000
        group.commits.maybe_auto_commit(group.now)
        for request in sent(group):
            group.respond(request, committed(request, 14))
            attempts += 1
    warnings = [text for entry in caplog.records if "auto-commit failed" in (text := entry.getMessage())]
    assert attempts > 100
    assert 3 == len(warnings)
    assert "attempts that failed since the last warning: " in warnings[-1]


def test_commit_before_rebalance_is_of_the_poll_that_began_it() -> None:
    """Records that are returned while the commit is retried are not part of it, because the caller still processes
    them.
    """
    group = member()
    group.consume(T0, 7)
    group.commits.auto_commit_before_rebalance(group.now + 10_000)
    (request,) = sent(group)
    group.consume(T0, 8)
    group.respond(request, committed(request, 14))
    group.now += 130
    (again,) = sent(group)
    assert 7 == again.message.topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("newer", ["automatic", "the caller's", "asynchronous"])
@pytest.mark.parametrize("first", ["refused", "lost"])
@pytest.mark.parametrize("order", ["waiting for its retry", "in flight"])
def test_retried_commit_does_not_go_back(newer: str, first: str, order: str) -> None:
    """If a newer commit succeeds before the commit of a rebalance is retried, the retry has the newer offset of that
    partition, even a lower one after a seek, and its own offsets of other partitions.
    """
    group = member(auto_commit_interval_ms=100)
    one = TopicPartition("t", 1)
    group.subscription.assign_from_group([T0, one])
    group.consume(T0, 100)
    group.consume(one, 50)
    group.commits.auto_commit_before_rebalance(group.now + 10_000)
    (older,) = sent(group)

    def fail() -> None:
        if first == "refused":
            group.respond(older, committed(older, 14))
        else:
            group.break_connection(older, BrokerConnectionError("reset"))
            group.find_coordinator()

    if order == "waiting for its retry":
        fail()
    expected = 300
    if newer == "automatic":
        group.subscription.assign_from_group([T0])
        group.consume(T0, expected)
        group.commits.maybe_auto_commit(group.now)
        group.now = group.commits.auto_commit_due
        group.commits.maybe_auto_commit(group.now)
    else:
        expected = 20
        group.commits.commit({T0: OffsetAndMetadata(20)}, group.now + 9000 if newer == "the caller's" else None)
    requests = sent(group)
    if order == "in flight":
        fail()
    for request in requests:
        if committed_by([request]) == [expected]:
            group.respond(request, committed(request))
    group.now += 200
    (again,) = [request for request in [*requests, *sent(group)] if len(request.message.topics[0].partitions) == 2]
    assert {0: expected, 1: 50} == {
        partition.partition_index: partition.committed_offset for partition in again.message.topics[0].partitions
    }


def test_commit_that_succeeds_late_reports_what_it_sent() -> None:
    """A commit that succeeds reports the offsets that were sent, not those that a newer commit would put
    into a retry.
    """
    group = member()
    promise = group.commits.commit({T0: OffsetAndMetadata(1)}, group.now + 1000)
    (request,) = sent(group)
    group.commits.commit({T0: OffsetAndMetadata(2)})
    group.respond(request, committed(request))
    assert {T0: OffsetAndMetadata(1)} == promise.result()


def test_commit_without_time_is_sent_once() -> None:
    """A commit whose deadline has passed before the first attempt is sent once and not retried (Java commitSync)."""
    group = member()
    promise = group.commits.commit(OFFSETS, group.now)
    assert [5] == committed_by(sent(group))
    assert isinstance(promise.error, TimeoutError)
    assert [] == sent(group)


def test_empty_assignment_has_nothing_to_look_up() -> None:
    """A lookup for no partitions sends no request."""
    group = member()
    assert {} == group.commits.committed([], group.now).result()
    assert () == tps("t")


def test_an_empty_commit_waits_for_async_commits() -> None:
    """An empty commit with a deadline completes after all earlier commits; without a deadline it completes at once."""
    group = member()
    promises = [group.commits.commit({T0: OffsetAndMetadata(n)}) for n in (1, 2)]
    nothing = group.commits.commit({}, group.now + 1000)
    assert {} == group.commits.commit({}).result()
    for promise, request in zip(promises, sent(group), strict=True):
        assert not nothing.done
        group.respond(request, committed(request))
        assert promise.done
    assert {} == nothing.result()


def test_auto_commit_gives_up_on_a_deleted_topic() -> None:
    """UNKNOWN_TOPIC_OR_PARTITION ends the commit before a rebalance at once, and the interval commit is not sent
    earlier.
    """
    group = member(auto_commit_interval_ms=5000)
    group.consume(T0, 7)
    before = group.commits.auto_commit_before_rebalance(group.now + 300_000)
    (request,) = sent(group)
    group.respond(request, committed(request, 3))
    assert before is not None
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(before.error)
    group.commits.reset_auto_commit(group.now)
    group.now += 5000
    group.commits.maybe_auto_commit(group.now)
    (request,) = sent(group)
    group.respond(request, committed(request, 3))
    group.now += 1000
    group.commits.maybe_auto_commit(group.now)
    assert [] == sent(group)


def test_async_commits_in_flight_are_limited() -> None:
    """Only a few of many asynchronous commits are in flight at a time. After a response all waiting ones are sent as
    one request with the last offset of each partition, and they complete in order.
    """
    group = member()
    done: list[int] = []
    for n in range(MAX_IN_FLIGHT + 7):
        promise = group.commits.commit({TopicPartition(T0.topic, n % 2): OffsetAndMetadata(n)})
        promise.add_done_callback(lambda kept, n=n: done.append(n if kept.error is None else -1))
    requests = sent(group)
    assert [*range(MAX_IN_FLIGHT)] == committed_by(requests)
    assert [] == sent(group)
    group.respond(requests[0], committed(requests[0]))
    (last,) = sent(group)
    assert {0: 16, 1: 15} == {
        partition.partition_index: partition.committed_offset
        for topic in last.message.topics
        for partition in topic.partitions
    }
    promise = group.commits.commit({T0: OffsetAndMetadata(99)})
    assert [] == sent(group), "a commit is not added to a request in flight"
    for request in [*requests[1:], last]:
        group.respond(request, committed(request))
    assert [*range(MAX_IN_FLIGHT + 7)] == done
    assert [99] == committed_by(sent(group))
    assert not promise.done
