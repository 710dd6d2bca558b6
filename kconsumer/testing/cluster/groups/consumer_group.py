"""The state of a group of the consumer protocol (KIP-848): members, epochs, target assignment, ownership.

Decides who may commit and fetch offsets, and who owns a partition. `consumer_heartbeat.py` handles heartbeats, and
`consumer_leave.py` removes members. All of the state is stored in the offsets topic, so it survives a move of the
coordinator. Only the timers start again.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.groups.consumer_member import UNREVOKED_PARTITIONS, ConsumerMember
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.groups.reconciliation import Owned, Reconciliation
from kconsumer.testing.cluster.groups.server_assignors import ASSIGNORS, AssignorMember, Partitions
from kconsumer.testing.cluster.groups.server_group import ServerGroup
from kconsumer.testing.cluster.groups.topic_regexes import TopicRegexes
from kconsumer.testing.cluster.offset_store import CommittedOffset
from kconsumer.testing.cluster.requests import GroupError
from kconsumer.testing.cluster.timers import NO_TIMER, Timer
from kconsumer.testing.cluster.topic import Topic


def subscribed_names(member: ConsumerMember, regexes: TopicRegexes) -> list[str]:
    """Returns the names of the topics to which a member subscribes, by name or by its regular expression."""
    return sorted(member.topics | (regexes.topics(member.regex) if member.regex else set()))


def compute_target(
    topics: Mapping[str, Topic],
    members: list[ConsumerMember],
    target: Mapping[str, Partitions],
    regexes: TopicRegexes,
    assignor: str,
) -> dict[str, Partitions]:
    """Returns the new target assignment by member id.

    `topics`: all topics by name. `target`: the present target assignment.
    """
    counts: dict[bytes, int] = {}
    rows = []
    for member in members:
        found = [topics[name] for name in subscribed_names(member, regexes) if name in topics]
        counts.update((topic.id, len(topic.partitions)) for topic in found)
        topic_ids = [topic.id for topic in found]
        rows.append(AssignorMember(member.id, member.instance_id, topic_ids, target.get(member.id, {})))
    return ASSIGNORS[assignor](rows, counts)


EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
MIN_COMMIT_VERSION = 9  # of OffsetCommit, for members that use the consumer protocol


#: Removes members of a group: group, members and the time.
Fence = Callable[["ConsumerGroup", list[ConsumerMember], float], None]


class ConsumerGroup(ServerGroup[ConsumerMember]):
    """A group whose members send ConsumerGroupHeartbeat."""

    type = "consumer"
    protocol_type = "consumer"

    def __init__(self, coordinator: GroupCoordinator, group_id: str, fence: Fence) -> None:
        super().__init__(coordinator, group_id)
        self._fence = fence  # removes members whose timers have expired
        self.static_members: dict[str, str] = {}  # member ids by instance id
        self.regexes = TopicRegexes()
        # How many members prefer each assignor, and how many subscribe to each regular expression and to each topic.
        # Each heartbeat or join needs these numbers. If it counted all members, those of a group would take quadratic
        # time.
        self._preferences: Counter[str] = Counter()
        self._regex_counts: Counter[str] = Counter()
        self._topic_counts: Counter[str] = Counter()
        self._owners: dict[tuple[bytes, int], str] = {}  # member ids
        self._resolving: Timer = NO_TIMER  # active while regular expressions are being resolved

    # --- members ---

    def new_member_id(self) -> str:
        """Returns a new member id as Kafka generates it: 16 random bytes in URL-safe base64."""
        return base64.urlsafe_b64encode(self.coordinator.cluster.random.randbytes(16)).decode().rstrip("=")

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Returns the member with an instance id, or None if there is none."""
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member, or replace the state of the member with the same id."""
        old = self.members.get(member.id)
        if old is not None:
            self._release(old)
            self._count(old, -1)
        self.members[member.id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        for owned in member.owned():
            self._owners[owned] = member.id

    def remove_member(self, member: ConsumerMember) -> None:
        """Remove a member with its target assignment, and cancel its timers."""
        member.cancel_timers()
        self._release(member)
        self._count(self.members.pop(member.id), -1)
        self.target.pop(member.id, None)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.id:
            del self.static_members[member.instance_id]

    def replace_member(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Replace the static member `old` by `new`, which gets the target assignment of `old`."""
        target = self.target.get(old.id, {})
        self.remove_member(old)
        self.put_member(new)
        self.target[new.id] = target

    def _release(self, member: ConsumerMember) -> None:
        """Remove a member from the owners of its partitions."""
        for owned in member.owned():
            if self._owners.get(owned) == member.id:
                del self._owners[owned]

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Add `change` to the counts of the member's preferred assignor, its regular expression and its topics."""
        for counts, keys in (
            (self._preferences, [member.preferred_assignor]),
            (self._regex_counts, [member.regex]),
            (self._topic_counts, member.topics),
        ):
            for key in filter(None, keys):
                counts[key] += change
                if not counts[key]:
                    del counts[key]

    def begin_at(self, epoch: int) -> None:
        """Set the group epoch and the target's epoch to `epoch`.

        `epoch` is the generation of the classic group that was upgraded to this group.
        """
        self.epoch = self.target_epoch = epoch

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """Returns whether a partition of a member's target assignment is not assigned to it, but still has an owner."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self._owners
            for topic_id, partitions in self.target.get(member.id, {}).items()
            for partition in partitions
        )

    # --- subscriptions ---

    def regex_counts(self) -> dict[str, int]:
        """Returns how many members subscribe to each regular expression."""
        return dict(self._regex_counts)

    def preferred_assignor(self, before: ConsumerMember | None = None, updated: ConsumerMember | None = None) -> str:
        """Returns the assignor that most members prefer, or the broker's first one if no member has a preference.

        `before` and `updated`: the old and the new state of a member that is about to be updated. If several assignors
        are preferred equally often, returns the first of them by name. Kafka's choice depends on a hash map.
        """
        counts = Counter(self._preferences)
        if before is not None and updated is not None:
            counts[before.preferred_assignor or ""] -= 1
            counts[updated.preferred_assignor or ""] += 1
        del counts[""]
        names = sorted(name for name, count in counts.items() if count > 0)
        default = self.coordinator.cluster.settings.group_consumer_assignors[0]
        return max(names, key=counts.__getitem__, default=default)

    def _subscribed_names(self) -> set[str]:
        """Returns the topics to which members subscribe, by name or by a regular expression."""
        return set(self._topic_counts).union(*map(self.regexes.topics, self._regex_counts))

    def resolve_regexes(self, principal: str) -> None:
        """Start a timer that resolves the regular expressions as soon as the timers run.

        Does nothing if this timer was started already. `principal`: the user of the client that sent the heartbeat.
        Only topics that this user may describe match.
        """
        if not self._resolving.active:
            self._resolving = self.coordinator.cluster.timers.soon(lambda now: self._resolve(principal, now))

    @property
    def is_resolving(self) -> bool:
        """True while regular expressions are being resolved."""
        return self._resolving.active

    def _resolve(self, principal: str, now: float) -> None:
        """Resolve the regular expressions, and increase the group epoch if the matching topics have changed."""
        cluster = self.coordinator.cluster
        topics: Iterable[str] = cluster.topics
        if cluster.acls.enabled:
            topics = [name for name in topics if cluster.acls.allows(principal, "DESCRIBE", TOPIC, name)]
        version = self.coordinator.cluster.topics_version
        changed = self.regexes.resolve(self.regex_counts(), topics, now, version)
        self._topics_version = -1
        self.update_epoch(subscription_changed=changed)

    # --- the target assignment ---

    def update_target(self, assignor: str, now: float) -> None:
        """Compute a new target assignment for a new group epoch.

        Does nothing if the target assignment has the group epoch already, or if it was computed less than
        `consumer.assignment.interval.ms` ago.
        """
        interval_ms = self.coordinator.cluster.group_configs.value(self.id, "consumer.assignment.interval.ms")
        if not self._must_assign(interval_ms, now):
            return
        topics = self.coordinator.cluster.topics
        self.target = compute_target(topics, list(self.members.values()), self.target, self.regexes, assignor)
        self.target_epoch = self.epoch
        self.assigned_at = now

    def reconcile(self, before: ConsumerMember, owned: Owned, now: float, *, subscription_changed: bool) -> None:
        """Advance a member by one step towards its target assignment, and store its new state.

        Does nothing if the member has reached its target assignment and `subscription_changed` is False. `before`: the
        stored state of the member. `owned`: the partitions that the member reports as owned.
        """
        if before.is_reconciled_to(self.target_epoch) and not subscription_changed:
            return
        member = before.copy()
        topics = self.coordinator.cluster.topics
        subscribed = {topics[name].id for name in subscribed_names(member, self.regexes) if name in topics}
        Reconciliation(
            member,
            target_epoch=self.target_epoch,
            target=self.target.get(member.id, {}),
            subscribed=subscribed,
            owned=owned,
            is_released=lambda topic_id, partition: (topic_id, partition) not in self._owners,
        ).run(subscription_changed=subscription_changed)
        if member != before:
            self.put_member(member)
            self._update_rebalance_timer(member, now)

    # --- timers ---

    def start_session(self, member_id: str, now: float) -> None:
        """Restart the session timer of a member. When the timer expires, the member is removed."""
        member = self.members[member_id]
        member.session.cancel()
        timeout_ms = self.coordinator.cluster.group_configs.value(self.id, "consumer.session.timeout.ms")
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        member.session = self.coordinator.cluster.timers.add(now + timeout_ms, lambda at: self._expire(member_id, at))

    def _expire(self, member_id: str, now: float) -> None:
        """Remove a member whose session has expired."""
        self._fence(self, [self.members[member_id]], now)

    def _update_rebalance_timer(self, member: ConsumerMember, now: float) -> None:
        """Cancel the rebalance timer of a member. If the member has to revoke partitions, start a new one.

        When the timer expires, the member is removed if its epoch is still the same.
        """
        member.rebalance.cancel()
        if member.state == UNREVOKED_PARTITIONS and member.classic is None:
            epoch = member.epoch

            def fence_unless_advanced(at: float) -> None:
                present = self.members.get(member.id)
                if present is not None and present.epoch == epoch:
                    self._fence(self, [present], at)

            deadline = now + member.rebalance_timeout_ms
            member.rebalance = self.coordinator.cluster.timers.add(deadline, fence_unless_advanced)

    # --- the interface of groups ---

    @property
    def state_name(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target_epoch:
            return ASSIGNING
        reconciled = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return STABLE if reconciled else RECONCILING

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Raise GroupError if the sender must not commit offsets.

        The sender must be a member, and `epoch` must not be newer than its member epoch. A sender without an epoch may
        commit if the group is empty, or in a transaction if it has no member id. Members of the consumer protocol need
        OffsetCommit version 9.
        """
        if epoch < 0 and not self.members:
            return
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not transactional and member.classic is None and version < MIN_COMMIT_VERSION:
            raise GroupError(Errors.UNSUPPORTED_VERSION)
        if epoch > member.epoch:
            raise GroupError(_epoch_error(member))

    def validate_commit_partition(self, member_id: str, epoch: int, topic: str, partition: int) -> None:
        """Raise GroupError if a request has an old epoch in which the member did not have the partition.

        `epoch` is the member epoch in the request.
        """
        member = self.members.get(member_id)
        if member is None or epoch == member.epoch:
            return
        found = self.coordinator.cluster.topics.get(topic)
        assigned = None if found is None else member.assignment_epoch(found.id, partition)
        if assigned is None or epoch < assigned:
            raise GroupError(_epoch_error(member))

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise GroupError if a member is unknown or sends another epoch than its own.

        Clients that are not members (`member_id` is None) may fetch offsets if they send no epoch.
        """
        if member_id is None:
            if epoch >= 0:
                raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
            return
        member = self.member(member_id)
        if epoch != member.epoch:
            raise GroupError(_epoch_error(member))

    def validate_offset_delete(self) -> None:
        """Do nothing. The coordinator rejects the offsets of subscribed topics one by one."""

    def retention_start(self, offset: CommittedOffset) -> int | None:
        """Returns when an offset was committed (wall-clock ms), because its retention time begins then."""
        return offset.commit_ms

    def on_loaded(self, now: float) -> bool:
        """Start the timers of all members again. All other state is kept. Returns True."""
        self._topics_version = -1
        for member in list(self.members.values()):
            self.start_session(member.id, now)
            if member.state == UNREVOKED_PARTITIONS:
                self._update_rebalance_timer(member, now)
        return True

    def close(self, now: float) -> None:
        self._resolving.cancel()
        for member in self.members.values():
            member.cancel_timers()


def _epoch_error(member: ConsumerMember) -> int:
    """Returns the error code for a member that sends an invalid epoch.

    This is ILLEGAL_GENERATION if the member uses the classic protocol, and STALE_MEMBER_EPOCH if it does not.
    """
    return Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION
