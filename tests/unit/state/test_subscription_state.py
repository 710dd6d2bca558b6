"""Subscriptions that exclude each other, assignments that keep state, and changes of positions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kconsumer.errors import NoOffsetForPartitionError, StateError
from kconsumer.state.cluster import Cluster, LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, FetchState
from kconsumer.state.position_errors import Truncation
from kconsumer.state.positions import Positions
from kconsumer.state.subscription import SubscriptionKind
from kconsumer.types import OffsetAndMetadata, OffsetReset, TopicPartition
from support.harnesses.consumer_state import ConsumerState
from support.harnesses.manager_driver import NODES, led_by, metadata, partition, topic, tp, tps

LEADER = LeaderAndEpoch(NODES[1], 3)
A0, A1, B0 = tps("a-0", "a-1", "b-0")


def assigned(*names: str, reset: OffsetReset = OffsetReset.LATEST) -> ConsumerState:
    """Returns the state of a consumer with these partitions assigned manually."""
    state = ConsumerState(reset)
    state.subscription.assign(tps(*names))
    return state


def state_of(state: ConsumerState, partition: TopicPartition) -> tuple[FetchState, FetchPosition | None]:
    """Returns the fetch state and the position of an assigned partition."""
    found = state.assignment.get(partition)
    return found.fetch_state, found.position


# --- kinds -----------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[ConsumerState], object]] = {
    "topics": lambda state: state.subscription.subscribe({"a"}),
    "pattern": lambda state: state.subscription.subscribe_pattern(re.compile("a")),
    "assigned": lambda state: state.subscription.assign([A0]),
}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_kinds_exclude_each_other(first: str, second: str) -> None:
    """Another kind of subscription is refused until unsubscribe; the same kind replaces the former."""
    state = ConsumerState()
    KINDS[first](state)
    if first != second:
        with pytest.raises(StateError, match="unsubscribe"):
            KINDS[second](state)
        assert SubscriptionKind(first) is state.subscription.kind
        state.subscription.unsubscribe()
    KINDS[second](state)
    assert SubscriptionKind(second) is state.subscription.kind


def test_unsubscribe_clears_everything() -> None:
    """unsubscribe clears topics, pattern, group topics and assignment."""
    state = ConsumerState()
    state.subscription.subscribe_pattern(re.compile("a.*"))
    state.subscription.subscribe_matched({"a"})
    state.subscription.group_subscribe({"a", "b"})
    state.subscription.assign_from_group([A0])
    state.subscription.unsubscribe()
    assert (SubscriptionKind.NONE, None, (), frozenset()) == (
        state.subscription.kind,
        state.subscription.pattern,
        state.assignment.assigned(),
        state.subscription.metadata_topics(),
    )


def test_subscribing_keeps_the_assignment() -> None:
    """Partitions of unsubscribed topics stay assigned until the group has revoked them."""
    state = ConsumerState()
    state.subscription.subscribe({"a"})
    state.subscription.assign_from_group([A0])
    state.subscription.subscribe({"b"})
    assert ((A0,), True, False) == (
        state.assignment.assigned(),
        state.assignment.is_assigned(A0),
        state.assignment.is_assigned(B0),
    )


@pytest.mark.parametrize(("kind", "expected"), [("topics", {"a"}), ("pattern", set()), ("assigned", set())])
def test_subscribed_topics(kind: str, expected: set[str]) -> None:
    """Only group subscriptions have topics; those of a pattern are the topics matched so far."""
    state = ConsumerState()
    KINDS[kind](state)
    assert expected == state.subscription.subscribed_topics()
    assert (kind != "assigned") == state.subscription.is_group_managed
    assert (kind == "pattern") == state.subscription.has_pattern


def test_a_pattern_matches_whole_names() -> None:
    """As in Java, the pattern has to match the whole name."""
    state = ConsumerState()
    state.subscription.subscribe_pattern(re.compile("ab?"))
    assert [True, True, False, False] == [
        state.subscription.matches_subscription(name) for name in ("a", "ab", "abc", "xa")
    ]


def test_topics_match_by_name() -> None:
    """Without a pattern only the subscribed names match; with a manual assignment none does."""
    state = ConsumerState()
    state.subscription.subscribe({"a"})
    assert [True, False] == [state.subscription.matches_subscription(name) for name in ("a", "b")]
    assert not assigned("a-0").subscription.matches_subscription("a")


def test_a_pattern_follows_the_cluster() -> None:
    """A new match returns whether the set of topics changed, and can omit internal topics."""
    state = ConsumerState()
    state.subscription.subscribe_pattern(re.compile(".*"))
    cluster = Cluster()
    response = metadata(topic("a", partition(0)), topic("__offsets", partition(0), internal=True))
    cluster.update(response, 12, full=True)
    assert [True, False] == [state.subscription.update_matched(cluster, exclude_internal=True) for _ in range(2)]
    assert {"a"} == state.subscription.subscribed_topics()
    assert state.subscription.update_matched(cluster, exclude_internal=False)
    assert {"a", "__offsets"} == state.subscription.subscribed_topics()


def test_only_a_pattern_has_matches() -> None:
    """Setting matched topics for another kind of subscription is an error."""
    with pytest.raises(StateError, match="pattern"):
        assigned("a-0").subscription.subscribe_matched({"a"})


def test_the_leader_needs_the_groups_topics() -> None:
    """A group leader needs metadata of all members' topics until it resets these."""
    state = ConsumerState()
    state.subscription.subscribe({"a"})
    assert not state.subscription.group_subscribe({"a"})
    assert state.subscription.group_subscribe({"b", "c"})
    assert {"a", "b", "c"} == state.subscription.metadata_topics()
    assert state.subscription.needs_metadata("b")
    assert {"a"} == state.subscription.subscribed_topics()
    state.subscription.reset_group_subscription()
    assert {"a"} == state.subscription.metadata_topics()


