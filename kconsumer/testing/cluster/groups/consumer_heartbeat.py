"""Handles ConsumerGroupHeartbeat (KIP-848), with which members join, stay, leave, and change their subscriptions.

A heartbeat has three steps. First it adds or updates the member, and begins a new group epoch if a subscription has
changed. Then a target assignment is computed for a new group epoch. Last, the member advances towards its target
assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.consumer_group import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_join import CLIENT_HOST
from kconsumer.testing.cluster.groups.consumer_group import ConsumerGroup
from kconsumer.testing.cluster.groups.consumer_leave import fence, leave, require_static
from kconsumer.testing.cluster.groups.consumer_member import LEFT_STATIC_EPOCH, ConsumerMember
from kconsumer.testing.cluster.groups.coordinator import GroupHandlers
from kconsumer.testing.cluster.groups.migration import upgrade, validate_upgrade
from kconsumer.testing.cluster.groups.reconciliation import Owned
from kconsumer.testing.cluster.groups.topic_regexes import validate_regex
from kconsumer.testing.cluster.requests import GroupError, Request, handles

LEFT_EPOCHS = (-1, LEFT_STATIC_EPOCH)


class ConsumerHeartbeatHandler(GroupHandlers):
    """Handles ConsumerGroupHeartbeat."""

    @handles(CONSUMER_GROUP_HEARTBEAT)
    def _handle(self, request: Request, now: float) -> ConsumerGroupHeartbeatResponse:
        message = request.message
        try:
            check_request(message, request.version, self._coordinator.cluster.settings.group_consumer_assignors)
            self._coordinator.validate(message.group_id, request, now)
            if message.member_epoch in LEFT_EPOCHS:
                return self._leave(message, now)
            group = self._group(message.group_id, now, create=message.member_epoch == 0)
            response = self._heartbeat(group, request, now)
        except GroupError as error:
            return ConsumerGroupHeartbeatResponse(error_code=error.error, error_message=error.message)
        return response

    def _leave(self, message: Any, now: float) -> ConsumerGroupHeartbeatResponse:
        """Handle a heartbeat with which a member leaves. Raises GroupError if there is no such member."""
        group = self._coordinator.require(message.group_id)
        if not isinstance(group, ConsumerGroup):
            raise _other_type(message.group_id)
        member_id = leave(group, message.member_id, message.instance_id, message.member_epoch, now)
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=message.member_epoch)

    def _group(self, group_id: str, now: float, *, create: bool) -> ConsumerGroup:
        """Returns the group, or a new group if there is none and `create` is True. `_store` adds the new group.

        A new group also replaces a classic group, whose members it gets. Raises GroupError if the group is missing and
        `create` is False, or if a group of another type cannot be replaced.
        """
        group = self._coordinator.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None and not create:
            raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        new = ConsumerGroup(self._coordinator, group_id, fence)
        if group is None:
            return new
        if not create or not isinstance(group, ClassicGroup):
            raise _other_type(group_id)
        if not group.is_empty:
            validate_upgrade(group)
            upgrade(group, new)
        return new

    # --- a heartbeat of a member that joins or stays ---

    def _heartbeat(self, group: ConsumerGroup, request: Request, now: float) -> ConsumerGroupHeartbeatResponse:
        message = request.message
        self._check_size(group, message)
        before, replaced = self._find_member(group, message)
        updated = _update(before, request)
        known = group.regex_counts()
        regex_changed = updated.regex != before.regex
        if regex_changed and updated.regex and updated.regex not in known:
            validate_regex(updated.regex)
        names_changed = updated.topics != before.topics
        assignor = group.preferred_assignor(before, updated)
        assignor_changed = assignor != group.preferred_assignor()

        self._store(group, updated, replaced, now)
        resolved = regex_changed and (not updated.regex or group.regexes.is_resolved(updated.regex))
        self._update_regexes(group, before, updated, known, request.connection.principal, now)
        changed = names_changed or resolved or assignor_changed
        group.update_epoch(subscription_changed=changed)
        group.update_target(assignor, now)

        owned = _owned(message)
        group.reconcile(updated, owned, now, subscription_changed=names_changed or regex_changed)
        group.start_session(updated.id, now)
        member = group.members[updated.id]
        full = (
            message.rebalance_timeout_ms != UNSET_TIMEOUT
            and (message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None)
            and owned is not None
        )
        send_assignment = message.member_epoch == 0 or full or member.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=member.id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._coordinator.cluster.group_configs.value(
                group.id, "consumer.heartbeat.interval.ms"
            ),
            assignment=heartbeat_assignment(member.assigned) if send_assignment else None,
        )

    def _check_size(self, group: ConsumerGroup, message: Any) -> None:
        """Raise GroupError with GROUP_MAX_SIZE_REACHED if the sender is a new member and the group is full."""
        limit = self._coordinator.cluster.settings.group_consumer_max_size
        known = message.member_id in group.members or message.instance_id in group.static_members
        if len(group.members) >= limit and not known:
            raise GroupError(
                Errors.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def _find_member(self, group: ConsumerGroup, message: Any) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Returns the sender in its present state, and the static member that it replaces, or None.

        If the sender is not a member yet, the first is a new `ConsumerMember`. Raises GroupError if the member id, the
        instance id or the epoch is not valid.
        """
        joins = message.member_epoch == 0
        member_id = message.member_id or group.new_member_id()
        if message.instance_id is None:
            if joins and member_id not in group.members:
                return ConsumerMember(member_id), None
            member = group.member(member_id)
        elif joins:
            return _join_static(group, member_id, message.instance_id)
        else:
            member = require_static(group, member_id, message.instance_id)
        check_epoch(member, message.member_epoch, _owned(message))
        return member, None

    def _store(self, group: ConsumerGroup, member: ConsumerMember, replaced: ConsumerMember | None, now: float) -> None:
        """Store a member, which replaces the static member `replaced` if that is not None.

        If the group is new, adds it first, in place of a classic group with the same id.
        """
        old = self._coordinator.get(group.id)
        if old is not group:
            if isinstance(old, ClassicGroup):
                old.rebalance.stop(Errors.REBALANCE_IN_PROGRESS, now)
            self._coordinator.replace(group, now)
            for member_id in group.members:
                group.start_session(member_id, now)
        if replaced is None:
            group.put_member(member)
        else:
            group.replace_member(replaced, member)

    def _update_regexes(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        updated: ConsumerMember,
        known: dict[str, int],
        principal: str,
        now: float,
    ) -> None:
        """Start resolving the regular expressions of the group if `TopicRegexes.needs_refresh` returns True.

        Also removes the member's last expression if no member subscribes to it any more. `known`: how many members
        subscribed to each expression before this heartbeat.
        """
        subscribed = group.regex_counts()
        interval_ms = self._coordinator.cluster.settings.group_consumer_regex_refresh_interval_ms
        if not group.is_resolving and group.regexes.needs_refresh(
            len(subscribed),
            is_new=updated.regex != "" and updated.regex not in known,
            now=now,
            new_topics_version=self._coordinator.cluster.new_topics_version,
            interval_ms=interval_ms,
        ):
            group.resolve_regexes(principal)
        if before.regex and before.regex not in subscribed:
            group.regexes.remove(before.regex)


