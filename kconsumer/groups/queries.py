"""GroupQueries: operations that query and change groups without joining them, for clients that block and clients that
await (see `engine/waiting.py`).

An operation checks its arguments when it starts, and may have several requests in flight at once. This module also
computes the values that need several responses, such as the lag.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kconsumer._client.offset_arguments import offsets_to_commit, timestamp
from kconsumer._common.error_codes import Errors
from kconsumer._core.decode import PartitionFetch
from kconsumer._core.lock import Timer
from kconsumer._internal.managers import Promise, Reply
from kconsumer.config.option_groups import RetryConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.waiting import Operation
from kconsumer.errors import GroupError, KafkaError, error_for
from kconsumer.fetching.session import LAST_VERSION_WITH_NAMES
from kconsumer.groups.administration import (
    DELETION,
    POSITIONS,
    config_change,
    config_query,
    group_listing,
    offset_commit,
    offset_deletion,
    removal,
    share_offset_change,
    share_offset_deletion,
    subscription_listing,
)
from kconsumer.groups.arguments import (
    SPECIAL_TIMES,
    STATES,
    TYPES,
    Configs,
    NewOffsets,
    Time,
    TopicOrPartition,
    canonical_names,
    refuse_text,
    topics_and_partitions,
)
from kconsumer.groups.manager import DESCRIPTIONS, GroupsManager, QueryKind
from kconsumer.groups.responses import GroupPosition
from kconsumer.groups.transactions import (
    OpenProducer,
    descriptions,
    open_producers,
    open_transaction,
    transactional_ids,
)
from kconsumer.groups.types import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    OpenTransaction,
)
from kconsumer.offsets.list_offsets import EARLIEST, LATEST, OffsetTable
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchPartitionData, FetchRequest, FetchTopic
from kconsumer.schema.telemetry import CLIENT_METRICS
from kconsumer.types import TopicPartition

#: Limits of a response. A broker returns at least one whole batch, and that usually contains the record. A batch may
#: have no record to return, like those that end transactions; many such batches fit into the next response.
FIRST_BYTES, NEXT_BYTES = 1, 1 << 20


class FirstRecord(NamedTuple):
    """What a response contains."""

    timestamp: int | None  #: of the first record (ms since 1970); None if there is none, or if it is unknown
    next_offset: int  #: the first offset that was not read; the requested one if the response cannot be used


def first_record(tp: TopicPartition, offset: int, max_bytes: int, read_committed: bool) -> QueryKind:
    row = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    message = FetchRequest(
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=[FetchTopic(topic=tp.topic, partitions=[row])],
    )
    return QueryKind(
        FETCH,
        lambda _: message,
        lambda reply: _parse(tp, offset, read_committed, reply),
        max_version=LAST_VERSION_WITH_NAMES,
    )


def _parse(tp: TopicPartition, offset: int, read_committed: bool, reply: Reply) -> FirstRecord:
    """Returns the first record. An error of the partition, or corrupt bytes, make it unknown."""
    rows: Iterable[FetchPartitionData] = [row for topic in reply.message.responses for row in topic.partitions]
    for row in rows:
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        fetch = PartitionFetch(tp, row.records, offset, read_committed=read_committed, aborted_transactions=aborted)
        try:
            while not fetch.exhausted:
                for record in fetch.take(1):
                    return FirstRecord(record.timestamp if record.timestamp >= 0 else None, offset)
        except KafkaError:
            break
        return FirstRecord(None, fetch.next_offset)
    return FirstRecord(None, offset)


K = TypeVar("K", bound=Hashable)
Place = tuple[TopicPartition, int]  # an offset in a partition


class GroupQueries:
    """The queries and changes of one engine. The engine's runner drives the operations of this class."""

    def __init__(self, engine: Engine) -> None:
        parts = engine.components
        self._components = parts
        self._operations = engine.operations
        self._groups = GroupsManager(parts.config.select(RetryConfig), parts.metadata)
        parts.managers.append(self._groups)
        parts.telemetry.end()  # this client is no consumer

    def _timer(self) -> Timer:
        return Timer(self._components.clock, float(self._components.config.default_api_timeout_ms))

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> Operation[list[GroupListing]]:
        """Returns the groups of all brokers, sorted by name.

        The result contains only groups with one of `states` and one of `types`. No names exclude no group.
        """
        wanted = canonical_names(states, STATES, "state"), canonical_names(types, TYPES, "type")
        timer = self._timer()
        with self._components.changing():
            metadata = self._components.metadata.refresh()
        yield from self._operations.result(metadata, timer, "fetching metadata")
        with self._components.changing():
            brokers = self._components.cluster.nodes
            kind = group_listing(*wanted)
            promises = [self._groups.request(kind, timer.deadline, node=broker) for broker in brokers]
        found: dict[str, GroupListing] = {}
        try:
            for promise in promises:
                listings = yield from self._operations.result(promise, timer, "listing groups")
                for listing in listings:
                    found.setdefault(listing.group_id, listing)  # while a group moves, two brokers may list it
        finally:
            self._abandon(promises)
        return [found[group_id] for group_id in sorted(found)]

    def describe_group(self, group: str) -> Operation[GroupDescription]:
        """Returns the description of a classic, consumer or share group."""
        timer = self._timer()
        with self._components.changing():
            promise = self._groups.describe(group, timer.deadline)
        return (yield from self._operations.result(promise, timer, f"describing group {group!r}"))

    def describe_all(self, states: Iterable[str], types: Iterable[str]) -> Operation[list[GroupDescription]]:
        """Returns the descriptions of the groups that `list_groups` returns. All requests are sent at once.

        Groups of types that cannot be described, and groups that were deleted meanwhile, are left out.
        """
        listings = yield from self.list_groups(states, types)
        timer = self._timer()
        known = [listing for listing in listings if listing.type is None or listing.type in DESCRIPTIONS]
        with self._components.changing():
            promises = [self._groups.describe(found.group_id, timer.deadline, found.type) for found in known]
        descriptions = []
        try:
            for promise in promises:
                try:
                    description = yield from self._operations.result(promise, timer, "describing groups")
                except GroupError as error:
                    if error.code != Errors.GROUP_ID_NOT_FOUND:
                        raise
                else:
                    descriptions.append(description)
        finally:
            self._abandon(promises)
        return descriptions

    def group_offsets(
        self, groups: Collection[GroupDescription], seconds: bool
    ) -> Operation[list[dict[TopicPartition, GroupOffset]]]:
        """Returns one dict for each group, in the order of `groups`: partition -> offsets of the group.

        The dict contains the partitions with a committed offset and those assigned to a member. If `seconds` is True,
        the offsets have `lag_seconds`.
        """
        timer = self._timer()
        with self._components.changing():
            promises = [self._groups.request(POSITIONS[group.type], timer.deadline, group.group_id) for group in groups]
        positions = []
        try:
            for promise in promises:
                positions.append((yield from self._operations.result(promise, timer, "fetching committed offsets")))
        finally:
            self._abandon(promises)
        owners = [_owners(group) for group in groups]
        everything = {tp for table in (*positions, *owners) for tp in table}
        starts, ends = yield from self._bounds(everything, timer)
        tables = [
            {tp: _offset(tp, at.get(tp), starts, ends, owner) for tp in sorted({*at, *owner})}
            for at, owner in zip(positions, owners, strict=True)
        ]
        if not seconds:
            return tables
        places = {place for table in tables for tp, at in table.items() if (place := _first_unread(tp, at)) is not None}
        ages = yield from self._ages(places, ends, timer)
        return [{tp: _with_age(at, ages.get(_first_unread(tp, at))) for tp, at in table.items()} for table in tables]

    def _ages(
        self, places: Iterable[Place], ends: Mapping[TopicPartition, int], timer: Timer
    ) -> Operation[Mapping[Place | None, float | None]]:
        """Returns how old (s) the first record from each place on is. It is 0 if there is none before the end, and
        missing if it is unknown."""
        parts, ages, max_bytes = self._components, dict[Place | None, float | None](), FIRST_BYTES
        unread = {place: place[1] for place in places}  # the next offset to read, for each place
        while unread:
            kinds = {}
            with parts.changing():
                for place, offset in unread.items():
                    leader = parts.cluster.leader(place[0]).leader
                    if leader is not None:
                        kind = first_record(place[0], offset, max_bytes, parts.config.read_committed)
                        kinds[place] = leader.id, kind
            found: dict[Place, FirstRecord] = yield from self._ask(kinds, "reading uncommitted records", timer)
            now, asked, unread = parts.clock.wall_ms(), unread, {}
            for place, record in found.items():
                if record.timestamp is not None:
                    ages[place] = max(0, now - record.timestamp) / 1000
                elif record.next_offset >= ends[place[0]]:
                    ages[place] = 0.0
                elif record.next_offset > asked[place]:
                    unread[place] = record.next_offset
            max_bytes = NEXT_BYTES
        return ages

    def alter_offsets(self, group: str, offsets: NewOffsets) -> Operation[None]:
        """Commit offsets for a group without members."""
        checked = offsets_to_commit(offsets)
        if checked:
            yield from self._request(offset_commit(checked), f"committing offsets of group {group!r}", group)

    def alter_share_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> Operation[None]:
        """Set start offsets of a share group without members."""
        checked = {tp: at.offset for tp, at in offsets_to_commit(offsets).items()}
        if checked:
            yield from self._request(share_offset_change(checked), f"setting start offsets of group {group!r}", group)

    def delete_share_offsets(self, group: str, topics: Iterable[str]) -> Operation[None]:
        refuse_text(topics, "topics")
        names = frozenset(topics)
        if names:
            yield from self._request(share_offset_deletion(names), f"deleting start offsets of group {group!r}", group)

    def delete_group(self, group: str) -> Operation[None]:
        """Delete a group without members, with its offsets."""
        yield from self._request(DELETION, f"deleting group {group!r}", group)

    def delete_offsets(self, group: str, topics_or_partitions: Iterable[TopicOrPartition]) -> Operation[None]:
        """Delete the committed offsets of these partitions, and of all partitions of these topics."""
        (topics, partitions), timer = topics_and_partitions(topics_or_partitions), self._timer()
        tables = (yield from self._operations.topics(topics, timer)) if topics else {}
        missing = sorted(set(topics) - set(tables))
        if missing:
            raise error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"deleting the offsets of topic {missing[0]!r}")
        wanted = {*partitions, *(TopicPartition(i.topic, i.partition) for table in tables.values() for i in table)}
        if wanted:
            what = f"deleting offsets of group {group!r}"
            yield from self._request(offset_deletion(wanted), what, group, timer)

    def remove_members(self, group: str, members: Iterable[str | GroupMember], reason: str | None) -> Operation[None]:
        """Remove these members. A text is the instance id of a static member."""
        refuse_text(members, "members")
        chosen = [*members]
        if chosen:
            yield from self._request(removal(chosen, reason), f"removing members of group {group!r}", group)

    def configs(self, group: str) -> Operation[dict[str, str | None]]:
        """Returns the settings of a group by name."""
        found: dict[str, dict[str, str | None]]
        found = yield from self._request(config_query([group]), f"reading settings of group {group!r}")
        return found[group]

    def alter_configs(self, group: str, configs: Configs) -> Operation[None]:
        """Set settings of a group, and remove those whose value is None."""
        changes = dict(configs)
        if changes:
            yield from self._request(config_change(group, changes), f"changing settings of group {group!r}")

    def client_metrics(self) -> Operation[dict[str, dict[str, str | None]]]:
        """Returns the settings of all subscriptions for metrics of clients, by name."""
        found: dict[str, dict[str, str | None]] = {}
        timer = self._timer()
        names = yield from self._request(subscription_listing(), "listing subscriptions", timer=timer)
        if names:
            kind = config_query(names, CLIENT_METRICS)
            found = yield from self._request(kind, "reading subscriptions", timer=timer)
        return found

    def alter_client_metrics(self, name: str, configs: Configs) -> Operation[None]:
        """Set settings of a subscription, and remove those whose value is None."""
        changes = dict(configs)
        if changes:
            yield from self._request(config_change(name, changes, CLIENT_METRICS), f"changing subscription {name!r}")

    def partition_offsets(self, partitions: Iterable[TopicOrPartition], at: Time) -> Operation[OffsetTable]:
        """Returns the offset at a time in these partitions, and in all partitions of these topics, by partition."""
        named, timer = topics_and_partitions(partitions), self._timer()
        if isinstance(at, str) and at not in SPECIAL_TIMES:
            raise ValueError(f"at is one of {', '.join(SPECIAL_TIMES)}, or a time, not {at!r}")
        moment = SPECIAL_TIMES[at] if isinstance(at, str) else timestamp(at, "at")
        leaders = yield from self._leaders(*named, timer)
        wanted = dict.fromkeys(sorted(leaders), moment)
        found: OffsetTable = yield from self._operations.list_offsets(wanted, timer, "looking up offsets")
        return found

    def describe_cluster(self, timer: Timer | None = None) -> Operation[ClusterDescription]:
        """Returns the id, the controller and the brokers of the cluster."""
        timer = timer or self._timer()
        with self._components.changing():
            metadata = self._components.metadata.refresh()
        yield from self._operations.result(metadata, timer, "fetching metadata")
        found = self._components.cluster
        controller = None if found.controller_id is None else found.nodes.get(found.controller_id)
        return ClusterDescription(
            found.cluster_id, controller, tuple(found.nodes[node] for node in sorted(found.nodes))
        )

    def stuck_transactions(self, partitions: Iterable[TopicOrPartition]) -> Operation[list[OpenTransaction]]:
        """Returns the open transactions in these partitions, and in all partitions of these topics, oldest first."""
        named, timer = topics_and_partitions(partitions), self._timer()
        leaders = yield from self._leaders(*named, timer)
        nodes = set(leaders.values())
        wanted = {node: open_producers([tp for tp, leader in leaders.items() if leader == node]) for node in nodes}
        by_leader = yield from self._ask_brokers(wanted, "describing producers", timer)
        producers: list[OpenProducer] = [row for rows in by_leader.values() for row in rows]
        if not producers:
            return []
        brokers = {node.id: node for node in (yield from self.describe_cluster(timer)).brokers}
        kind = transactional_ids({producer.producer_id for _, producer in producers})
        ids = yield from self._ask_brokers(dict.fromkeys(brokers, kind), "listing transactions", timer)
        wanted = {node: descriptions(listed) for node, listed in ids.items() if listed}
        described = yield from self._ask_brokers(wanted, "describing transactions", timer)
        known = {row.producer_id: (brokers[node], row) for node, rows in described.items() for row in rows}
        now = self._components.clock.wall_ms()
        found = [open_transaction(tp, producer, known.get(producer.producer_id), now) for tp, producer in producers]
        return sorted(found, key=lambda one: (-(one.age_s or 0.0), one.partition))

    def _leaders(
        self, topics: Collection[str], partitions: Collection[TopicPartition], timer: Timer
    ) -> Operation[dict[TopicPartition, int]]:
        """Returns the id of the leader of each of these partitions, and of all partitions of these topics."""
        names = {*topics, *(tp.topic for tp in partitions)}
        tables = (yield from self._operations.topics(names, timer, fresh=True)) if names else {}
        leaders = {TopicPartition(i.topic, i.partition): i.leader for table in tables.values() for i in table}
        wanted = {*partitions, *(tp for tp in leaders if tp.topic in topics)}
        missing = sorted({*topics} - {*tables}) or sorted(str(tp) for tp in wanted - {*leaders})
        if missing:
            raise error_for(Errors.UNKNOWN_TOPIC_OR_PARTITION, missing[0])
        found = {tp: leader.id for tp in wanted if (leader := leaders[tp]) is not None}
        if len(found) < len(wanted):
            raise error_for(Errors.LEADER_NOT_AVAILABLE, str(min(wanted - {*found})))
        return found

    def _ask_brokers(self, kinds: Mapping[int, QueryKind], what: str, timer: Timer) -> Operation[dict[int, Any]]:
        """Send one request to each of these brokers at once. Returns the results by the id of the broker."""
        return (yield from self._ask({node: (node, kind) for node, kind in kinds.items()}, what, timer))

    def _ask(self, requests: Mapping[K, tuple[int, QueryKind]], what: str, timer: Timer) -> Operation[dict[K, Any]]:
        """Send several requests at once, each to the broker with this id. Returns the results under the same keys."""
        with self._components.changing():
            promises = {
                key: self._groups.request(kind, timer.deadline, node=node) for key, (node, kind) in requests.items()
            }
        results = {}
        try:
            for key, promise in promises.items():
                results[key] = yield from self._operations.result(promise, timer, what)
        finally:
            self._abandon(promises.values())
        return results

    def _request(self, kind: QueryKind, what: str, group: str = "", timer: Timer | None = None) -> Operation[Any]:
        timer = timer or self._timer()
        with self._components.changing():
            promise = self._groups.request(kind, timer.deadline, group)
        return (yield from self._operations.result(promise, timer, what))

    def _abandon(self, promises: Iterable[Promise[Any]]) -> None:
        """Complete promises for which no operation waits any more, so that their queries are not sent again."""
        with self._components.changing():
            for promise in promises:
                promise.set_exception(KafkaError("the query was abandoned"))

    def _bounds(
        self, partitions: Collection[TopicPartition], timer: Timer
    ) -> Operation[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
        """Returns two dicts: partition -> its first offset, and partition -> its end offset.

        Partitions without a leader are left out.
        """
        if not partitions:
            return {}, {}
        tables = yield from self._operations.topics({tp.topic for tp in partitions}, timer)
        led = {TopicPartition(i.topic, i.partition) for table in tables.values() for i in table if i.leader is not None}
        wanted = sorted(led.intersection(partitions))
        if not wanted:
            return {}, {}
        offsets = self._components.offsets
        with self._components.changing():
            starts = offsets.list_offsets(dict.fromkeys(wanted, EARLIEST), timer.deadline)
            ends = offsets.list_offsets(dict.fromkeys(wanted, LATEST), timer.deadline)
        return (yield from self._found(starts, timer)), (yield from self._found(ends, timer))

    def _found(self, promise: Promise[OffsetTable], timer: Timer) -> Operation[dict[TopicPartition, int]]:
        found = yield from self._operations.result(promise, timer, "fetching the ends of partitions")
        return {tp: at.offset for tp, at in found.items() if at is not None}


def _owners(group: GroupDescription) -> Mapping[TopicPartition, str | None]:
    """Returns, for each assigned partition, the id of its member.

    The id is None if the partition is assigned to several members, as in a share group.
    """
    owners: dict[TopicPartition, str | None] = {}
    for member in group.members:
        for tp in member.assignment:
            owners[tp] = None if tp in owners else member.member_id
    return owners


def _offset(
    tp: TopicPartition,
    at: GroupPosition | None,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, str | None],
) -> GroupOffset:
    end = ends.get(tp)
    if at is None:
        return GroupOffset(None, starts.get(tp), end, None, owners.get(tp))
    lag = at.lag if at.lag is not None or end is None else end - at.committed
    return GroupOffset(at.committed, starts.get(tp), end, lag, owners.get(tp), at.leader_epoch, at.metadata)


def _first_unread(tp: TopicPartition, at: GroupOffset) -> Place | None:
    """Returns where the first record is that a group has not committed. Returns None if there is none, or if it is
    unknown."""
    if at.committed is None or at.log_start is None or not at.lag or at.lag < 0:
        return None
    return tp, max(at.committed, at.log_start)


def _with_age(at: GroupOffset, age: float | None) -> GroupOffset:
    return replace(at, lag_seconds=0.0 if at.lag is not None and at.lag <= 0 else age)
