"""Scenarios of OffsetCommit, OffsetFetch and OffsetDelete by clients that are no members of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kconsumer.schema.group_deletion import (
    OFFSET_DELETE,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kconsumer.schema.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kconsumer.schema.topics import DELETE_TOPICS
from support.scenarios.metadata import UNKNOWN_ID
from support.scenarios.scenario import Run, scenarios


def commit(run: Run, version: int, topic: str, offset: int = 5, index: int = 0, **fields: Any) -> Any:
    """Record the response to a commit of one partition. `metadata` and `epoch` are those of the committed offset."""
    row = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_metadata=fields.pop("metadata", "m"),
        committed_leader_epoch=fields.pop("epoch", -1),
    )
    topic_id = run.topic_id(topic) if version >= 10 else bytes(16)
    rows = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[row])]
    return run.call(OFFSET_COMMIT, version, **{"group_id": run.name("g"), "topics": rows, **fields})


def committed(run: Run, version: int, topics: dict[str, Sequence[int]] | None, **fields: Any) -> Any:
    """Record the committed offsets of a group: of some partitions, or of all topics if `topics` is None."""
    group = fields.pop("group_id", run.name("g"))
    stable = fields.pop("require_stable", False)
    if version < 8:
        rows = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()
            ]
        )
        return run.call(OFFSET_FETCH, version, group_id=group, topics=rows, require_stable=stable)
    named = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                name=name,
                topic_id=run.topic_id(name) if version >= 10 else bytes(16),
                partition_indexes=list(indexes),
            )
            for name, indexes in topics.items()
        ]
    )
    groups = [OffsetFetchRequestGroup(group_id=group, topics=named, **fields)]
    return run.call(OFFSET_FETCH, version, groups=groups, require_stable=stable)


@scenarios(OFFSET_COMMIT)
def commit_and_fetch(run: Run, version: int) -> None:
    """A commit without a member, and what is committed then."""
    topic = run.topic(partitions=2)
    commit(run, version, topic, 5, epoch=3)
    committed(run, 7, {topic: [0, 1]})
    commit(run, version, topic, 2, 1, metadata="")
    committed(run, 7, None)


@scenarios(OFFSET_FETCH)
def fetch_some(run: Run, version: int) -> None:
    """Committed offsets of some partitions; one has none, and one does not exist."""
    topic = run.topic(partitions=2)
    commit(run, 8, topic, 5, epoch=0)
    committed(run, version, {topic: [1, 0, 9]})


@scenarios(OFFSET_FETCH, versions=range(2, 11))
def fetch_all(run: Run, version: int) -> None:
    """The committed offsets of all topics."""
    for name in ("a", "b"):
        commit(run, 8, run.topic(name), 7)
    committed(run, version, None)


@scenarios(OFFSET_FETCH)
def fetch_of_an_unknown_group(run: Run, version: int) -> None:
    """A group that does not exist has no committed offsets."""
    committed(run, version, {run.topic(): [0]}, group_id=run.name("none"))


@scenarios(OFFSET_FETCH, versions=[1, 2, 7, 8, 9])
def fetch_of_an_unknown_topic(run: Run, version: int) -> None:
    """A topic that does not exist, and the empty list of topics."""
    commit(run, 8, run.topic(), 7)
    committed(run, version, {run.name("none"): [0]})
    committed(run, version, {})


@scenarios(OFFSET_FETCH, versions=[10])
def fetch_by_unknown_id(run: Run, version: int) -> None:
    """A topic id that does not exist."""
    topic = run.topic()
    commit(run, 8, topic, 7)
    rows = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (UNKNOWN_ID, run.topic_id(topic))
    ]
    run.call(OFFSET_FETCH, version, groups=[OffsetFetchRequestGroup(group_id=run.name("g"), topics=rows)])


@scenarios(OFFSET_FETCH, versions=[7, 8, 9, 10])
def fetch_stable(run: Run, version: int) -> None:
    """Stable offsets of a group without transactions."""
    topic = run.topic()
    commit(run, 8, topic, 7)
    committed(run, version, {topic: [0]}, require_stable=True)


@scenarios(OFFSET_FETCH, versions=[8, 9, 10])
def fetch_two_groups(run: Run, version: int) -> None:
    """Since v8 a request has several groups."""
    topic = run.topic()
    commit(run, 8, topic, 7)
    commit(run, 8, topic, 8, group_id=run.name("h"))
    groups = [OffsetFetchRequestGroup(group_id=run.name(name), topics=None) for name in ("h", "none", "g")]
    run.call(OFFSET_FETCH, version, groups=groups)


@scenarios(OFFSET_FETCH, versions=[9, 10], cases={"unknown-member": ("m", 1), "epoch-only": (None, 3)})
def fetch_as_member(run: Run, version: int, member: tuple[str | None, int]) -> None:
    """Since v9 a member of the consumer protocol names itself; this group has no members."""
    topic = run.topic()
    commit(run, 8, topic, 7)
    committed(run, version, {topic: [0]}, member_id=member[0], member_epoch=member[1])


@scenarios(OFFSET_COMMIT, versions=[2, 5, 7, 9], cases={"unknown-topic": "none", "partition": 7, "negative": -1})
def commit_unknown(run: Run, version: int, what: str | int) -> None:
    """Commits of partitions that do not exist."""
    topic = run.topic()
    if isinstance(what, str):
        commit(run, version, run.name(what))
    else:
        commit(run, version, topic, 5, what)


@scenarios(OFFSET_COMMIT, versions=[10])
def commit_unknown_id(run: Run, version: int) -> None:
    """A commit of a topic id that does not exist, with one that does."""
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
    known = run.topic_id(run.topic())
    rows = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=[row]) for topic_id in (UNKNOWN_ID, known)]
    run.call(OFFSET_COMMIT, version, group_id=run.name("g"), topics=rows)


METADATA_SIZES = {"empty": "", "null": None, "largest": "x" * 4096, "too-large": "x" * 4097}


@scenarios(OFFSET_COMMIT, versions=[2, 8, 9], cases=METADATA_SIZES)
def metadata_of_a_commit(run: Run, version: int, metadata: str | None) -> None:
    """The metadata of a committed offset has at most 4096 bytes."""
    topic = run.topic()
    commit(run, version, topic, metadata=metadata)
    response = committed(run, 7, {topic: [0]})
    run.note("characters", len(response.topics[0].partitions[0].metadata))


OFFSETS = {"zero": 0, "huge": 1 << 60, "minus-one": -1, "negative": -9}


@scenarios(OFFSET_COMMIT, versions=[2, 9], cases=OFFSETS)
def committed_offset(run: Run, version: int, offset: int) -> None:
    """Any offset can be committed."""
    topic = run.topic()
    commit(run, version, topic, offset)
    committed(run, 7, {topic: [0]})


STRANGERS = {
    "generation": {"generation_id_or_member_epoch": 3},
    "member": {"member_id": "m"},
    "both": {"member_id": "m", "generation_id_or_member_epoch": 0},
    "instance": {"member_id": "m", "generation_id_or_member_epoch": 1, "group_instance_id": "i"},
}


@scenarios(OFFSET_COMMIT, versions=[2, 7, 9, 10], cases=STRANGERS)
def commit_of_a_stranger(run: Run, version: int, fields: dict[str, Any]) -> None:
    """A commit of a member to a group that does not exist, and to one without members."""
    topic = run.topic()
    if version < 7:
        fields = {name: value for name, value in fields.items() if name != "group_instance_id"}
    commit(run, version, topic, **fields)
    commit(run, 8, topic)
    commit(run, version, topic, **fields)


@scenarios(OFFSET_COMMIT, versions=[2, 8, 9])
def empty_group_id(run: Run, version: int) -> None:
    """A group without a name."""
    commit(run, version, run.topic(), group_id="")


@scenarios(OFFSET_FETCH, versions=[1, 2, 7, 8, 9])
def fetch_of_the_empty_group(run: Run, version: int) -> None:
    """The committed offsets of the group without a name."""
    committed(run, version, {run.topic(): [3]}, group_id="")


@scenarios(OFFSET_COMMIT, versions=[2, 9])
def no_topics(run: Run, version: int) -> None:
    """A commit of nothing."""
    run.call(OFFSET_COMMIT, version, group_id=run.name("g"), topics=[])


@scenarios()
def deleted_topic(run: Run) -> None:
    """The committed offsets of a topic are deleted with it."""
    topic = run.topic()
    commit(run, 8, topic)
    run.prepare(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=5000)
    run.sleep(1000)
    committed(run, 7, {topic: [0]})


def _deleted(topic: str, *indexes: int) -> OffsetDeleteRequestTopic:
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return OffsetDeleteRequestTopic(name=topic, partitions=rows)


@scenarios()
def delete_offsets(run: Run) -> None:
    """Committed offsets are deleted; partitions without one do not matter, unknown ones do."""
    topic = run.topic(partitions=2)
    commit(run, 8, topic)
    run.call(OFFSET_DELETE, 0, group_id=run.name("g"), topics=[_deleted(topic, 0, 1, 7), _deleted(run.name("none"), 0)])
    committed(run, 7, {topic: [0]})


@scenarios(cases=["none", ""])
def delete_offsets_of_an_unknown_group(run: Run, group: str) -> None:
    """A group that does not exist, and the one without a name."""
    topic = run.topic()
    run.call(OFFSET_DELETE, 0, group_id=run.name(group) if group else "", topics=[_deleted(topic, 0)])
