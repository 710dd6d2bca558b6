"""First positions: the group's commit, else the reset policy, else an error."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

import pytest

from kconsumer._internal.managers import PollResult, Promise
from kconsumer.errors import GroupAuthorizationError, NoOffsetForPartitionError, TimeoutError, error_for
from kconsumer.state.partition import FetchState
from kconsumer.types import OffsetAndMetadata, OffsetReset, TopicPartition
from support.harnesses.manager_driver import config, led_by, tp, tps
from support.harnesses.wiring import group_of, make_components

Committed = dict[TopicPartition, OffsetAndMetadata | None]


class Commits:
    """Replaces CommitManager and records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[TopicPartition], float]] = []
        self.promises: list[Promise[Committed]] = []

    def committed(self, partitions: Collection[TopicPartition], deadline: float) -> Promise[Committed]:
        self.asked.append((sorted(partitions), deadline))
        self.promises.append(Promise())
        return self.promises[-1]


class Case:
    """A manager of assigned partitions; `group=False` for a consumer without a group."""

    def __init__(self, *names: str, reset: OffsetReset = OffsetReset.EARLIEST, group: bool = True) -> None:
        options = {"auto_offset_reset": reset, "default_api_timeout_ms": 5000, "group_id": "g" if group else None}
        components = make_components(config(**options))
        self.cluster, self.subscription = components.cluster, components.subscription
        self.assignment, self.positions = components.assignment, components.positions
        self.manager = components.initial_positions
        self.cluster.update(led_by(dict.fromkeys(names, 1), 3), 12, full=True)
        self.subscription.assign(tps(*names))
        self.commits = Commits()
        if group:
            vars(group_of(components).commits)["committed"] = self.commits.committed

    def poll(self, now: float = 0.0) -> PollResult:
        result = self.manager.poll(now)
        assert [] == result.requests, "it sends nothing itself"
        return result

    def respond(self, **offsets: int | OffsetAndMetadata | None) -> None:
        """Complete the newest promise: `a_0=5`."""
        found = {tp(name.replace("_", "-")): offset for name, offset in offsets.items()}
        self.commits.promises[-1].set_result(
            {key: OffsetAndMetadata(value) if isinstance(value, int) else value for key, value in found.items()}
        )

    def state(self, name: str) -> tuple[FetchState, int | None]:
        state = self.assignment.get(tp(name))
        return state.fetch_state, None if state.position is None else state.position.offset


def test_no_commit_and_no_policy_is_an_error() -> None:
    """NoOffsetForPartitionError has all partitions without a commit, once per lookup; others continue."""
    case = Case("a-0", "a-1", "a-2", reset=OffsetReset.NONE)
    responses = {0.0: {"a_0": 5, "a_1": None, "a_2": None}, 200.0: {"a_1": None, "a_2": None}}
    for now, offsets in responses.items():
        case.poll(now)
        case.respond(**offsets)
        assert case.poll(now).wait_ms > 0, "it backs off"
        error = case.manager.take_error()
        assert isinstance(error, NoOffsetForPartitionError)
        assert tuple(tps("a-1", "a-2")) == error.partitions
        assert case.manager.take_error() is None
        assert (FetchState.FETCHING, 5) == case.state("a-0")
        assert (FetchState.INITIALIZING, None) == case.state("a-1")


def test_without_a_group_the_policy_decides_at_once() -> None:
    """Without a group no commits are requested, and the reset policy applies at once."""
    case = Case("a-0", group=False)
    assert float("inf") == case.poll().wait_ms
    assert (FetchState.AWAIT_RESET, None) == case.state("a-0")
    assert [] == case.commits.asked


def test_without_a_group_and_without_a_policy() -> None:
    """Each poll raises the error until the user seeks."""
    case = Case("a-0", reset=OffsetReset.NONE, group=False)
    for _ in range(2):
        case.poll()
        assert isinstance(case.manager.take_error(), NoOffsetForPartitionError)
    case.positions.seek(tp("a-0"), 3)
    case.poll()
    assert case.manager.take_error() is None


