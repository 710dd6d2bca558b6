"""Scenarios of the records of share groups (KIP-932): ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kconsumer.schema.share_group import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    ShareAcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeTopic,
    ShareFetchAcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchTopic,
    ShareForgottenTopic,
)
from kconsumer.schema.topics import DELETE_RECORDS, DeleteRecordsPartition, DeleteRecordsTopic
from kconsumer.testing.batches import build_batch
from support.scenarios.scenario import SETTLE_MS, TIMESTAMP, Run, error_codes, scenarios
from support.scenarios.share_groups import MEMBER, OTHER, configure, enter, heartbeat, offsets
from support.scenarios.transactions import add, await_markers, end, init, write

OPEN, CLOSE = 0, -1
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
#: The fields of a ShareFetch that fetches nothing.
NOTHING: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
LOCK_MS = 1500  # the acquisition lock of groups whose locks expire
#: An acknowledgement: first offset, last offset, and the types.
Ack = tuple[int, int, list[int]]


def fetch(
    run: Run,
    version: int,
    epoch: int,
    topic: str | None,
    *acks: Ack,
    partitions: Iterable[int] = (0,),
    forget: Iterable[int] = (),
    record: bool = True,
    member: str = MEMBER,
    **fields: Any,
) -> Any:
    """Record the response to ShareFetch. `acks`: of the first partition. `topic`: None for a request without topics."""
    batches = [
        ShareFetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]
    topic_id = b"" if topic is None else run.topic_id(topic)
    rows = [ShareFetchPartition(partition_index=index, acknowledgement_batches=[]) for index in partitions]
    if rows:
        rows[0].acknowledgement_batches = batches
    known = {
        "group_id": run.name("g"),
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait_ms": 200,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": [] if topic is None else [ShareFetchTopic(topic_id=topic_id, partitions=rows)],
        "forgotten_topics_data": [ShareForgottenTopic(topic_id=topic_id, partitions=list(forget))] if forget else [],
    }
    call = run.call if record else run.prepare
    return call(SHARE_FETCH, version, client=fields.pop("client", "test"), **{**known, **fields})


def ranges(response: Any) -> list[tuple[int, int, int]]:
    """Returns the ranges that a response acquired, with their delivery counts."""
    return [
        (row.first_offset, row.last_offset, row.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for row in partition.acquired_records
    ]


def acknowledge(
    run: Run,
    version: int,
    epoch: int,
    topic: str | None,
    *acks: Ack,
    partition: int = 0,
    member: str = MEMBER,
    **fields: Any,
) -> Any:
    """Record the response to ShareAcknowledge."""
    batches = [
        ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acks
    ]
    rows = [ShareAcknowledgePartition(partition_index=partition, acknowledgement_batches=batches)]
    topics = [] if topic is None else [ShareAcknowledgeTopic(topic_id=run.topic_id(topic), partitions=rows)]
    known = {"group_id": run.name("g"), "member_id": member, "share_session_epoch": epoch, "topics": topics}
    return run.call(SHARE_ACKNOWLEDGE, version, **{**known, **fields})


def group(run: Run, topic: str, *members: str, reset: str = "earliest", **configs: str) -> None:
    """Let members join a group that begins at the first record, and open no session."""
    configure(run, share_auto_offset_reset=reset, **configs)
    for member in members or (MEMBER,):
        enter(run, topic, member=member)


def begin(run: Run, version: int, topic: str, *sizes: int, **configs: str) -> None:
    """Let a member join, initialize the share partition, and produce batches of these sizes."""
    group(run, topic, **configs)
    initialize(run, version, topic)
    number = 0
    for size in sizes:
        values = [b"%d" % (number + i) for i in range(size)]
        run.produce(topic, build_batch(values, timestamp=TIMESTAMP))
        number += size


def initialize(run: Run, version: int, topic: str, partitions: Iterable[int] = (0,)) -> None:
    """Let the broker initialize share partitions, which the first fetch starts. Real brokers need some time for it."""
    fetch(run, version, OPEN, topic, partitions=partitions, record=False, max_wait_ms=SETTLE_MS * 3)
    fetch(run, version, CLOSE, None, record=False)
    run.sleep(SETTLE_MS)


# --- acknowledging ------------------------------------------------------------------------------------------


@scenarios(SHARE_FETCH)
def accept(run: Run, version: int) -> None:
    """Records are acquired, and accepted with the next fetch."""
    topic = run.topic()
    begin(run, version, topic, 1, 1, 1)
    fetch(run, version, OPEN, topic)
    offsets(run)
    fetch(run, version, 1, topic, (0, 2, [ACCEPT]))
    offsets(run)
    run.produce_values(topic, b"more")
    fetch(run, version, 2, None)
    fetch(run, version, CLOSE, topic, (3, 3, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_ACKNOWLEDGE)
def acknowledged(run: Run, version: int) -> None:
    """Records are acknowledged without a fetch, one type for each."""
    topic = run.topic()
    begin(run, version, topic, 6)
    fetch(run, version, OPEN, topic)
    acknowledge(run, version, 1, topic, (0, 3, [ACCEPT, RELEASE, REJECT, GAP]))
    offsets(run)
    fetch(run, version, 2, None)
    acknowledge(run, version, 3, topic, (1, 1, [ACCEPT]))
    acknowledge(run, version, 4, topic, (4, 5, [RELEASE]))
    offsets(run)
    fetch(run, version, 5, None)
    acknowledge(run, version, CLOSE, topic, (4, 4, [ACCEPT]))
    offsets(run)
    fetch(run, version, OPEN, topic)


@scenarios(SHARE_FETCH, versions=[1, 2])
def several_batches(run: Run, version: int) -> None:
    """Batches are acquired as one range, are released in parts, and accepted out of order."""
    topic = run.topic()
    begin(run, version, topic, 3, 2, 4)
    fetch(run, version, OPEN, topic)
    fetch(run, version, 1, topic, (3, 5, [RELEASE]))
    fetch(run, version, 2, topic, (6, 8, [ACCEPT]))
    offsets(run)
    fetch(run, version, 3, topic, (0, 5, [ACCEPT]))
    offsets(run)


ERRORS: dict[str, list[Ack]] = {
    "unknown-type": [(0, 0, [7])],
    "negative-type": [(0, 0, [-1])],
    "no-type": [(0, 0, [])],
    "few-types": [(0, 2, [ACCEPT, ACCEPT])],
    "many-types": [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
    "reversed": [(2, 1, [ACCEPT])],
    "beyond": [(0, 9, [ACCEPT])],
    "far": [(20, 21, [ACCEPT])],
    "twice": [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
    "disordered": [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
    "second-wrong": [(0, 0, [ACCEPT]), (4, 9, [ACCEPT])],
    "empty": [],
    "renew": [(0, 0, [RENEW])],
}


@scenarios(SHARE_ACKNOWLEDGE, cases=ERRORS)
def refused(run: Run, version: int, acks: list[Ack]) -> None:
    """Acknowledgements that the broker refuses, or not."""
    topic = run.topic()
    begin(run, version, topic, 5)
    fetch(run, version, OPEN, topic)
    acknowledge(run, version, 1, topic, *acks)
    acknowledge(run, version, 2, topic, (0, 4, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_FETCH, cases=ERRORS)
def refused_in_fetch(run: Run, version: int, acks: list[Ack]) -> None:
    """Acknowledgements in a fetch that the broker refuses, or not."""
    topic = run.topic()
    begin(run, version, topic, 5)
    fetch(run, version, OPEN, topic)
    fetch(run, version, 1, topic, *acks)
    fetch(run, version, 2, topic, (0, 4, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_ACKNOWLEDGE)
def again(run: Run, version: int) -> None:
    """Acknowledgements of records that are not acquired any more, or never were."""
    topic = run.topic()
    begin(run, version, topic, 2, 3)
    acknowledge(run, version, 1, topic, (0, 1, [ACCEPT]))
    fetch(run, version, OPEN, topic, max_records=1)
    acknowledge(run, version, 1, topic, (2, 4, [ACCEPT]))
    acknowledge(run, version, 2, topic, (0, 1, [RELEASE]))
    acknowledge(run, version, 3, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 4, topic, (0, 0, [ACCEPT]))
    fetch(run, version, 5, None)
    acknowledge(run, version, 6, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 7, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 8, topic, (0, 4, [ACCEPT]))
    acknowledge(run, version, 9, topic, (0, 4, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_ACKNOWLEDGE, versions=[2])
def renewed(run: Run, version: int) -> None:
    """The locks of records are renewed, in requests that say so."""
    topic = run.topic()
    begin(run, version, topic, 4)
    fetch(run, version, OPEN, topic)
    acknowledge(run, version, 1, topic, (0, 3, [RENEW]), is_renew_ack=True)
    acknowledge(run, version, 2, topic, (0, 3, [RENEW, ACCEPT, RENEW, RELEASE]), is_renew_ack=True)
    acknowledge(run, version, 3, topic, (0, 0, [ACCEPT]), is_renew_ack=True)
    fetch(run, version, 4, topic, (2, 2, [RENEW]), is_renew_ack=True)
    fetch(run, version, 4, topic, (2, 2, [RENEW]), is_renew_ack=True, **NOTHING)
    fetch(run, version, 5, topic, (2, 2, [RENEW]), **NOTHING)
    fetch(run, version, 6, None)
    offsets(run)


@scenarios(SHARE_ACKNOWLEDGE, versions=[2])
def renewal_disabled(run: Run, version: int) -> None:
    """A group whose locks cannot be renewed."""
    topic = run.topic()
    begin(run, version, topic, 4, share_renew_acknowledge_enable="false")
    fetch(run, version, OPEN, topic)
    acknowledge(run, version, 1, topic, (0, 3, [RENEW]), is_renew_ack=True)
    acknowledge(run, version, 2, topic, (0, 3, [ACCEPT]))
    fetch(run, version, 3, topic, (0, 0, [RENEW]), is_renew_ack=True, **NOTHING)


# --- acquiring ----------------------------------------------------------------------------------------------

LIMITS: dict[str, dict[str, Any]] = {
    "one": {"max_records": 1},
    "two": {"max_records": 2, "batch_size": 2},
    "three": {"max_records": 3, "batch_size": 1},
    "split": {"batch_size": 3},
    "none": {"max_records": 0},
    "negative": {"max_records": -1},
    "no-bytes": {"max_bytes": 0},
    "few-bytes": {"max_bytes": 100},
    "limit-one": {"max_records": 1, "share_acquire_mode": 1},
    "limit-three": {"max_records": 3, "share_acquire_mode": 1},
    "limit-all": {"max_records": 50, "share_acquire_mode": 1},
    "unknown-mode": {"max_records": 3, "share_acquire_mode": 5},
}


@scenarios(SHARE_FETCH, versions=[2], cases=LIMITS)
def limits(run: Run, version: int, fields: dict[str, Any]) -> None:
    """How many records a fetch acquires."""
    topic = run.topic()
    begin(run, version, topic, 2, 2, 1, 3)
    for epoch in range(4):
        fetch(run, version, epoch, topic if epoch == 0 else None, **fields)
    offsets(run)


def release_all(run: Run, version: int, topic: str, times: int) -> None:
    """Fetch and release everything until nothing is acquired, at most `times` times, and note the offsets."""
    epoch = 0
    for _ in range(times):
        response = fetch(run, version, epoch, topic if epoch == 0 else None)
        epoch += 1
        rows = response.responses[0].partitions[0].acquired_records if response.responses else []
        if not rows:
            break
        acknowledge(run, version, epoch, topic, *[(r.first_offset, r.last_offset, [RELEASE]) for r in rows])
        epoch += 1
    offsets(run)


@scenarios(SHARE_FETCH, versions=[1, 2])
def limit_of_deliveries(run: Run, version: int) -> None:
    """A record is delivered five times; in a batch, the fewer together the more often they were delivered."""
    topic = run.topic()
    begin(run, version, topic, 4)
    release_all(run, version, topic, 24)


@scenarios(SHARE_FETCH, versions=[1], cases={"1": 1, "3": 3})
def configured_limit(run: Run, version: int, size: int) -> None:
    """A group with another limit of deliveries."""
    topic = run.topic()
    begin(run, version, topic, size, share_delivery_count_limit="2")
    release_all(run, version, topic, 4)


@scenarios(SHARE_FETCH, versions=[1])
def limit_of_locks(run: Run, version: int) -> None:
    """A partition has a limit of records that are in flight."""
    topic = run.topic()
    begin(run, version, topic, *[30] * 6, share_partition_max_record_locks="100")
    fetch(run, version, OPEN, topic)
    fetch(run, version, 1, None)
    fetch(run, version, 2, topic, (30, 59, [ACCEPT]))
    fetch(run, version, 3, topic, (60, 69, [RELEASE]))
    fetch(run, version, 4, topic, (0, 29, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_FETCH, versions=[1])
def two_partitions(run: Run, version: int) -> None:
    """Partitions share the limit of records."""
    topic = run.topic(partitions=2)
    group(run, topic)
    initialize(run, version, topic, partitions=[0, 1])
    run.produce(topic, build_batch([b"a", b"b", b"c"], timestamp=TIMESTAMP))
    run.produce(topic, build_batch([b"d", b"e"], timestamp=TIMESTAMP), partition=1)
    response = fetch(run, version, OPEN, topic, partitions=[0, 1], record=False)
    found = {
        row.partition_index: [(r.first_offset, r.last_offset, r.delivery_count) for r in row.acquired_records]
        for row in response.responses[0].partitions
    }
    run.note("acquired", sorted(found.items()))
    fetch(run, version, 1, topic, (0, 2, [ACCEPT]), partitions=[0], forget=[1])
    run.produce(topic, build_batch([b"f"], timestamp=TIMESTAMP), partition=1)
    fetch(run, version, 2, None)
    acknowledge(run, version, 3, topic, (0, 1, [ACCEPT]), partition=1)
    fetch(run, version, 4, topic, partitions=[1])
    offsets(run)


# --- sessions -----------------------------------------------------------------------------------------------


@scenarios(SHARE_FETCH)
def sessions(run: Run, version: int) -> None:
    """Epochs of sessions that are valid or not."""
    topic = run.topic()
    begin(run, version, topic, 2)
    fetch(run, version, 1, topic)
    fetch(run, version, CLOSE, None)
    fetch(run, version, OPEN, topic, (0, 1, [ACCEPT]))
    fetch(run, version, OPEN, topic)
    fetch(run, version, 2, None)
    fetch(run, version, 1, None)
    fetch(run, version, OPEN, topic)
    fetch(run, version, 1, topic, (0, 1, [RELEASE]))
    fetch(run, version, CLOSE, topic)
    fetch(run, version, CLOSE, None)
    fetch(run, version, -2, None)


@scenarios(SHARE_ACKNOWLEDGE)
def sessions_of_acknowledgements(run: Run, version: int) -> None:
    """Epochs of sessions in ShareAcknowledge."""
    topic = run.topic()
    begin(run, version, topic, 2)
    acknowledge(run, version, 1, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, CLOSE, topic, (0, 1, [ACCEPT]))
    fetch(run, version, OPEN, topic)
    acknowledge(run, version, OPEN, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 5, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 1, topic, (0, 0, [ACCEPT]))
    acknowledge(run, version, 1, topic, (1, 1, [ACCEPT]))
    acknowledge(run, version, 2, None)
    acknowledge(run, version, CLOSE, None)
    fetch(run, version, OPEN, topic)
    offsets(run)


IDS: dict[str, dict[str, Any]] = {
    "no-group": {"group_id": None},
    "empty-group": {"group_id": ""},
    "other-group": {"group_id": "no-such-group"},
    "no-member": {"member_id": None},
    "empty-member": {"member_id": ""},
    "long-member": {"member_id": "m" * 37},
    "stranger": {"member_id": OTHER},
}


@scenarios(SHARE_FETCH, cases=IDS)
def ids(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Groups and members that do not exist."""
    topic = run.topic()
    begin(run, version, topic, 1)
    fetch(run, version, OPEN, topic, **fields)


