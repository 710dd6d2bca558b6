"""States of a KIP-848 member: which transitions are legal, and when its epoch may be used."""

from __future__ import annotations

import itertools
import random

import pytest

from kconsumer.coordinator.consumer_protocol.state import TRANSITIONS, ConsumerMember, MemberState
from kconsumer.errors import StateError
from support.harnesses.manager_driver import config
from support.harnesses.wiring import group_of, make_components

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


def test_the_member_makes_its_own_id() -> None:
    """Each consumer creates another member id, which is kept when it loses its assignment (KIP-1082)."""
    options = config(group_id="g", group_protocol="consumer")
    one, other = (group_of(make_components(options, rng=random.Random())).member for _ in range(2))
    assert one.member_id != other.member_id
    assert isinstance(one, ConsumerMember)
    kept = one.member_id
    one.forget_assignment()
    assert kept == one.member_id


@pytest.mark.parametrize(("epoch", "good"), [(-2, False), (-1, False), (0, False), (1, True), (7, True)])
def test_commits_need_an_epoch(epoch: int, good: bool) -> None:
    """The epochs of joining and leaving cannot be used for a commit."""
    member = ConsumerMember("g", None, "me")
    member.member_epoch = epoch
    assert good == member.may_commit
    assert ((epoch, "me") if good else (-1, "")) == member.generation[:2]