def test_one_lookup_at_a_time() -> None:
    """One lookup is in flight at a time; the next one has the partitions that need a position by then."""
    case = Case("a-0")
    case.poll()
    case.subscription.assign(tps("a-0", "b-0"))
    case.poll()
    assert 1 == len(case.commits.asked)
    case.respond(a_0=5)
    case.poll()
    assert tps("b-0") == case.commits.asked[1][0]


def test_lookup_continues_while_the_same_partitions_need_it() -> None:
    """A lookup also continues for a partition whose position is requested in on_assign."""
    case = Case("a-0", "a-1")
    case.assignment.mark_awaiting_callback(tps("a-0", "a-1"))
    case.manager.request(tp("a-1"))
    for now in (0.0, 100.0, 200.0, 5000.0):
        case.poll(now)
    assert [tps("a-1")] == [partitions for partitions, _ in case.commits.asked]
    case.respond(a_1=7)
    assert (FetchState.FETCHING, 7) == case.state("a-1")


def test_refused_lookup_is_repeated_less_and_less_often() -> None:
    """A missing ACL causes a few requests per second, however often the network thread polls; another assignment is
    looked up at once.
    """
    case = Case("a-0")
    times = []
    for now in range(10_000):
        before = len(case.commits.asked)
        case.poll(now)
        if len(case.commits.asked) > before:
            times.append(now)
            case.commits.promises[-1].set_exception(GroupAuthorizationError("no"))
    pauses = [after - before for before, after in pairwise(times)]
    assert 80 <= pauses[0] <= 120
    assert 160 <= pauses[1] <= 240
    assert 800 <= min(pauses[4:])
    case.subscription.assign(tps("b-0"))
    case.poll(10_000)
    assert tps("b-0") == case.commits.asked[-1][0]


def test_partitions_lost_during_the_lookup_are_ignored() -> None:
    """A response for revoked partitions changes nothing and raises nothing."""
    case = Case("a-0", "a-1", reset=OffsetReset.NONE)
    case.poll()
    case.subscription.assign(tps("a-0"))
    case.respond(a_0=5, a_1=None)
    assert case.manager.take_error() is None
    assert (FetchState.FETCHING, 5) == case.state("a-0")


@pytest.mark.parametrize("timed_out", [True, False])
def test_failed_lookup(timed_out: bool) -> None:
    """A lookup that timed out is repeated silently; any other error is raised, then the lookup is repeated."""
    case = Case("a-0")
    case.poll()
    error = TimeoutError("late") if timed_out else GroupAuthorizationError("no")
    case.commits.promises[-1].set_exception(error)
    assert (None if timed_out else error) is case.manager.take_error()
    assert case.manager.take_error() is None
    assert (FetchState.INITIALIZING, None) == case.state("a-0")
    assert error is case.assignment.get(tp("a-0")).last_error
    case.poll(1.0)
    case.poll(6000.0)
    assert [5000.0, 11000.0] == [deadline for _, deadline in case.commits.asked]
    case.respond(a_0=5)
    assert (FetchState.FETCHING, 5) == case.state("a-0")


@pytest.mark.parametrize("code", [25, 113], ids=["UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"])
def test_member_that_is_fenced_during_the_lookup(code: int) -> None:
    """If the member is fenced during the lookup, poll raises nothing and on_lost follows. The lookup is repeated with
    growing pauses until a heartbeat fences the member.
    """
    case = Case("a-0")
    case.poll()
    case.commits.promises[-1].set_exception(error_for(code))
    assert case.manager.take_error() is None
    pause_ms = case.poll(100.0).wait_ms
    assert 80 <= pause_ms <= 120
    case.poll(100.0 + pause_ms)
    assert 2 == len(case.commits.asked)
    case.commits.promises[-1].set_exception(error_for(code))
    assert case.poll(300.0).wait_ms > pause_ms
    assert 2 == len(case.commits.asked)
    case.subscription.assign(tps("b-0"))
    case.poll(600.0)
    assert tps("b-0") == case.commits.asked[-1][0]
    case.respond(b_0=5)
    assert (FetchState.FETCHING, 5) == case.state("b-0")
    assert case.manager.take_error() is None
