"""Checks the state changes of all state machines.

A state machine has an `enum` of states, a table `TRANSITIONS` from each state to the states that may follow it, and one
method `transition_to` that calls `checked_transition`. docs/design/state-machines.md shows the tables as diagrams.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from kconsumer.errors import StateError

S = TypeVar("S", bound=enum.Enum)


def checked_transition(transitions: Mapping[S, frozenset[S]], subject: str, old: S, new: S) -> S:
    """Returns `new` if it may follow `old`. Otherwise raises a StateError that names the `subject`.

    Call this before any other change, so that an illegal transition changes nothing.
    """
    if new not in transitions[old]:
        raise StateError(f"{subject} cannot change from {old.name} to {new.name}")
    return new
