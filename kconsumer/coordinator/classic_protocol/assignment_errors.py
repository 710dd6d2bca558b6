"""The errors of assignments: of an assignor that fails, and of an assignment that this member cannot use."""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.assignors import Assignor, origin
from kconsumer.coordinator.group_member import Generation
from kconsumer.errors import AssignorError, KafkaError, ProtocolError


def plugin_error(assignor: Assignor, method: str, error: Exception) -> AssignorError:
    """Returns the error for an assignor whose method raised, or returned a value that cannot be encoded."""
    failed = AssignorError(f"{origin(assignor)} failed in {method}: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def unreadable_assignment_error(group_id: str, error: ProtocolError) -> ProtocolError:
    """Returns the error for an assignment whose bytes cannot be decoded."""
    return ProtocolError(
        f"group {group_id!r}: the assignment of this member cannot be read ({error});"
        " the leader of the group probably left this member out"
    )


def stray_topics_error(generation: Generation, stray: Collection[str], subscribed: Collection[str]) -> KafkaError:
    return KafkaError(
        f"the assignment doesn't match our current subscription: {stray} assigned, {subscribed} subscribed."
        f" If this lasts, the leader of the group, with the assignor {generation.protocol!r}, assigns topics to members"
        " that have not subscribed to them"
    )
