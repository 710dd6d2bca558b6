"""Scenarios of the classic group protocol."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.admin import DESCRIBE_GROUPS, LIST_GROUPS
from kconsumer.schema.classic_group import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequestAssignment,
)
from kconsumer.schema.group_deletion import (
    DELETE_GROUPS,
    OFFSET_DELETE,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.scenarios.commits import commit, committed
from support.scenarios.scenario import Run, Ticket, scenarios


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """Returns an encoded subscription. Kafka 3.9 never responds to a JoinGroup of a consumer with other bytes."""
    names = [name.encode() for name in topics]
    rows = b"".join(len(name).to_bytes(2) + name for name in names)
    return bytes(2) + len(names).to_bytes(4) + rows + len(user_data).to_bytes(4) + user_data


RANGE = {"range": subscription()}
NEW = {"range": subscription(user_data=b"new")}


def join_fields(run: Run, **fields: Any) -> dict[str, Any]:
    """Returns the fields of a JoinGroup request. `protocols`: metadata by name."""
    protocols = fields.pop("protocols", RANGE)
    return {
        "group_id": run.name("g"),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
        **fields,
    }


def join(run: Run, version: int = 3, **fields: Any) -> Any:
    """Record the response to JoinGroup."""
    client = fields.pop("client", "test")
    return run.call(JOIN_GROUP, version, client=client, **join_fields(run, **fields))


def send_join(run: Run, client: str, version: int = 3, **fields: Any) -> Ticket:
    """Send a JoinGroup request that waits for other members."""
    return run.send(JOIN_GROUP, version, client=client, **join_fields(run, **fields))


def sync_fields(run: Run, joined: Any, **fields: Any) -> dict[str, Any]:
    """Returns the fields of a SyncGroup request. `assign`: assignments by member id."""
    assigned = fields.pop("assign", {joined.member_id: b"everything"} if joined.leader == joined.member_id else {})
    return {
        "group_id": run.name("g"),
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in assigned.items()],
        **fields,
    }


def sync(run: Run, joined: Any, version: int = 3, **fields: Any) -> Any:
    """Record the response to SyncGroup."""
    client = fields.pop("client", "test")
    return run.call(SYNC_GROUP, version, client=client, **sync_fields(run, joined, **fields))


def heartbeat(run: Run, joined: Any, version: int = 3, **fields: Any) -> Any:
    """Record the response to Heartbeat."""
    known = {"group_id": run.name("g"), "generation_id": joined.generation_id, "member_id": joined.member_id}
    return run.call(HEARTBEAT, version, **{**known, **fields})


def leave(run: Run, member_id: str, version: int = 2, instance: str | None = None, **fields: Any) -> Any:
    """Record the response to LeaveGroup."""
    members = [MemberIdentity(member_id=member_id, group_instance_id=instance)]
    return run.call(
        LEAVE_GROUP, version, **{"group_id": run.name("g"), "member_id": member_id, "members": members, **fields}
    )


def describe(run: Run, version: int = 5, *groups: str) -> Any:
    """Record the description of groups."""
    return run.call(DESCRIBE_GROUPS, version, groups=list(groups) or [run.name("g")])


def stable(run: Run, **fields: Any) -> Any:
    """Record how one member joins and gets its assignment. Returns the response to JoinGroup."""
    joined = join(run, **fields)
    sync(run, joined)
    return joined


@scenarios(JOIN_GROUP)
def member_id_required(run: Run, version: int) -> None:
    """Since v4 a new member first gets its id."""
    joined = join(run, version)
    if version >= 4:
        joined = join(run, version, member_id=joined.member_id)
    describe(run)
    sync(run, joined)
    describe(run)


@scenarios(SYNC_GROUP)
def sync_versions(run: Run, version: int) -> None:
    """The leader assigns; a second SyncGroup gets the assignment again."""
    joined = join(run)
    fields = {"protocol_type": "consumer", "protocol_name": "range"}
    sync(run, joined, version, **fields)
    sync(run, joined, version, assign={}, **fields)


@scenarios(HEARTBEAT)
def heartbeats(run: Run, version: int) -> None:
    """Heartbeats of a stable member, of another generation and of an unknown member."""
    joined = stable(run)
    heartbeat(run, joined, version)
    heartbeat(run, joined, version, generation_id=7)
    heartbeat(run, joined, version, generation_id=0)
    heartbeat(run, joined, version, member_id="stranger")
    heartbeat(run, joined, version, member_id="")
    heartbeat(run, joined, version, group_id=run.name("none"))
    heartbeat(run, joined, version, group_id="")


@scenarios(LEAVE_GROUP)
def leaving(run: Run, version: int) -> None:
    """The last member leaves; it is unknown then."""
    joined = stable(run)
    leave(run, joined.member_id, version)
    describe(run)
    leave(run, joined.member_id, version)
    leave(run, joined.member_id, version, group_id=run.name("none"))
    leave(run, joined.member_id, version, group_id="")


@scenarios(LEAVE_GROUP, versions=[3, 5])
def leaving_together(run: Run, version: int) -> None:
    """A request removes a member, an unknown one and an unknown static one."""
    joined = stable(run)
    members = [
        MemberIdentity(member_id="stranger"),
        MemberIdentity(member_id=joined.member_id, reason="because"),
        MemberIdentity(member_id="", group_instance_id="i"),
    ]
    run.call(LEAVE_GROUP, version, group_id=run.name("g"), members=members)
    run.call(LEAVE_GROUP, version, group_id=run.name("g"), members=[])


@scenarios(JOIN_GROUP, versions=[0, 3, 5, 9])
def unknown_member(run: Run, version: int) -> None:
    """A member id that the group does not know, of a group that exists or does not."""
    join(run, version, member_id="stranger")
    stable(run)
    join(run, version, member_id="stranger")


@scenarios(JOIN_GROUP, versions=[0, 3, 5, 9], cases={"short": 999, "shortest": 1000, "long": 1_800_001, "zero": 0})
def session_timeout(run: Run, version: int, timeout: int) -> None:
    """The limits of the session timeout."""
    joined = join(run, version, session_timeout_ms=timeout)
    if version >= 4 and joined.member_id:
        join(run, version, session_timeout_ms=timeout, member_id=joined.member_id)


@scenarios(JOIN_GROUP, versions=[0, 3, 7])
def invalid_group(run: Run, version: int) -> None:
    """A group without a name."""
    join(run, version, group_id="")


@scenarios(JOIN_GROUP, versions=[0, 3, 9], cases=["no-protocols", "no-type"])
def inconsistent(run: Run, version: int, case: str) -> None:
    """A member without protocols or without a protocol type."""
    fields: dict[str, Any] = {"protocols": {}} if case == "no-protocols" else {"protocol_type": ""}
    joined = join(run, version, **fields)
    if version >= 4 and joined.member_id:
        join(run, version, member_id=joined.member_id, **fields)


@scenarios(JOIN_GROUP, versions=[0, 3, 7], cases=["name", "type"])
def other_protocol(run: Run, version: int, what: str) -> None:
    """A second member has no protocol in common with the first one, or another protocol type."""
    stable(run)
    fields: dict[str, Any] = (
        {"protocols": {"other": subscription()}} if what == "name" else {"protocol_type": "connect"}
    )
    join(run, version, client="second", **fields)
    describe(run)


@scenarios(SYNC_GROUP, versions=[0, 3, 5])
def wrong_sync(run: Run, version: int) -> None:
    """SyncGroup of another generation, of a stranger and in a group that does not exist."""
    joined = join(run)
    sync(run, joined, version, generation_id=9)
    sync(run, joined, version, member_id="stranger")
    sync(run, joined, version, group_id=run.name("none"))
    sync(run, joined, version, group_id="")


@scenarios(
    SYNC_GROUP, versions=[5], cases={"type": ("connect", "range"), "name": ("consumer", "other"), "null": (None, None)}
)
def protocol_of_sync(run: Run, version: int, protocol: tuple[str | None, str | None]) -> None:
    """Since v5 SyncGroup says the protocol."""
    joined = join(run)
    sync(run, joined, version, protocol_type=protocol[0], protocol_name=protocol[1])


def two_members(run: Run, version: int = 3, **fields: Any) -> tuple[Any, Any]:
    """Record how a second member joins a stable group. Returns the responses to JoinGroup of both."""
    first = stable(run, **fields)
    ticket = send_join(run, "second", version, **fields)
    run.waits(ticket)
    heartbeat(run, first)
    first = join(run, version, member_id=first.member_id, **fields)
    return first, run.receive(ticket)


@scenarios(JOIN_GROUP, versions=[0, 1, 2, 3])
def second_member(run: Run, version: int) -> None:
    """A second member joins: the first one must rejoin, and remains the leader, who gets the list of members."""
    first, second = two_members(run, version)
    ticket = run.send(SYNC_GROUP, 3, client="second", **sync_fields(run, second))
    run.waits(ticket)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    run.receive(ticket)
    describe(run)
    heartbeat(run, first)
    heartbeat(run, second)


@scenarios()
def second_member_syncs_before(run: Run) -> None:
    """Heartbeats while the leader has not assigned; the follower gets nothing if the leader assigns nothing."""
    first, second = two_members(run)
    heartbeat(run, first)
    heartbeat(run, second)
    sync(run, first, assign={first.member_id: b"one"})
    sync(run, second)


@scenarios()
def leader_leaves(run: Run) -> None:
    """When the leader leaves, the other member becomes the leader."""
    first, second = two_members(run)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    sync(run, second)
    leave(run, first.member_id)
    heartbeat(run, second)
    second = join(run, member_id=second.member_id)
    sync(run, second)
    describe(run)


@scenarios()
def leaves_while_joining(run: Run) -> None:
    """A member leaves, over another connection, while its JoinGroup waits: JoinGroup gets UNKNOWN_MEMBER_ID."""
    first, second = two_members(run)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    sync(run, second)
    ticket = send_join(run, "second", member_id=second.member_id, protocols=NEW)
    run.waits(ticket)
    leave(run, second.member_id)
    run.receive(ticket)


@scenarios()
def leaves_while_syncing(run: Run) -> None:
    """A member leaves, over another connection, while its SyncGroup waits: no response follows, even when the other
    member has got its assignment.
    """
    first, second = two_members(run)
    ticket = run.send(SYNC_GROUP, 3, client="second", **sync_fields(run, second))
    run.waits(ticket)
    leave(run, second.member_id)
    heartbeat(run, first)
    first = join(run, member_id=first.member_id)
    sync(run, first)
    heartbeat(run, first)
    run.sleep(500)
    run.waits(ticket)


@scenarios()
def member_dies(run: Run) -> None:
    """A member without heartbeats is removed after the session timeout; the others rejoin."""
    first = stable(run, session_timeout_ms=1000)
    run.sleep(2500)
    heartbeat(run, first)
    describe(run)


@scenarios()
def rebalance_timeout(run: Run) -> None:
    """A member that does not rejoin within the rebalance timeout is removed."""
    first = join(run, rebalance_timeout_ms=1000)
    sync(run, first)
    ticket = send_join(run, "second", rebalance_timeout_ms=1000)
    run.receive(ticket)
    heartbeat(run, first)


@scenarios()
def follower_rejoins(run: Run) -> None:
    """A follower that rejoins with the same protocols gets the present generation; a leader starts a rebalance."""
    first, second = two_members(run)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    sync(run, second)
    join(run, member_id=second.member_id)
    heartbeat(run, first)
    ticket = send_join(run, "first", member_id=first.member_id)
    run.waits(ticket)
    heartbeat(run, second)
    join(run, member_id=second.member_id, client="other")
    run.receive(ticket)


@scenarios()
def new_metadata(run: Run) -> None:
    """A follower that rejoins with other metadata starts a rebalance."""
    first, second = two_members(run)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    sync(run, second)
    ticket = send_join(run, "second", member_id=second.member_id, protocols=NEW)
    run.waits(ticket)
    heartbeat(run, first)
    join(run, member_id=first.member_id)
    run.receive(ticket)


@scenarios()
def chosen_protocol(run: Run) -> None:
    """The protocol that all members have, and most of them prefer, is chosen."""
    both = {"range": subscription(), "sticky": subscription(user_data=b"s")}
    first = join(run, protocols=both)
    sync(run, first)
    ticket = send_join(run, "second", protocols={"sticky": subscription(), "other": subscription()})
    join(run, member_id=first.member_id, protocols=both)
    run.receive(ticket)


@scenarios()
def join_while_syncing(run: Run) -> None:
    """A member joins while the others wait for the assignment: SyncGroup gets REBALANCE_IN_PROGRESS."""
    first, second = two_members(run)
    sync_ticket = run.send(SYNC_GROUP, 3, client="second", **sync_fields(run, second))
    run.waits(sync_ticket)
    ticket = send_join(run, "third")
    run.receive(sync_ticket)
    again = [
        send_join(run, client, member_id=member.member_id) for client, member in (("first", first), ("second", second))
    ]
    for waiting in (*again, ticket):
        run.receive(waiting)


@scenarios()
def commit_of_members(run: Run) -> None:
    """Commits of a member, of another generation, of a stranger and without a member to a stable group."""
    topic = run.topic()
    joined = stable(run)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    for version in (2, 7, 9):
        commit(run, version, topic, **member)
        commit(run, version, topic, **{**member, "generation_id_or_member_epoch": 0})
        commit(run, version, topic, **{**member, "generation_id_or_member_epoch": -1})
        commit(run, version, topic, **{**member, "member_id": "stranger"})
        commit(run, version, topic)
    committed(run, 7, {topic: [0]})


@scenarios()
def commit_in_a_rebalance(run: Run) -> None:
    """A commit while a rebalance is prepared succeeds; one before the assignment gets REBALANCE_IN_PROGRESS."""
    topic = run.topic()
    first = stable(run)
    ticket = send_join(run, "second")
    member = {"member_id": first.member_id, "generation_id_or_member_epoch": first.generation_id}
    commit(run, 8, topic, **member)
    first = join(run, member_id=first.member_id)
    run.receive(ticket)
    commit(run, 8, topic, **{**member, "generation_id_or_member_epoch": first.generation_id})


# --- static members -----------------------------------------------------------------------------------------


@scenarios(JOIN_GROUP, versions=[5, 7, 9])
def static_member(run: Run, version: int) -> None:
    """A static member needs no second request. When it returns, it gets a new id and the same generation."""
    joined = join(run, version, group_instance_id="i")
    sync(run, joined)
    again = join(run, version, group_instance_id="i", client="again")
    heartbeat(run, joined, group_instance_id="i")
    heartbeat(run, again, group_instance_id="i")
    sync(run, again, assign={})
    describe(run)


@scenarios()
def fenced(run: Run) -> None:
    """Requests of a static member that was replaced are fenced."""
    topic = run.topic()
    joined = join(run, 5, group_instance_id="i")
    sync(run, joined)
    again = join(run, 5, group_instance_id="i", client="again")
    join(run, 5, group_instance_id="i", member_id=joined.member_id)
    sync(run, joined, group_instance_id="i")
    member = {"generation_id_or_member_epoch": joined.generation_id, "group_instance_id": "i"}
    commit(run, 7, topic, member_id=joined.member_id, **member)
    commit(run, 7, topic, member_id=again.member_id, **member)
    leave(run, joined.member_id, 3, "i")
    heartbeat(run, again, group_instance_id="other")
    leave(run, "", 3, "i")
    describe(run)


@scenarios()
def static_with_new_metadata(run: Run) -> None:
    """A static member that returns with another protocol starts a rebalance."""
    joined = join(run, 5, group_instance_id="i")
    sync(run, joined)
    again = join(run, 5, group_instance_id="i", protocols=NEW, client="again")
    sync(run, again)


@scenarios()
def two_static_members(run: Run) -> None:
    """Two static members; the leader returns and gets the members without a rebalance."""
    first = join(run, 9, group_instance_id="i")
    sync(run, first)
    ticket = send_join(run, "second", 9, group_instance_id="j")
    first = join(run, 9, group_instance_id="i", member_id=first.member_id)
    second = run.receive(ticket)
    sync(run, first, assign={first.member_id: b"one", second.member_id: b"two"})
    sync(run, second)
    join(run, 9, group_instance_id="i", client="again")
    heartbeat(run, second, group_instance_id="j")
    describe(run)


# --- administration of groups -------------------------------------------------------------------------------


@scenarios(DESCRIBE_GROUPS)
def describing(run: Run, version: int) -> None:
    """A stable group, one with offsets only, and one that does not exist."""
    stable(run)
    commit(run, 8, run.topic(), group_id=run.name("h"))
    describe(run, version, run.name("g"), run.name("h"), run.name("none"))


@scenarios(DESCRIBE_GROUPS, versions=[3, 5])
def operations_of_groups(run: Run, version: int) -> None:
    """What the client may do with a group, if it wants to know."""
    commit(run, 8, run.topic())
    groups = [run.name("g"), run.name("none")]
    run.call(DESCRIBE_GROUPS, version, groups=groups, include_authorized_operations=True)


@scenarios(LIST_GROUPS)
def listing(run: Run, version: int) -> None:
    """The groups of a broker."""
    stable(run)
    commit(run, 8, run.topic(), group_id=run.name("h"))
    _listed(run, version)


FILTERS = {
    "empty": (["Empty"], []),
    "stable": (["Stable"], []),
    "small-letters": (["stable"], []),
    "two": (["Dead", "Stable"], []),
    "unknown": (["Nonsense"], []),
    "classic": ([], ["classic"]),
    "consumer": ([], ["consumer"]),
    "unknown-type": ([], ["nonsense"]),
}


@scenarios(LIST_GROUPS, versions=[4, 5], cases=FILTERS)
def listing_by_state(run: Run, version: int, filters: tuple[list[str], list[str]]) -> None:
    """The groups in some states and of some types."""
    stable(run)
    commit(run, 8, run.topic(), group_id=run.name("h"))
    _listed(run, version, states_filter=filters[0], types_filter=filters[1])


def _listed(run: Run, version: int, **fields: Any) -> None:
    """Record the error code of ListGroups, and the groups of this scenario."""
    response = run.prepare(LIST_GROUPS, version, **fields)
    groups = sorted(
        (row.group_id.removeprefix(run.prefix), row.protocol_type, row.group_state, row.group_type)
        for row in response.groups
        if row.group_id.startswith(run.prefix)
    )
    run.note(f"ListGroups v{version}", (response.error_code, groups))


@scenarios(DELETE_GROUPS)
def deleting(run: Run, version: int) -> None:
    """An empty group, one with members and one that does not exist are deleted."""
    topic = run.topic()
    stable(run)
    commit(run, 8, topic, group_id=run.name("h"))
    names = [run.name("h"), run.name("g"), run.name("none")]
    for name in names:
        run.call(DELETE_GROUPS, version, groups_names=[name])
    committed(run, 7, {topic: [0]}, group_id=run.name("h"))
    describe(run, 5, run.name("h"))


@scenarios()
def offsets_of_subscribed_topics(run: Run) -> None:
    """Committed offsets of a topic to which a member subscribes are not deleted."""
    topic, other = run.topic("t"), run.topic("o")
    joined = join(run, 5, group_instance_id="i", protocols={"range": subscription(topic)})
    member = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    run.prepare(SYNC_GROUP, 3, **sync_fields(run, joined))
    for name in (topic, other):
        commit(run, 7, name, **member)
    rows = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in (topic, other)
    ]
    run.call(OFFSET_DELETE, 0, group_id=run.name("g"), topics=rows)
    committed(run, 7, {topic: [0], other: [0]})
