"""After any sequence of changes the subscription state is consistent: cached values equal computed ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer.errors import StateError
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import HAS_POSITION, FetchPosition, FetchState
from kconsumer.types import OffsetReset
from support.harnesses.consumer_state import ConsumerState
from support.harnesses.manager_driver import NODES, tps

PARTITIONS = tps("a-0", "a-1", "b-0")
LEADERS = [LeaderAndEpoch(), LeaderAndEpoch(NODES[1], None), LeaderAndEpoch(NODES[1], 3), LeaderAndEpoch(NODES[2], 4)]

partition = st.sampled_from(PARTITIONS)
leader = st.sampled_from(LEADERS)
epoch = st.none() | st.integers(0, 5)
step = st.one_of(
    st.tuples(st.just("assign"), st.sets(partition)),
    st.tuples(st.just("seek"), partition, st.integers(0, 99), epoch, leader),
    st.tuples(st.just("reset"), partition),
    st.tuples(st.just("found"), partition, st.integers(0, 99), leader),
    st.tuples(st.just("lead"), partition, leader),
    st.tuples(st.just("validated"), partition, st.integers(-1, 99), st.integers(-1, 5)),
    st.tuples(st.just("pause"), partition),
    st.tuples(st.just("resume"), partition),
    st.tuples(st.just("revoke"), partition),
    st.tuples(st.just("callback"), partition, st.booleans()),
    st.tuples(st.just("move"), partition),
    st.tuples(st.just("unsubscribe")),
)


def run(state: ConsumerState, name: str, *args: object) -> None:
    """Run one step."""
    steps = {
        "assign": state.subscription.assign,
        "seek": state.positions.seek,
        "reset": lambda tp: state.positions.request_reset(tp, OffsetReset.EARLIEST),
        "found": lambda tp, offset, led: state.positions.maybe_seek_after_reset(tp, offset, OffsetReset.EARLIEST, led),
        "lead": lambda tp, led: state.assignment.get(tp).maybe_validate(led),
        "validated": lambda tp, end, at: state.positions.maybe_complete_validation(
            tp, getattr(state.assignment.find(tp), "position", None) or FetchPosition(0), end, at
        ),
        "pause": state.assignment.pause,
        "resume": state.assignment.resume,
        "revoke": lambda tp: state.assignment.mark_pending_revocation([tp]),
        "callback": lambda tp, awaiting: state.assignment.mark_awaiting_callback([tp], awaiting),
        "move": state.assignment.move_to_end,
        "unsubscribe": state.subscription.unsubscribe,
    }
    steps[name](*args)


def check(state: ConsumerState) -> None:
    """Check every invariant."""
    states = state.assignment.states()
    valid = [tp for tp, s in states.items() if s.fetch_state is FetchState.FETCHING]
    free = [
        tp for tp in valid if not (states[tp].paused or states[tp].pending_revocation or states[tp].awaiting_callback)
    ]
    assert (len(valid) == len(states)) == state.positions.has_all_positions()
    assert free == state.assignment.fetchable()
    assert {tp for tp, s in states.items() if s.position is not None} == set(state.positions.all_consumed())
    for s in states.values():
        assert (s.fetch_state in HAS_POSITION) == (s.position is not None)
        if s.fetch_state is FetchState.AWAIT_VALIDATION:
            assert s.position is not None
            assert None not in (s.position.offset_epoch, s.position.leader.epoch)
        if s.fetch_state is FetchState.AWAIT_RESET:
            assert s.reset_strategy is not None
    waiting = [
        *state.positions.partitions_to_initialize(),
        *state.positions.partitions_to_reset(0.0),
        *state.positions.partitions_to_validate(0.0),
    ]
    assert sorted(states) == sorted([*waiting, *valid])


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=30))
def test_no_sequence_of_changes_breaks_the_state(steps: list[tuple[object, ...]]) -> None:
    """Counts, flags and lists agree with the partitions after every step; a refused step changes nothing."""
    state = ConsumerState()
    for name, *args in steps:
        before = repr(state), list(map(repr, state.assignment.states().values()))
        try:
            run(state, str(name), *args)
        except StateError:
            assert before == (repr(state), list(map(repr, state.assignment.states().values())))
        check(state)
