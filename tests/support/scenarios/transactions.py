"""Scenarios of transactions."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsTopic
from kconsumer.schema.produce import PRODUCE
from kconsumer.schema.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    AddPartitionsToTxnTopic,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.scenarios.commits import committed
from support.scenarios.produce import idempotent, produce, read
from support.scenarios.scenario import Run, scenarios

CONCURRENT_TRANSACTIONS = 51


def init(run: Run, version: int = 4, **fields: Any) -> Any:
    """Record the response to InitProducerId of a transactional producer, when no transaction is about to end."""
    known = {"transactional_id": run.name("x"), "transaction_timeout_ms": 60_000}
    return run.call(INIT_PRODUCER_ID, version, until=ended, **{**known, **fields})


def ended(response: Any) -> bool:
    """Returns whether no earlier transaction was about to end."""
    return getattr(response, "error_code", 0) != CONCURRENT_TRANSACTIONS


def fields_of(run: Run, producer: Any) -> dict[str, Any]:
    """Returns the fields that name a producer."""
    return {
        "transactional_id": run.name("x"),
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def add(run: Run, producer: Any, topic: str, *partitions: int, version: int = 3, **fields: Any) -> Any:
    """Record the response to AddPartitionsToTxn, when no transaction is about to end."""
    rows = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or [0]))]
    named = {f"v3_and_below_{name}": value for name, value in {**fields_of(run, producer), **fields}.items()}

    def started(response: Any) -> bool:
        codes = [
            row.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
        return CONCURRENT_TRANSACTIONS not in codes

    return run.call(ADD_PARTITIONS_TO_TXN, version, until=started, **named, v3_and_below_topics=rows)


def end(run: Run, producer: Any, commit: bool, version: int = 3, **fields: Any) -> Any:
    """Record the response to EndTxn, when no earlier transaction is about to end."""
    return run.call(END_TXN, version, until=ended, **{**fields_of(run, producer), "committed": commit, **fields})


def write(run: Run, producer: Any, topic: str, sequence: int, *values: bytes, version: int = 9, **fields: Any) -> Any:
    """Record the response to Produce in a transaction."""
    data = idempotent(producer, sequence, *values, transactional=True, **fields)
    return produce(run, version, topic, data, transactional_id=run.name("x"))


def await_markers(run: Run, topic: str, end_offset: int) -> None:
    """Wait until the last stable offset of a partition is `end_offset`. Record it."""
    rows = [ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]

    def stable(response: Any) -> bool:
        found: int = response.topics[0].partitions[0].offset
        return found >= end_offset

    run.call(LIST_OFFSETS, 4, until=stable, isolation_level=1, topics=rows)


@scenarios(INIT_PRODUCER_ID, versions=range(6))
def init_twice(run: Run, version: int) -> None:
    """The second producer with a transactional id has the same id and the next epoch."""
    init(run, version)
    init(run, version)


TIMEOUTS = {"zero": 0, "negative": -1, "largest": 900_000, "too-long": 900_001}


@scenarios(INIT_PRODUCER_ID, versions=[0, 4], cases=TIMEOUTS)
def transaction_timeout(run: Run, version: int, timeout: int) -> None:
    """The limits of the transaction timeout."""
    init(run, version, transaction_timeout_ms=timeout)


@scenarios(INIT_PRODUCER_ID, versions=[1, 4])
def empty_transactional_id(run: Run, version: int) -> None:
    """A transactional id without a character."""
    init(run, version, transactional_id="")


@scenarios(INIT_PRODUCER_ID, versions=[3, 4], cases=["same", "old", "future", "other-id", "epoch-only", "id-only"])
def init_with_epoch(run: Run, version: int, case: str) -> None:
    """A producer that names its last id and epoch gets the next one; older ones are fenced."""
    init(run, version)
    known = init(run, version)
    producer_id, epoch = known.producer_id, known.producer_epoch
    fields = {
        "same": (producer_id, epoch),
        "old": (producer_id, epoch - 1),
        "future": (producer_id, epoch + 5),
        "other-id": (producer_id + 1_000_000, epoch),
        "epoch-only": (-1, epoch),
        "id-only": (producer_id, -1),
    }[case]
    init(run, version, producer_id=fields[0], producer_epoch=fields[1])


@scenarios(END_TXN, versions=range(5), cases={"commit": True, "abort": False})
def whole_transaction(run: Run, version: int, commit: bool) -> None:
    """Records of a transaction, the last stable offset before and after its end, and the aborted list."""
    topic, producer = run.topic(), init(run)
    add(run, producer, topic)
    write(run, producer, topic, 0, b"a", b"b")
    read(run, topic, isolation_level=1)
    read(run, topic)
    end(run, producer, commit, version)
    await_markers(run, topic, 3)
    read(run, topic, isolation_level=1)
    read(run, topic)


@scenarios(ADD_PARTITIONS_TO_TXN, versions=range(4))
def adding(run: Run, version: int) -> None:
    """Partitions that exist, one that does not, and the wrong epoch, id and transactional id."""
    topic, producer = run.topic(partitions=2), init(run)
    add(run, producer, topic, 0, 1, version=version)
    add(run, producer, topic, 0, 1, version=version)
    add(run, producer, topic, 0, 7, version=version)
    add(run, producer, run.name("none"), version=version)
    add(run, producer, topic, version=version, producer_epoch=9)
    add(run, producer, topic, version=version, producer_id=123_456_789)
    add(run, producer, topic, version=version, transactional_id=run.name("none"))
    add(run, producer, topic, version=version, transactional_id="")


@scenarios(END_TXN, versions=range(5))
def wrong_end(run: Run, version: int) -> None:
    """EndTxn without a transaction, with the wrong epoch and id, and twice."""
    topic, producer = run.topic(), init(run)
    end(run, producer, True, version)
    end(run, producer, True, version, producer_epoch=9)
    end(run, producer, True, version, producer_id=123_456_789)
    end(run, producer, True, version, transactional_id=run.name("none"))
    end(run, producer, True, version, transactional_id="")
    add(run, producer, topic)
    end(run, producer, True, version)
    run.sleep(500)
    end(run, producer, True, version)
    end(run, producer, False, version)


@scenarios(END_TXN, versions=[5], cases={"commit": True, "abort": False})
def bumped_epoch(run: Run, version: int, commit: bool) -> None:
    """Since v5 EndTxn returns the epoch of the next transaction, and Produce v12 adds the partition."""
    topic, producer = run.topic(), init(run, 5)
    write(run, producer, topic, 0, b"a", version=12)
    producer = end(run, producer, commit, version)
    await_markers(run, topic, 2)
    write(run, producer, topic, 0, b"b", version=12)
    producer = end(run, producer, not commit, version)
    await_markers(run, topic, 4)
    read(run, topic, isolation_level=1)


@scenarios(END_TXN, versions=[5], cases={"commit": True, "abort": False})
def end_of_nothing(run: Run, version: int, commit: bool) -> None:
    """Since v5 an empty transaction may be aborted."""
    producer = init(run, 5)
    end(run, producer, commit, version)
    end(run, producer, commit, version)


@scenarios(PRODUCE, versions=[3, 9, 11])
def not_added(run: Run, version: int) -> None:
    """Before v12 a partition must be added to the transaction."""
    topic, producer = run.topic(), init(run)
    write(run, producer, topic, 0, b"a", version=version)


@scenarios(PRODUCE, versions=[9, 11])
def fenced_producer(run: Run, version: int) -> None:
    """A producer is fenced by the next one, which aborts its transaction."""
    topic, old = run.topic(), init(run)
    add(run, old, topic)
    write(run, old, topic, 0, b"a", version=version)
    new = init(run)
    await_markers(run, topic, 2)
    write(run, old, topic, 1, b"b", version=version)
    add(run, old, topic)
    end(run, old, True)
    add(run, new, topic)
    write(run, new, topic, 0, b"c", version=version)
    end(run, new, True)
    await_markers(run, topic, 4)
    read(run, topic, isolation_level=1)


@scenarios(PRODUCE, versions=[9])
def plain_batch_in_a_transaction(run: Run, version: int) -> None:
    """A transactional producer sends a batch that is not transactional."""
    topic, producer = run.topic(), init(run)
    add(run, producer, topic)
    produce(run, version, topic, idempotent(producer, 0, b"a"), transactional_id=run.name("x"))
    write(run, producer, topic, 0, b"a")


@scenarios(cases=["aborted-first", "interleaved"])
def two_producers(run: Run, order: str) -> None:
    """Transactions of two producers in one partition: the last stable offset and the aborted list."""
    topic = run.topic()
    first, second = init(run), init(run, transactional_id=run.name("y"))
    add(run, first, topic)
    add(run, second, topic, transactional_id=run.name("y"))
    write(run, first, topic, 0, b"a")
    produce(run, 9, topic, idempotent(second, 0, b"b", transactional=True), transactional_id=run.name("y"))
    write(run, first, topic, 1, b"c")
    if order == "aborted-first":
        end(run, first, False)
        await_markers(run, topic, 1)
        read(run, topic, isolation_level=1)
        end(run, second, True, transactional_id=run.name("y"))
    else:
        end(run, second, True, transactional_id=run.name("y"))
        run.sleep(300)
        read(run, topic, isolation_level=1)
        end(run, first, False)
    await_markers(run, topic, 5)
    read(run, topic, isolation_level=1)
    read(run, topic, 3, isolation_level=1)
    read(run, topic, 4, isolation_level=1)


@scenarios()
def timed_out(run: Run) -> None:
    """A transaction that takes too long is aborted, and its producer fenced."""
    topic, producer = run.topic(), init(run, transaction_timeout_ms=1000)
    add(run, producer, topic)
    write(run, producer, topic, 0, b"a")
    await_markers(run, topic, 2)
    read(run, topic, isolation_level=1)
    end(run, producer, True)


# --- offsets in transactions --------------------------------------------------------------------------------


def commit_offset(run: Run, producer: Any, topic: str, version: int = 3, **fields: Any) -> Any:
    """Record the response to TxnOffsetCommit."""
    partition = TxnOffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0), committed_offset=11, committed_metadata="m"
    )
    topic_id = run.topic_id(topic) if version >= 6 else bytes(16)
    rows = [TxnOffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])]
    known = {**fields_of(run, producer), "group_id": run.name("g"), "topics": rows}
    return run.call(TXN_OFFSET_COMMIT, version, **{**known, **fields})


def await_stable(run: Run, topic: str) -> None:
    """Wait until no transaction has offsets of the group that are not committed."""
    run.sleep(500)
    committed(run, 7, {topic: [0]}, require_stable=True)


@scenarios(TXN_OFFSET_COMMIT, versions=range(5), cases={"commit": True, "abort": False})
def offsets_in_a_transaction(run: Run, version: int, commit: bool) -> None:
    """Offsets are committed with the transaction; before, stable offsets are not known."""
    topic, producer = run.topic(), init(run)
    run.call(ADD_OFFSETS_TO_TXN, 3, **fields_of(run, producer), group_id=run.name("g"))
    commit_offset(run, producer, topic, version)
    committed(run, 7, {topic: [0]})
    committed(run, 7, {topic: [0]}, require_stable=True)
    end(run, producer, commit)
    await_stable(run, topic)


@scenarios(ADD_OFFSETS_TO_TXN)
def adding_offsets(run: Run, version: int) -> None:
    """A group is added to a transaction; the wrong epoch, id, transactional id and group."""
    producer = init(run)
    known = {**fields_of(run, producer), "group_id": run.name("g")}
    run.call(ADD_OFFSETS_TO_TXN, version, **known)
    for wrong in (
        {"producer_epoch": 9},
        {"producer_id": 123_456_789},
        {"transactional_id": run.name("none")},
        {"transactional_id": ""},
        {"group_id": ""},
    ):
        run.call(ADD_OFFSETS_TO_TXN, version, **{**known, **wrong})


MEMBERS = {
    "generation": {"generation_id_or_member_epoch": 3},
    "member": {"member_id": "m", "generation_id_or_member_epoch": 1},
    "instance": {"member_id": "m", "group_instance_id": "i", "generation_id_or_member_epoch": 1},
}


@scenarios(TXN_OFFSET_COMMIT, versions=[3, 4], cases=MEMBERS)
def offsets_of_a_stranger(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Since v3 the member is checked."""
    topic, producer = run.topic(), init(run)
    run.call(ADD_OFFSETS_TO_TXN, 3, **fields_of(run, producer), group_id=run.name("g"))
    commit_offset(run, producer, topic, version, **fields)


@scenarios(TXN_OFFSET_COMMIT, versions=[0, 3, 4])
def wrong_offset_commit(run: Run, version: int) -> None:
    """TxnOffsetCommit without AddOffsetsToTxn, of unknown partitions, and to the group without a name."""
    topic, producer = run.topic(), init(run)
    commit_offset(run, producer, topic, version)
    run.call(ADD_OFFSETS_TO_TXN, 3, **fields_of(run, producer), group_id=run.name("g"))
    commit_offset(run, producer, topic, version, partition=7)
    commit_offset(run, producer, run.name("none"), version)
    commit_offset(run, producer, topic, version, group_id="")
    commit_offset(run, producer, topic, version, producer_epoch=5)


@scenarios(TXN_OFFSET_COMMIT, versions=[5, 6])
def offsets_without_adding(run: Run, version: int) -> None:
    """Since v5 TxnOffsetCommit adds the group to the transaction."""
    topic, producer = run.topic(), init(run, 5)
    commit_offset(run, producer, topic, version)
    end(run, producer, True, 5)
    await_stable(run, topic)
