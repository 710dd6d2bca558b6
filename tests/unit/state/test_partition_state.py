"""The state of one partition: legal transitions, when it is fetchable, and what it stores."""

from __future__ import annotations

import itertools

import pytest

from kconsumer._core.cycle import ChangeLog
from kconsumer.errors import StateError
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import (
    HAS_POSITION,
    TRANSITIONS,
    FetchPosition,
    FetchState,
    PartitionState,
)
from kconsumer.types import OffsetReset
from support.harnesses.manager_driver import NODES

LEADER = LeaderAndEpoch(NODES[1], 3)
NEXT_LEADER = LeaderAndEpoch(NODES[2], 4)
HERE = FetchPosition(10, 2, LEADER)

# A second copy of Java's table: from, to.
LEGAL = {
    ("initializing", "fetching"),
    ("initializing", "await_reset"),
    ("initializing", "await_validation"),
    ("fetching", "fetching"),
    ("fetching", "await_reset"),
    ("fetching", "await_validation"),
    ("await_reset", "fetching"),
    ("await_reset", "await_reset"),
    ("await_validation", "fetching"),
    ("await_validation", "await_reset"),
    ("await_validation", "await_validation"),
}


def state_in(state: FetchState, changes: ChangeLog | None = None) -> PartitionState:
    """Returns a partition that reached a state by legal transitions."""
    made = PartitionState(changes)
    if state is not FetchState.INITIALIZING:
        made.transition_to(state, HERE if state in HAS_POSITION else None)
    return made


@pytest.mark.parametrize(("old", "new"), list(itertools.product(FetchState, FetchState)))
def test_transitions(old: FetchState, new: FetchState) -> None:
    """Legal transitions take place; illegal ones raise an error and change nothing."""
    state = state_in(old)
    legal = (old.value, new.value) in LEGAL
    before = (state.fetch_state, state.position, state.fetchable)
    assert legal == (new in TRANSITIONS[old])
    if legal:
        state.transition_to(new, HERE)
        assert (new, HERE if new in HAS_POSITION else None) == (state.fetch_state, state.position)
    else:
        with pytest.raises(StateError, match=f"{old.name} to {new.name}"):
            state.transition_to(new, HERE)
        assert before == (state.fetch_state, state.position, state.fetchable)


@pytest.mark.parametrize("new", [FetchState.FETCHING, FetchState.AWAIT_VALIDATION])
def test_a_state_with_position_needs_one(new: FetchState) -> None:
    """A partition without a position cannot enter a state that requires one."""
    with pytest.raises(StateError, match="without a position"):
        PartitionState().transition_to(new)


@pytest.mark.parametrize("flag", ["paused", "pending_revocation", "unsubscribed", "awaiting_callback"])
def test_each_flag_stops_fetching(flag: str) -> None:
    """Each flag stops fetching until it is cleared."""
    state = state_in(FetchState.FETCHING)
    state.flag(**{flag: True})
    assert (False, True) == (state.fetchable, state.has_valid_position)
    state.flag(**{flag: False})
    assert state.fetchable


def test_the_change_log_counts_missing_positions() -> None:
    """Partitions of one assignment share a count of those without a valid position."""
    changes = ChangeLog()
    first, second = PartitionState(changes), PartitionState(changes)
    assert 2 == changes.without_position
    first.seek(HERE)
    first.seek(HERE)
    second.seek_unvalidated(HERE)
    assert 1 == changes.without_position
    second.complete_validation()
    assert 0 == changes.without_position
    first.reset(OffsetReset.LATEST)
    first.reset(OffsetReset.EARLIEST)
    assert 1 == changes.without_position


def test_a_lost_leader_changes_nothing() -> None:
    """While no leader is known the position keeps the old one."""
    state = state_in(FetchState.FETCHING)
    assert not state.maybe_validate(LeaderAndEpoch(None, 9))
    assert HERE == state.position


def test_a_second_leader_change_restarts_validation() -> None:
    """A validation in flight is restarted for the newest leader, without backoff."""
    state = state_in(FetchState.AWAIT_VALIDATION)
    state.retry_at(500.0)
    assert state.maybe_validate(NEXT_LEADER)
    assert (NEXT_LEADER, 0.0) == (state.position.leader if state.position else None, state.next_retry)


def test_reset_drops_the_position() -> None:
    """A reset clears position, backoff and the result of an earlier reset."""
    state = state_in(FetchState.FETCHING)
    state.set_reset_end(7)
    state.retry_at(500.0)
    state.reset(OffsetReset.EARLIEST)
    assert (None, OffsetReset.EARLIEST) == (state.position, state.reset_strategy)
    assert (0.0, None) == (state.next_retry, state.reset_end)


def test_the_preferred_replica_has_a_lease() -> None:
    """A preferred replica is used until its lease ends; naming it again does not extend the lease."""
    state = state_in(FetchState.FETCHING)
    state.prefer_replica(2, until=100.0, offset=0)
    state.prefer_replica(2, until=900.0, offset=0)
    assert (2, 2, None) == (
        state.replica.preferred(0.0),
        state.replica.preferred(100.0),
        state.replica.preferred(100.5),
    )


def test_another_preferred_replica_has_its_own_lease() -> None:
    """Naming another replica, or the same one after it was cleared, starts a new lease."""
    state = state_in(FetchState.FETCHING)
    state.prefer_replica(2, until=100.0, offset=0)
    state.prefer_replica(3, until=900.0, offset=0)
    assert 3 == state.replica.preferred(500.0)
    state.prefer_leader()
    assert state.replica.preferred(0.0) is None


def test_a_leader_change_clears_the_preferred_replica() -> None:
    """The new leader is asked which replica it prefers."""
    state = state_in(FetchState.FETCHING)
    state.prefer_replica(2, until=100.0, offset=0)
    state.maybe_validate(NEXT_LEADER)
    assert state.replica.preferred(0.0) is None


def test_lag() -> None:
    """The lag is the end offset for the isolation level minus the position; None if either is unknown."""
    state = state_in(FetchState.FETCHING)
    assert state.lag() is None
    state.update_offsets(25, 20)
    assert (15, 10) == (state.lag(), state.lag(read_committed=True))
    state.reset(OffsetReset.LATEST)
    assert state.lag() is None


def test_an_error_is_cleared_with_the_state() -> None:
    """The error of a reset is kept until the state changes."""
    state = state_in(FetchState.AWAIT_RESET)
    state.last_error = "LEADER_NOT_AVAILABLE"
    state.seek(HERE)
    assert "" == state.last_error


def test_since_when() -> None:
    """`since` and `flags_since` are the times of the last changes, not of later calls without a change."""
    changes = ChangeLog(1_000.0)
    state = PartitionState(changes)
    changes.now = 2_000.0
    state.seek(HERE)
    changes.now = 5_000.0
    state.seek(FetchPosition(11, None, LEADER))
    assert (2_000.0, 1_000.0) == (state.state_since, state.flags_since)
    state.pause()
    changes.now = 6_000.0
    state.pause()
    assert (2_000.0, 5_000.0) == (state.state_since, state.flags_since)


def test_repr_has_state_and_flags() -> None:
    """The repr has the state, the position and the flags."""
    state = state_in(FetchState.FETCHING)
    state.pause()
    assert "<PartitionState fetching at 10 paused>" == repr(state)