@scenarios(SHARE_ACKNOWLEDGE, cases=IDS)
def ids_of_acknowledgements(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Groups and members that do not exist, in ShareAcknowledge."""
    topic = run.topic()
    begin(run, version, topic, 1)
    acknowledge(run, version, 1, topic, (0, 0, [ACCEPT]), **fields)


@scenarios(SHARE_FETCH, versions=[1, 2])
def unknown_partitions(run: Run, version: int) -> None:
    """Topics and partitions that do not exist, or that the session does not have."""
    topic = run.topic()
    begin(run, version, topic, 2)
    fetch(run, version, OPEN, topic, partitions=[0, 7])
    fetch(run, version, 1, topic, (0, 0, [ACCEPT]), partitions=[7])
    fetch(run, version, 2, topic, forget=[7], partitions=[])
    acknowledge(run, version, 3, topic, (0, 0, [ACCEPT]), partition=7)
    row = ShareFetchPartition(partition_index=0)
    fetch(run, version, 4, None, topics=[ShareFetchTopic(topic_id=bytes(range(16)), partitions=[row])])
    batch = ShareAcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    other = ShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topics = [ShareAcknowledgeTopic(topic_id=bytes(range(16)), partitions=[other])]
    acknowledge(run, version, 5, None, topics=topics)


@scenarios(SHARE_FETCH, versions=[1])
def uninitialized(run: Run, version: int) -> None:
    """A fetch of a group that has no members."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    fetch(run, version, OPEN, topic, max_wait_ms=1000)


# --- several members ----------------------------------------------------------------------------------------


@scenarios(SHARE_FETCH, versions=[1, 2])
def two_members(run: Run, version: int) -> None:
    """Two members get different records, and what one releases, the other gets."""
    topic = run.topic()
    begin(run, version, topic, 1, 1, 1)
    fetch(run, version, OPEN, topic, max_records=2)
    fetch(run, version, OPEN, topic, member=OTHER, client="other")
    acknowledge(run, version, 1, topic, (0, 0, [ACCEPT]), member=OTHER, client="other")
    acknowledge(run, version, 2, topic, (2, 2, [ACCEPT]), member=OTHER, client="other")
    acknowledge(run, version, 1, topic, (0, 1, [RELEASE]))
    fetch(run, version, 3, None, member=OTHER, client="other")
    acknowledge(run, version, 2, topic, (0, 1, [ACCEPT]))
    acknowledge(run, version, 4, topic, (0, 1, [ACCEPT]), member=OTHER, client="other")
    offsets(run)


def waiting(run: Run, version: int, topic: str, epoch: int, member: str = OTHER) -> Any:
    """Send a fetch that waits for records for a long time."""
    rows = [ShareFetchTopic(topic_id=run.topic_id(topic), partitions=[ShareFetchPartition(partition_index=0)])]
    return run.send(
        SHARE_FETCH,
        version,
        client="waiting",
        group_id=run.name("g"),
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=20_000,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        topics=rows,
    )


@scenarios(SHARE_FETCH, versions=[1, 2])
def waits_for_records(run: Run, version: int) -> None:
    """A fetch waits until records are produced."""
    topic = run.topic()
    begin(run, version, topic)
    ticket = waiting(run, version, topic, OPEN)
    run.waits(ticket)
    run.produce_values(topic, b"one")
    run.receive(ticket)


@scenarios(SHARE_FETCH, versions=[1], cases=["released", "accepted", "closed", "disconnected"])
def waits_for_a_member(run: Run, version: int, how: str) -> None:
    """A fetch waits until another member releases its records, or not."""
    topic = run.topic()
    begin(run, version, topic, 2)
    fetch(run, version, OPEN, topic, client="first")
    ticket = waiting(run, version, topic, OPEN)
    run.waits(ticket)
    if how == "released":
        acknowledge(run, version, 1, topic, (1, 1, [RELEASE]), client="first")
    elif how == "accepted":
        acknowledge(run, version, 1, topic, (0, 0, [ACCEPT]), client="first")
        run.waits(ticket)
        run.produce_values(topic, b"one")
    elif how == "closed":
        fetch(run, version, CLOSE, None, client="first")
    else:
        run.close("first")
    run.receive(ticket)
    offsets(run)


@scenarios(SHARE_FETCH, versions=[1])
def another_connection(run: Run, version: int) -> None:
    """A session is used on another connection than the one that opened it."""
    topic = run.topic()
    begin(run, version, topic, 2)
    fetch(run, version, OPEN, topic, client="first")
    fetch(run, version, 1, topic, (0, 0, [ACCEPT]), client="second")
    run.close("first")
    run.sleep(SETTLE_MS)
    fetch(run, version, 2, None, client="second")
    fetch(run, version, OPEN, topic, client="second")


@scenarios(SHARE_FETCH, versions=[1])
def left(run: Run, version: int) -> None:
    """A member that left the group still has its session."""
    topic = run.topic()
    begin(run, version, topic, 2)
    fetch(run, version, OPEN, topic)
    heartbeat(run, CLOSE)
    run.sleep(SETTLE_MS)
    acknowledge(run, version, 1, topic, (0, 0, [ACCEPT]))
    fetch(run, version, 2, None)
    fetch(run, version, CLOSE, None)
    fetch(run, version, OPEN, topic)


# --- locks --------------------------------------------------------------------------------------------------


@scenarios(SHARE_FETCH, versions=[1, 2])
def locks_expire(run: Run, version: int) -> None:
    """Records whose locks expire are delivered again."""
    topic = run.topic()
    begin(run, version, topic, 2, share_record_lock_duration_ms=str(LOCK_MS))
    fetch(run, version, OPEN, topic)
    run.sleep(LOCK_MS + 500)
    acknowledge(run, version, 1, topic, (0, 1, [ACCEPT]))
    fetch(run, version, 2, None)
    acknowledge(run, version, 3, topic, (0, 0, [ACCEPT]))
    run.sleep(LOCK_MS + 500)
    fetch(run, version, 4, None)
    offsets(run)


@scenarios(SHARE_ACKNOWLEDGE, versions=[2])
def locks_are_renewed(run: Run, version: int) -> None:
    """Records whose locks are renewed stay acquired."""
    topic = run.topic()
    begin(run, version, topic, 2, share_record_lock_duration_ms=str(LOCK_MS))
    fetch(run, version, OPEN, topic)
    run.sleep(LOCK_MS / 2)
    acknowledge(run, version, 1, topic, (0, 0, [RENEW]), is_renew_ack=True)
    run.sleep(LOCK_MS * 0.8)
    fetch(run, version, 2, None)
    acknowledge(run, version, 3, topic, (0, 1, [ACCEPT]))
    offsets(run)


# --- where a group begins, and what it reads ----------------------------------------------------------------


@scenarios(SHARE_FETCH, versions=[1], cases=["earliest", "latest", "by_duration:PT1H", "by_duration:P9000D"])
def resets(run: Run, version: int, reset: str) -> None:
    """Where a group begins."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two")
    group(run, topic, reset=reset)
    initialize(run, version, topic)
    run.produce_values(topic, b"three")
    fetch(run, version, OPEN, topic)
    offsets(run)


def delete_records(run: Run, topic: str, before: int) -> None:
    """Delete the first records of a topic."""
    rows = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])]
    response = run.prepare(DELETE_RECORDS, 1, topics=rows, timeout_ms=10_000)
    assert not error_codes(response), response


@scenarios(SHARE_FETCH, versions=[1, 2])
def deleted_records(run: Run, version: int) -> None:
    """Records are deleted before they are fetched."""
    topic = run.topic()
    begin(run, version, topic, 1, 1, 1, 1)
    delete_records(run, topic, 2)
    for epoch in range(3):
        fetch(run, version, epoch, topic if epoch == 0 else None, until=None)
    offsets(run)


@scenarios(SHARE_FETCH, versions=[1, 2])
def deleted_in_flight(run: Run, version: int) -> None:
    """Records are deleted while they are acquired."""
    topic = run.topic()
    begin(run, version, topic, 2, 2)
    fetch(run, version, OPEN, topic, max_records=1)
    delete_records(run, topic, 1)
    acknowledge(run, version, 1, topic, (0, 0, [RELEASE]))
    fetch(run, version, 2, None)
    fetch(run, version, 3, None)
    acknowledge(run, version, 4, topic, (0, 3, [ACCEPT]))
    offsets(run)


@scenarios(SHARE_FETCH, versions=[1], cases=["read_committed", "read_uncommitted"])
def transactions(run: Run, version: int, level: str) -> None:
    """Committed, aborted and open transactions, as both isolation levels read them."""
    topic = run.topic()
    group(run, topic, share_isolation_level=level)
    initialize(run, version, topic)
    producer = init(run)
    add(run, producer, topic)
    write(run, producer, topic, 0, b"aborted", b"too")
    end(run, producer, commit=False)
    await_markers(run, topic, 3)
    producer = init(run)
    add(run, producer, topic)
    write(run, producer, topic, 0, b"committed")
    end(run, producer, commit=True)
    await_markers(run, topic, 5)
    run.produce_values(topic, b"plain")
    producer = init(run)
    add(run, producer, topic)
    write(run, producer, topic, 0, b"open")
    for epoch in range(3):
        fetch(run, version, epoch, topic if epoch == OPEN else None)
    acknowledge(run, version, 3, topic, (2, 5, [ACCEPT]))
    offsets(run)
    end(run, producer, commit=False)
    run.sleep(SETTLE_MS)
    fetch(run, version, 4, None)
    fetch(run, version, 5, topic, (7, 7, [GAP]))
    offsets(run)