def test_only_subscribers_are_in_a_group() -> None:
    """A consumer with a manual assignment is not a group member."""
    with pytest.raises(StateError, match="group"):
        assigned("a-0").subscription.group_subscribe({"a"})
    with pytest.raises(StateError, match="group"):
        assigned("a-0").subscription.assign_from_group([A0])


def test_topics_version_counts_changes() -> None:
    """The version increases with each change of the topics whose metadata is needed, and only then."""
    state = ConsumerState()
    versions = [state.subscription.topics_version]
    for step in (
        lambda: state.subscription.subscribe({"a"}),
        lambda: state.subscription.group_subscribe({"b"}),
        state.subscription.reset_group_subscription,
        state.subscription.unsubscribe,
        lambda: state.subscription.assign([A0]),
        lambda: state.subscription.assign([B0]),
        state.subscription.unsubscribe,
        lambda: state.subscription.subscribe_pattern(re.compile("x")),
    ):
        step()
        versions.append(state.subscription.topics_version)
    assert sorted(set(versions)) == versions
    state.subscription.subscribe_pattern(re.compile("x"))
    state.subscription.reset_group_subscription()
    assert versions[-1] == state.subscription.topics_version


# --- assignment ------------------------------------------------------------------------------------------


def test_assigning_sorts_and_reports_changes() -> None:
    """The fetch order is sorted at first, and an equal set in another order is not a change."""
    state = ConsumerState()
    assert state.subscription.assign([B0, A1, A0])
    version = state.changes.assignment_version
    assert not state.subscription.assign([A0, A1, B0])
    assert ((A0, A1, B0), version) == (state.assignment.assigned(), state.changes.assignment_version)


def test_kept_partitions_keep_their_state() -> None:
    """Position and pause survive a partial change; a partition that leaves and returns starts again."""
    state = ConsumerState()
    state.subscription.subscribe({"a", "b"})
    state.subscription.assign_from_group([A0, B0])
    state.positions.seek(A0, 5)
    state.positions.seek(B0, 6)
    state.assignment.pause(A0)
    state.subscription.assign_from_group([A0, A1])
    assert (FetchPosition(5), True) == (state.assignment.get(A0).position, state.assignment.get(A0).paused)
    state.subscription.assign_from_group([A0, B0])
    assert state.assignment.get(B0).position is None


def test_kept_partitions_count_once() -> None:
    """The count of missing positions is right after each change of the assignment."""
    state = ConsumerState()
    state.subscription.subscribe({"a", "b"})
    state.subscription.assign_from_group([A0, A1])
    gone = state.assignment.get(A1)
    state.positions.seek(A0, 5)
    assert not state.positions.has_all_positions()
    state.subscription.assign_from_group([A0])
    assert state.positions.has_all_positions()
    gone.reset(OffsetReset.LATEST)
    gone.seek(FetchPosition(1))
    assert state.positions.has_all_positions()
    state.subscription.assign_from_group([A0, B0])
    assert not state.positions.has_all_positions()
    state.positions.seek(B0, 1)
    assert state.positions.has_all_positions()


