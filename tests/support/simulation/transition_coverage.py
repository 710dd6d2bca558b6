"""Records which transitions of the state machines happen, to find those that no scenario reaches."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

from kconsumer._internal.transitions import checked_transition
from kconsumer.coordinator.classic_protocol import state as classic_state
from kconsumer.coordinator.consumer_protocol import state as consumer_state
from kconsumer.net import connection, states
from kconsumer.state import partition

S = TypeVar("S", bound=enum.Enum)
Transition = tuple[str, str, str]  # the machine, the old state, the new state

#: By machine: the module that calls `checked_transition`, and its table.
MACHINES: dict[str, tuple[ModuleType, Mapping[Any, frozenset[Any]]]] = {
    "connection": (connection, states.TRANSITIONS),
    "partition": (partition, partition.TRANSITIONS),
    "member of the classic protocol": (classic_state, classic_state.TRANSITIONS),
    "member of the consumer protocol": (consumer_state, consumer_state.TRANSITIONS),
}


_CONSUMER = "member of the consumer protocol"
#: Legal transitions that no run can reach, with the reason.
UNREACHABLE: dict[Transition, str] = {
    ("member of the classic protocol", "COMPLETING", "PREPARING"): "only after a signal handler has raised",
    ("partition", "INITIALIZING", "AWAIT_VALIDATION"): "a position is set first, in FETCHING",
    (_CONSUMER, "JOINING", "STABLE"): "the response to a join always has an assignment, which is reconciled",
    (_CONSUMER, "RECONCILING", "STABLE"): "a new target has another number than the owned assignment",
    (_CONSUMER, "PREPARE_LEAVING", "UNSUBSCRIBED"): "the member is LEAVING or FENCED in between",
    (_CONSUMER, "UNSUBSCRIBED", "PREPARE_LEAVING"): "only members of a group leave it",
    (_CONSUMER, "UNSUBSCRIBED", "FATAL"): "errors are ignored while the member is not in the group",
}


class TransitionCoverage:
    """A context manager that records the transitions of all state machines in `seen`."""

    def __init__(self) -> None:
        self.seen: set[Transition] = set()

    def __enter__(self) -> TransitionCoverage:
        for machine, (module, _) in MACHINES.items():
            vars(module)["checked_transition"] = self._recording(machine)
        return self

    def __exit__(self, *_: object) -> None:
        for module, _table in MACHINES.values():
            vars(module)["checked_transition"] = checked_transition

    def _recording(self, machine: str) -> Any:
        """Returns a `checked_transition` that records the legal transitions of a machine."""

        def checked(transitions: Mapping[S, frozenset[S]], subject: str, old: S, new: S) -> S:
            state = checked_transition(transitions, subject, old, new)
            self.seen.add((machine, old.name, new.name))
            return state

        return checked


def all_transitions() -> list[Transition]:
    """Returns all legal transitions, sorted."""
    return sorted(
        (machine, old.name, new.name) for machine, (_, table) in MACHINES.items() for old in table for new in table[old]
    )


def unseen(seen: Iterable[Transition]) -> list[Transition]:
    """Returns the legal transitions that are neither in `seen` nor unreachable, sorted."""
    known = {*seen, *UNREACHABLE}
    return [transition for transition in all_transitions() if transition not in known]
