"""The one way in which state machines change their state.

A machine is an `enum` of states, a table `TRANSITIONS` from each state to the states that may follow it, and one method
`transition_to` that asks this module. Which changes are legal is decided by the tables; docs/design/state-machines.md
shows them as diagrams.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from kconsumer.errors import StateError

S = TypeVar("S", bound=enum.Enum)


def checked_transition(transitions: Mapping[S, frozenset[S]], subject: str, old: S, new: S) -> S:
    """Returns `new` if it may follow `old`. Raises StateError, which names the `subject`, if not: the caller must not
    have changed anything before."""
    if new not in transitions[old]:
        raise StateError(f"{subject} cannot change from {old.name} to {new.name}")
    return new