def test_responses_for_lost_partitions_are_ignored() -> None:
    """A response for a partition that was unassigned meanwhile is ignored."""
    state = ConsumerState()
    assert not state.positions.maybe_seek_after_reset(A0, 1, OffsetReset.LATEST)
    assert state.positions.maybe_complete_validation(A0, FetchPosition(1, 1, LEADER), 0, 0) is None
    state.positions.complete_validation(A0, FetchPosition(1))
    state.positions.set_next_retry([A0], 1.0)
    state.assignment.mark_awaiting_callback([A0])
    state.assignment.move_to_end(A0)
    assert ((), None, False) == (
        state.assignment.assigned(),
        state.assignment.find(A0),
        state.assignment.is_fetchable(A0),
    )


# --- positions -------------------------------------------------------------------------------------------


def test_request_reset_uses_the_policy() -> None:
    """Without a strategy the configured policy is used; the reset may be delayed."""
    state = assigned("a-0", "a-1", reset=OffsetReset.EARLIEST)
    state.positions.request_reset(A0)
    state.positions.request_reset(A1, OffsetReset.LATEST, retry_at=50.0)
    assert (OffsetReset.EARLIEST, OffsetReset.LATEST) == (
        state.assignment.get(A0).reset_strategy,
        state.assignment.get(A1).reset_strategy,
    )
    assert ([A0], [A0, A1]) == (state.positions.partitions_to_reset(49.0), state.positions.partitions_to_reset(50.0))


def test_request_reset_without_policy_is_an_error() -> None:
    """With policy none a reset is refused and the position stays."""
    state = assigned("a-0", reset=OffsetReset.NONE)
    state.positions.seek(A0, 5)
    with pytest.raises(NoOffsetForPartitionError, match="auto_offset_reset is none"):
        state.positions.request_reset(A0)
    assert FetchPosition(5) == state.assignment.get(A0).position


def test_reset_initializing_resets_those_without_position() -> None:
    """Partitions that have a position or are not in the call are unchanged."""
    state = assigned("a-0", "a-1", "b-0")
    state.positions.seek(A0, 5)
    state.positions.reset_initializing([A0, A1])
    assert ([A1], [B0]) == (state.positions.partitions_to_reset(0.0), state.positions.partitions_to_initialize())
    state.positions.reset_initializing()
    assert [A1, B0] == state.positions.partitions_to_reset(0.0)


@pytest.mark.parametrize(
    ("change", "applied"),
    [
        (lambda state: None, True),
        (lambda state: state.positions.seek(A0, 99), False),
        (lambda state: state.positions.request_reset(A0, OffsetReset.EARLIEST), False),
        (lambda state: state.subscription.unsubscribe(), False),
    ],
    ids=["unchanged", "sought", "other strategy", "unassigned"],
)
def test_a_response_applies_to_the_same_reset(change: Callable[[ConsumerState], object], applied: bool) -> None:
    """A response is used only while the partition awaits a reset with the same strategy."""
    state = assigned("a-0")
    state.positions.request_reset(A0, OffsetReset.LATEST)
    change(state)
    assert applied == state.positions.maybe_seek_after_reset(A0, 7, OffsetReset.LATEST, LEADER)
    if applied:
        assert (FetchState.FETCHING, FetchPosition(7, None, LEADER)) == (
            state.assignment.get(A0).fetch_state,
            state.assignment.get(A0).position,
        )


def test_positions_move_only_while_fetching() -> None:
    """Returned records move a valid position; this is refused during a reset."""
    state = assigned("a-0")
    state.positions.seek(A0, 5, leader=LEADER)
    state.assignment.get(A0).set_position(FetchPosition(9, 3, LEADER))
    assert {A0: OffsetAndMetadata(9, "", 3)} == state.positions.all_consumed()
    state.positions.request_reset(A0)
    with pytest.raises(StateError, match="no valid position"):
        state.assignment.get(A0).set_position(FetchPosition(10))


def test_backoff_hides_partitions_until_it_ends() -> None:
    """A partition in backoff is not requested until the backoff ends, and its state has the reason."""
    state = assigned("a-0", "a-1")
    state.positions.reset_initializing()
    state.positions.set_next_retry([A0], 100.0, "REQUEST_TIMED_OUT")
    assert ([A1], [A0, A1]) == (state.positions.partitions_to_reset(99.0), state.positions.partitions_to_reset(100.0))
    assert 60.0 == state.positions.next_retry(40.0)
    assert float("inf") == state.positions.next_retry(100.0)
    assert "REQUEST_TIMED_OUT" == state.assignment.get(A0).last_error


# --- validation ------------------------------------------------------------------------------------------


