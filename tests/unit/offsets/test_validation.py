"""KIP-320: positions are validated after a leader change, and a truncated log is detected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kconsumer._internal.managers import FOREVER, UnsentRequest
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    LogTruncationError,
    UnsupportedVersionError,
)
from kconsumer.schema.offsets import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, FetchState
from kconsumer.types import OffsetReset
from support.harnesses.manager_driver import (
    REQUEST_TIMEOUT_MS,
    RETRY_MS,
    ManagerCase,
    config,
    fail,
    led_by,
    respond,
    tp,
    tps,
)
from support.harnesses.wiring import make_components

A0, A1 = tps("a-0", "a-1")


class Case(ManagerCase):
    """Two partitions at offset 50, epoch 2, led by broker 1 at epoch 3; then broker 2 takes over at epoch 4."""

    def __init__(self, reset: OffsetReset = OffsetReset.LATEST, offset_epoch: int | None = 2) -> None:
        components = make_components(config(auto_offset_reset=reset))
        self.cluster, self.subscription = components.cluster, components.subscription
        self.assignment, self.positions = components.assignment, components.positions
        self.metadata, self.manager = components.metadata, components.offsets
        self.subscription.assign([A0, A1])
        respond(self.metadata.poll(0.0).requests[0], led_by({"a-0": 1, "a-1": 1}, 3), 0.0)
        for partition in (A0, A1):
            self.positions.seek(partition, 50, offset_epoch, self.cluster.leader(partition))
            self.assignment.get(partition).complete_validation()
        assert [] == self.manager.poll(0.0).requests

    def move_leaders(self, leaders: Mapping[str, int], epoch: int = 4) -> None:
        self.cluster.update(led_by(leaders, epoch), 12, full=True)

    def moved(self) -> UnsentRequest:
        """Returns the validation request after broker 2 took over both partitions."""
        self.move_leaders({"a-0": 2, "a-1": 2})
        return self.ask(1.0)

    def states(self) -> list[str]:
        return [state.fetch_state.value for state in self.assignment.states().values()]


def ends(found: Mapping[str, Any]) -> Any:
    """Returns a response: partition -> (end offset, epoch), or an error code."""
    listed = []
    for name, value in found.items():
        end, epoch, error = (-1, -1, value) if isinstance(value, int) else (*value, 0)
        listed.append(
            EpochEndOffset(partition=tp(name).partition, end_offset=end, leader_epoch=epoch, error_code=error)
        )
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="a", partitions=listed)])


def test_a_new_leader_validates_the_position() -> None:
    """The end of the position's epoch is requested from the new leader, and nothing is fetched meanwhile."""
    case = Case()
    request = case.moved()
    assert (OFFSET_FOR_LEADER_EPOCH, "2", 3, -1) == (
        request.api,
        request.node,
        request.min_version,
        request.message.replica_id,
    )
    (asked,) = request.message.topics
    assert "a" == asked.topic
    assert [(0, 4, 2), (1, 4, 2)] == [(r.partition, r.current_leader_epoch, r.leader_epoch) for r in asked.partitions]
    assert ([], REQUEST_TIMEOUT_MS) == (case.assignment.fetchable(), case.waits(1.0))


def test_without_policy_truncation_is_raised_until_sought() -> None:
    """The position is validated again after the backoff, until the user seeks."""
    case = Case(OffsetReset.NONE)
    respond(case.moved(), ends({"a-0": (40, 1), "a-1": (70, 2)}), 5.0)
    assert case.manager.take_error() is not None
    assert RETRY_MS == case.waits(5.0)
    respond(case.ask(5.0 + RETRY_MS), ends({"a-0": (40, 1)}), 110.0)
    case.positions.seek(A0, 40)
    assert (None, FOREVER) == (case.manager.take_error(), case.waits(1000.0))


def cut(case: Case) -> None:
    """Let both partitions be truncated at 40, without a policy."""
    respond(case.moved(), ends({"a-0": (40, 1), "a-1": (40, 1)}), 5.0)


def lasting(case: Case) -> set[Any]:
    """Returns the partitions of the error that is raised repeatedly."""
    error = case.manager.lasting_error()
    assert error is None or isinstance(error, LogTruncationError)
    return set() if error is None else set(error.offsets)


def test_a_truncation_is_silent_while_paused() -> None:
    """The error of a paused partition is not raised until it is resumed."""
    case = Case(OffsetReset.NONE)
    cut(case)
    case.assignment.pause(A0)
    case.assignment.pause(A1)
    assert (None, set()) == (case.manager.take_error(), lasting(case))
    case.assignment.resume(A1)
    assert {A1} == lasting(case)


def test_a_missing_partition_is_retried() -> None:
    """A partition that is missing in the response is handled as if it had failed."""
    case = Case()
    respond(case.moved(), ends({"a-1": (70, 2), "a-9": (1, 1)}), 5.0)
    assert (["await_validation", "fetching"], RETRY_MS) == (case.states(), case.waits(5.0))


def test_final_errors_are_raised() -> None:
    """A failed authentication is raised, and retried after the backoff."""
    case = Case()
    error = AuthenticationError(code=58)
    fail(case.moved(), error, 5.0)
    assert (error, RETRY_MS) == (case.manager.take_error(), case.waits(5.0))


def test_a_late_failure_for_lost_partitions_is_harmless() -> None:
    """A failure for unassigned partitions is ignored."""
    case = Case()
    request = case.moved()
    case.subscription.unsubscribe()
    fail(request, UnsupportedVersionError("old"), 5.0)
    fail(request, BrokerConnectionError("lost"), 5.0)
    respond(request, ends({"a-0": 29, "a-1": 6}), 5.0)
    assert (FOREVER, None) == (case.waits(6.0), case.manager.take_error())


def test_a_position_whose_leader_is_unknown_waits_for_metadata() -> None:
    """While no leader is known metadata is requested, and the old leader is not asked."""
    case = Case()
    state = case.assignment.get(A0)
    state.transition_to(FetchState.AWAIT_VALIDATION, FetchPosition(50, 2, LeaderAndEpoch(None, 4)))
    case.cluster.update_last_seen_epoch(A0, 4)
    assert RETRY_MS == case.waits(1.0)
    assert case.metadata.poll(1000.0).requests