# --- members ---


def _join_static(
    group: ConsumerGroup, member_id: str, instance_id: str
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """Returns the static member that joins, and the member with its instance id that it replaces, or None.

    Raises GroupError with UNRELEASED_INSTANCE_ID if the member to be replaced uses the consumer protocol and has not
    left.
    """
    old = group.static_member(instance_id)
    if old is None:
        return group.members.get(member_id) or ConsumerMember(member_id), None
    if old.classic is None and old.epoch != LEFT_STATIC_EPOCH:
        raise GroupError(
            Errors.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.id} member.",
        )
    return old.successor(member_id), old


def _update(member: ConsumerMember, request: Request) -> ConsumerMember:
    """Returns a copy of a member with the values of a heartbeat. Fields that are null in the request are unchanged."""
    message = request.message
    updated = member.copy()
    changes: tuple[tuple[str, Any, Callable[[Any], Any]], ...] = (
        ("instance_id", message.instance_id, str),
        ("rack_id", message.rack_id, str),
        ("preferred_assignor", message.server_assignor, str),
        ("topics", message.subscribed_topic_names, frozenset),
        ("regex", message.subscribed_topic_regex, str),
    )
    for name, value, convert in changes:
        if value is not None:
            setattr(updated, name, convert(value))
    if message.rebalance_timeout_ms != UNSET_TIMEOUT:
        updated.rebalance_timeout_ms = message.rebalance_timeout_ms
    updated.client_id = request.client_id or ""
    updated.client_host = CLIENT_HOST
    updated.classic = None
    return updated