def test_all_positions_are_compared_with_the_cluster() -> None:
    """After a metadata update the partitions whose leader changed are validated, and no others."""
    cluster = Cluster()
    cluster.update(led_by({"a-0": 1, "a-1": 1}, epoch=3), 12, full=True)
    state = assigned("a-0", "a-1")
    for partition_ in (A0, A1):
        state.positions.seek(partition_, 5, 2, cluster.leader(partition_))
        state.assignment.get(partition_).complete_validation()
    state.positions.validate_all(cluster)
    assert [] == state.positions.partitions_to_validate(0.0)
    cluster.update_leader(A1, 2, 4)
    state.positions.validate_all(cluster)
    assert [A1] == state.positions.partitions_to_validate(0.0)


def test_positions_in_a_recreated_topic_are_not_validated() -> None:
    """In a re-created topic, whose epochs are new, the position is fetched without validation and the response of a
    validation in flight is ignored. Positions in other topics keep their epochs.
    """
    cluster = Cluster()
    cluster.update(led_by({"a-0": 1, "a-1": 1, "b-0": 1}, epoch=3), 12, full=True)
    state = assigned("a-0", "a-1", "b-0")
    for partition_ in (A0, tp("b-0")):
        state.positions.seek(partition_, 5, 2, cluster.leader(partition_))
    asked = state.assignment.get(A0).position
    assert asked is not None
    state.positions.forget_epochs({"a"})
    assert state.positions.maybe_complete_validation(A0, asked, 3, 2) is None
    assert (FetchState.FETCHING, 5, None) == (
        state.assignment.get(A0).fetch_state,
        *(state.assignment.get(A0).position or ())[:2],
    )
    assert (FetchState.INITIALIZING, None) == state_of(state, A1)
    assert [tp("b-0")] == state.positions.partitions_to_validate(0.0)


@pytest.mark.parametrize("found", [True, False])
@pytest.mark.parametrize(
    "move",
    [
        lambda positions: positions.seek(A0, 5),
        lambda positions: positions.request_reset(A0, OffsetReset.LATEST),
        lambda positions: positions.reset_initializing(),
    ],
)
def test_no_record_of_a_recreated_topic_is_skipped(move: Callable[[Positions], None], found: bool) -> None:
    """If new partitions are read from the first offset, this replaces every position at which nothing was read, and
    every reset in progress: it may have been requested for the old topic."""
    is_new: list[OffsetReset | None] = [None]
    positions = Positions(assigned("a-0").assignment, initial_reset=lambda _: is_new[0])
    move(positions)
    state = positions.assignment.get(A0)
    if found and state.reset_strategy is not None:
        assert positions.maybe_seek_after_reset(A0, 7, state.reset_strategy)
    is_new[0] = OffsetReset.EARLIEST
    positions.forget_epochs({"a"})
    assert (FetchState.AWAIT_RESET, OffsetReset.EARLIEST) == (state.fetch_state, state.reset_strategy)
    assert not positions.maybe_seek_after_reset(A0, 7, OffsetReset.LATEST)


def test_new_partitions_at_the_end_keep_a_position() -> None:
    """If new partitions begin at the end, a position stays in a recreated topic: a reset would skip more records."""
    positions = Positions(assigned("a-0").assignment, initial_reset=lambda _: OffsetReset.LATEST)
    positions.seek(A0, 0)
    positions.forget_epochs({"a"})
    assert positions.assignment.get(A0).position == FetchPosition(0)


def test_a_position_without_leader_is_noticed() -> None:
    """A position from a seek before metadata arrives is validated later."""
    cluster = Cluster()
    state = assigned("a-0")
    state.positions.seek(A0, 5, 2)
    assert (FetchState.FETCHING, True) == (state.assignment.get(A0).fetch_state, state.positions.has_unchecked_leaders)
    cluster.update(led_by({"a-0": 1}, epoch=3), 12, full=True)
    state.positions.validate_all(cluster)
    assert (FetchState.AWAIT_VALIDATION, False) == (
        state.assignment.get(A0).fetch_state,
        state.positions.has_unchecked_leaders,
    )


HERE = FetchPosition(50, 2, LEADER)


@pytest.mark.parametrize("policy", [OffsetReset.LATEST, OffsetReset.NONE])
@pytest.mark.parametrize("end", [50, 51])
def test_a_log_that_reaches_the_position_is_good(policy: OffsetReset, end: int) -> None:
    """If the end offset of the position's epoch is not below the position, fetching continues."""
    state = assigned("a-0", reset=policy)
    state.positions.seek(A0, *HERE)
    assert state.positions.maybe_complete_validation(A0, HERE, end, 2) is None
    assert (FetchState.FETCHING, HERE) == state_of(state, A0)


def test_truncation_moves_the_position() -> None:
    """With a reset policy the position is set to the divergent offset."""
    state = assigned("a-0")
    state.positions.seek(A0, *HERE)
    assert state.positions.maybe_complete_validation(A0, HERE, 40, 1) is None
    assert (FetchState.FETCHING, FetchPosition(40, 1, LEADER)) == (
        state.assignment.get(A0).fetch_state,
        state.assignment.get(A0).position,
    )


def test_a_committed_offset_of_a_deleted_topic_is_reset() -> None:
    """After a topic was deleted and created again, a position beyond the end of its log is reset, and not moved to that
    end: it may be a committed offset of the old topic. Once records of the new topic were read, it is a truncation.
    """
    state = assigned("a-0")
    state.positions.forget_epochs({"a"})
    state.positions.seek(A0, *HERE)
    assert state.positions.maybe_complete_validation(A0, HERE, 3, 2) is None
    assert FetchState.AWAIT_RESET is state.assignment.get(A0).fetch_state
    state.positions.seek(A0, *HERE)
    state.assignment.get(A0).topic_id = bytes(16)
    assert state.positions.maybe_complete_validation(A0, HERE, 3, 2) is None
    assert (FetchState.FETCHING, FetchPosition(3, 2, LEADER)) == (
        state.assignment.get(A0).fetch_state,
        state.assignment.get(A0).position,
    )


@pytest.mark.parametrize(("end", "epoch"), [(-1, 1), (40, -1), (-1, -1)])
def test_an_unknown_epoch_resets(end: int, epoch: int) -> None:
    """If the leader has no such epoch the position is reset, or with policy none a truncation without a divergent
    offset is returned.
    """
    state = assigned("a-0")
    state.positions.seek(A0, *HERE)
    assert state.positions.maybe_complete_validation(A0, HERE, end, epoch) is None
    assert FetchState.AWAIT_RESET is state.assignment.get(A0).fetch_state
    strict = assigned("a-0", reset=OffsetReset.NONE)
    strict.positions.seek(A0, *HERE)
    assert Truncation(HERE, None) == strict.positions.maybe_complete_validation(A0, HERE, end, epoch)


# --- fetching --------------------------------------------------------------------------------------------


def test_fetchable_partitions_rotate() -> None:
    """Partitions take turns; one that returned data is put last."""
    state = assigned("a-0", "a-1", "b-0")
    for partition_ in (A0, A1, B0):
        state.positions.seek(partition_, 0)
    state.assignment.move_to_end(A0)
    assert [A1, B0, A0] == state.assignment.fetchable()
    assert [B0, A0] == state.assignment.fetchable(lambda partition_: partition_ != A1)


def test_only_fetchable_partitions_are_listed() -> None:
    """Partitions that are paused, pending, in backoff or without a position are omitted; `available` is called only for
    the others.
    """
    state = assigned("a-0", "a-1", "a-2", "a-3", "a-4")
    for partition_ in tps("a-0", "a-1", "a-2", "a-3"):
        state.positions.seek(partition_, 0)
    state.assignment.pause(A0)
    state.assignment.mark_pending_revocation([A1])
    state.assignment.mark_awaiting_callback(tps("a-2"))
    asked = []
    assert tps("a-3") == state.assignment.fetchable(lambda partition_: not asked.append(partition_))
    assert tps("a-3") == asked
    state.assignment.resume(A0)
    state.assignment.mark_awaiting_callback(tps("a-2"), awaiting=False)
    assert tps("a-0", "a-2", "a-3") == state.assignment.fetchable()


def test_repr_counts() -> None:
    """The repr has the kind, the topics and the number of missing positions."""
    expected = "<SubscriptionState assigned(a)> <Positions of <Assignment v1: 2 partitions, 2 without position>>"
    assert expected == repr(assigned("a-0", "a-1"))
    assert tp("a-0") in assigned("a-0").assignment.states()


def test_positions_that_await_validation_are_committed() -> None:
    """A commit contains each position that is not missing, also one that is compared with a new leader's log."""
    state = assigned("a-0", "a-1", "b-0")
    state.positions.seek(A0, 5)
    state.positions.seek(A1, 6, 2, LEADER)
    assert FetchState.AWAIT_VALIDATION is state.assignment.get(A1).fetch_state
    assert {A0: OffsetAndMetadata(5), A1: OffsetAndMetadata(6, "", 2)} == state.positions.all_consumed()
