"""The present generation of a classic group: its state, its protocol, and what is stored in the offsets topic.

Decides which protocol the members choose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kconsumer._core.codec import decode
from kconsumer.errors import ProtocolError
from kconsumer.schema.dsl import plan
from kconsumer.schema.embedded import PROTOCOL_TYPE, ConsumerProtocolSubscription
from kconsumer.testing.cluster.groups.classic_member import Protocols
from kconsumer.testing.cluster.groups.classic_members import ClassicMembers

EMPTY = "Empty"
PREPARING_REBALANCE = "PreparingRebalance"  # members join
COMPLETING_REBALANCE = "CompletingRebalance"  # members wait for the leader's assignment
STABLE = "Stable"
DEAD = "Dead"  # unloaded or deleted


class Stored:
    """A copy of a classic group's state, as Kafka stores it in the offsets topic.

    `ClassicGeneration.store` creates it, for example when a rebalance has completed.
    """

    def __init__(self, group: ClassicGeneration) -> None:
        self.generation = group.generation
        self.protocol_type = group.protocol_type
        self.protocol_name = group.protocol_name
        self.leader_id = group.leader_id
        self.state_since_ms = group.state_since_ms
        name = group.protocol_name or ""
        self.members = [member.copy(member.id, [(name, member.metadata(name))]) for member in group.members.values()]


class ClassicGeneration(ClassicMembers):
    """The members, the state and the generation of one group. It is a base class of `ClassicGroup`."""

    def __init__(self, wall_ms: Callable[[float], int], now: float) -> None:
        super().__init__()
        self._wall_ms = wall_ms
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_since_ms = wall_ms(now)
        self.generation = 0
        self.subscribed_topics: set[str] | None = None  # None: unknown
        self._stored: Stored | None = None

    # --- the protocol ---

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Returns whether a member with this protocol type and these protocols can join.

        The type must be that of the group, and one of the protocols must be supported by all present members. An empty
        group accepts any type and any protocols.
        """
        if self.state == EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(protocols)
        candidates = self.common_protocols()
        return any(name in candidates for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Returns the protocol with the most votes of the members.

        If several protocols have equally many votes, returns the first of them by name. Kafka's choice depends on a
        hash map.
        """
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name))

    # --- state and generation ---

    def transition(self, state: str, now: float) -> None:
        """Set the state, and remember the previous state and the time of the change."""
        self.previous_state, self.state = self.state, state
        self.state_since_ms = self._wall_ms(now)

    def begin_generation(self, now: float) -> None:
        """Begin the next generation with the present members.

        The state becomes CompletingRebalance, or Empty if the group has no members.
        """
        self.generation += 1
        self.protocol_name = self.choose_protocol() if self.members else None
        self.subscribed_topics = self._compute_subscribed_topics()
        self.transition(COMPLETING_REBALANCE if self.members else EMPTY, now)
        self.pending_sync.clear()

    def _compute_subscribed_topics(self) -> set[str] | None:
        """Returns the topics to which the members subscribe.

        Returns None if the members are not consumers, or if a subscription cannot be decoded.
        """
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        try:
            rows = [subscribed_topics(member.metadata(self.protocol_name)) for member in self.members.values()]
        except ProtocolError:
            return None
        return {topic for topics in rows for topic in topics}

    def store(self) -> None:
        """Write the group to the offsets topic."""
        self._stored = Stored(self)


def subscribed_topics(metadata: bytes) -> Sequence[str]:
    """Returns the topics in the subscription that a consumer sent in JoinGroup.

    Raises ProtocolError if `metadata`, the encoded subscription, cannot be decoded.
    """
    if len(metadata) < 2:
        raise ProtocolError("the subscription has no version")
    subscription = decode(plan(ConsumerProtocolSubscription, 0, False), metadata, 2, allow_trailing=True)
    topics: Collection[str] = subscription.topics
    return list(topics)