# --- partitions in messages ---


def _owned(message: Any) -> Owned:
    """Returns the partitions that a heartbeat reports as owned, by topic id, or None if the field is null."""
    if message.topic_partitions is None:
        return None
    owned: dict[bytes, list[int]] = {}
    for row in message.topic_partitions:
        owned.setdefault(row.topic_id, []).extend(row.partitions)
    return owned


def heartbeat_assignment(assigned: Mapping[bytes, Iterable[int]]) -> ConsumerGroupHeartbeatAssignment:
    """Returns the assignment of a member in the form of the response. `assigned`: its partitions by topic id."""
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(found))
            for topic_id, found in assigned.items()
        ]
    )


def _other_type(group_id: str) -> GroupError:
    return GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


UNSET_TIMEOUT = -1  # the rebalance timeout of a request that does not change it


def check_request(message: Any, version: int, assignors: tuple[str, ...]) -> None:
    """Raise GroupError if a field of a heartbeat is missing or not allowed with the others.

    The error is INVALID_REQUEST, or UNSUPPORTED_ASSIGNOR if the request names an assignor that is not in `assignors`.
    """
    epoch = message.member_epoch
    for invalid, text in (
        (not message.member_id and (version >= 1 or epoch > 0 or epoch == -1), "MemberId can't be empty."),
        (not message.group_id, "GroupId can't be empty."),
        (message.instance_id == "", "InstanceId can't be empty."),
        (message.rack_id == "", "RackId can't be empty."),
        (
            epoch == 0 and message.rebalance_timeout_ms == UNSET_TIMEOUT,
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (epoch == 0 and message.topic_partitions != [], "TopicPartitions must be empty when (re-)joining."),
        (
            epoch == 0 and message.subscribed_topic_names is None and message.subscribed_topic_regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        (epoch == LEFT_STATIC_EPOCH and message.instance_id is None, "InstanceId can't be null."),
        (epoch < LEFT_STATIC_EPOCH, "MemberEpoch is invalid."),
    ):
        if invalid:
            raise GroupError(Errors.INVALID_REQUEST, text)
    if message.server_assignor is not None and message.server_assignor not in assignors:
        raise GroupError(
            Errors.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {message.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    """Raise GroupError with FENCED_MEMBER_EPOCH if the epoch in a heartbeat is not valid.

    The present member epoch is valid, and so is 0, with which a member joins again. The previous member epoch is valid
    only if all partitions that the member reports as owned are still assigned to it: the response with the new epoch
    may have been lost.
    """
    if epoch in (0, member.epoch):
        return
    repeats = epoch == member.previous_epoch and owned is not None
    if epoch < member.epoch and repeats and _is_subset(owned or {}, member):
        return
    size = "greater" if epoch > member.epoch else "smaller"
    raise GroupError(
        Errors.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Mapping[bytes, Any], member: ConsumerMember) -> bool:
    """Returns whether all partitions that a member reports as owned are assigned to it."""
    return all(
        topic_id in member.assigned and all(partition in member.assigned[topic_id] for partition in partitions)
        for topic_id, partitions in owned.items()
    )
