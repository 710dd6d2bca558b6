"""States of a KIP-848 member: which transitions are legal, and when its epoch may be used."""

from __future__ import annotations

import itertools

import pytest

from kconsumer.coordinator.consumer_protocol.state import TRANSITIONS, ConsumerMember, MemberState
from kconsumer.errors import StateError

pytestmark = pytest.mark.network_thread

S = MemberState
# Java's MemberState lists the states from which each one may be entered; this is the same table the other way round
SUCCESSORS = {
    S.UNSUBSCRIBED: {S.JOINING, S.PREPARE_LEAVING, S.FATAL},
    S.JOINING: {S.RECONCILING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL},
    S.RECONCILING: {S.RECONCILING, S.ACKNOWLEDGING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL},
    S.ACKNOWLEDGING: {S.RECONCILING, S.STABLE, S.FENCED, S.PREPARE_LEAVING, S.FATAL},
    S.STABLE: {S.RECONCILING, S.FENCED, S.PREPARE_LEAVING, S.FATAL},
    S.FENCED: {S.UNSUBSCRIBED, S.JOINING},
    S.PREPARE_LEAVING: {S.UNSUBSCRIBED, S.FENCED, S.LEAVING, S.FATAL},
    S.LEAVING: {S.UNSUBSCRIBED, S.FENCED, S.STALE, S.FATAL},
    S.STALE: {S.JOINING},
    S.FATAL: set(),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)), ids=lambda state: state.name)
def test_each_change_of_state(before: MemberState, after: MemberState) -> None:
    """A legal transition takes place; an illegal one raises an error and changes nothing."""
    member = ConsumerMember("g", None, "m")
    member.state = before
    if after in SUCCESSORS[before]:
        member.transition_to(after)
        assert after is member.state
    else:
        with pytest.raises(StateError, match=f"{before.name} to {after.name}"):
            member.transition_to(after)
        assert before is member.state


def test_every_state_is_in_the_table() -> None:
    """Every state has a row in the table; otherwise it could never be entered."""
    assert set(S) == set(TRANSITIONS)
