"""Scenarios of Fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kconsumer.schema.fetch import FETCH, FetchPartition, FetchTopic, ForgottenTopic
from kconsumer.schema.topics import DELETE_RECORDS, DELETE_TOPICS, DeleteRecordsPartition, DeleteRecordsTopic
from kconsumer.testing.batches import build_batch
from support.scenarios.metadata import UNKNOWN_ID
from support.scenarios.scenario import TIMESTAMP, Run, scenarios

SOME_VERSIONS = [4, 7, 11, 12, 13, 17, 18]


def named(run: Run, version: int, topic: str) -> dict[str, Any]:
    """Returns the field that names a topic: the name, or since v13 the id."""
    return {"topic_id": run.topic_id(topic)} if version >= 13 else {"topic": topic}


def partition(index: int, offset: int, **fields: Any) -> FetchPartition:
    """Returns the row of one partition."""
    return FetchPartition(partition=index, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields})


def fetch(run: Run, version: int, topic: str | None, rows: Sequence[FetchPartition] = (), **fields: Any) -> Any:
    """Record the response to a Fetch of partitions of one topic, which does not wait unless `fields` say so."""
    topics = [] if topic is None else [FetchTopic(**named(run, version, topic), partitions=list(rows))]
    return run.call(FETCH, version, **{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


@scenarios(FETCH)
def two_partitions(run: Run, version: int) -> None:
    """A partition with records and an empty one."""
    topic = run.topic(partitions=2)
    run.produce_values(topic, b"one", b"two", b"three")
    fetch(run, version, topic, [partition(0, 0), partition(1, 0)])
    fetch(run, version, topic, [partition(0, 2)])


@scenarios(FETCH, versions=[4, 11, 12, 13, 18], cases={"end": 2, "beyond": 3, "far": 1 << 40, "negative": -1})
def offsets(run: Run, version: int, offset: int) -> None:
    """The end of the log, and offsets out of range."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two")
    fetch(run, version, topic, [partition(0, offset)])


@scenarios(FETCH, versions=[4, 12, 18])
def before_the_start(run: Run, version: int) -> None:
    """Offsets below the log start offset are out of range."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two", b"three")
    rows = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])]
    run.prepare(DELETE_RECORDS, 1, topics=rows, timeout_ms=5000)
    for offset in (1, 2):
        fetch(run, version, topic, [partition(0, offset)])


@scenarios(FETCH, versions=[4, 13])
def middle_of_a_batch(run: Run, version: int) -> None:
    """A fetch in the middle of a batch gets the whole batch."""
    topic = run.topic()
    run.produce(topic, build_batch([b"a", b"b", b"c"], timestamp=TIMESTAMP), build_batch([b"d"], timestamp=TIMESTAMP))
    fetch(run, version, topic, [partition(0, 1)])
    fetch(run, version, topic, [partition(0, 3)])


@scenarios(FETCH, versions=SOME_VERSIONS)
def unknown(run: Run, version: int) -> None:
    """A partition that does not exist, a topic that does not, and both with one that does."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    fetch(run, version, topic, [partition(5, 0), partition(0, 0), partition(-1, 0)])
    absent = {"topic_id": UNKNOWN_ID} if version >= 13 else {"topic": run.name("none")}
    rows = [FetchTopic(**absent, partitions=[partition(0, 0)])]
    run.call(FETCH, version, max_wait_ms=0, min_bytes=1, topics=rows)
    rows.append(FetchTopic(**named(run, version, topic), partitions=[partition(0, 0)]))
    run.call(FETCH, version, max_wait_ms=0, min_bytes=1, topics=rows)


SIZES = {"zero": 0, "one": 1, "first-batch": 75, "two-batches": 150, "between": 100}


@scenarios(FETCH, versions=[4, 12], cases=SIZES)
def partition_max_bytes(run: Run, version: int, size: int) -> None:
    """The first batch is returned even if it is larger than the limit of the partition."""
    topic = run.topic()
    run.produce_values(topic, b"1234567", b"1234567", b"1234567")
    fetch(run, version, topic, [partition(0, 0, partition_max_bytes=size)])


@scenarios(FETCH, versions=[4, 12], cases=SIZES)
def max_bytes(run: Run, version: int, size: int) -> None:
    """The limit of the response holds for all partitions together."""
    topic = run.topic(partitions=3)
    for index in range(3):
        run.produce_values(topic, b"1234567", b"1234567", partition=index)
    fetch(run, version, topic, [partition(i, 0) for i in range(3)], max_bytes=size)


@scenarios(FETCH, versions=[7, 12, 18])
def order_of_partitions(run: Run, version: int) -> None:
    """Partitions are read in the order of the request, until the limit of the response is reached."""
    topic = run.topic(partitions=3)
    for index in range(3):
        run.produce_values(topic, b"1234567", b"1234567", partition=index)
    fetch(run, version, topic, [partition(i, 0) for i in (2, 0, 1)], max_bytes=160)


@scenarios(FETCH, versions=[4, 12])
def min_bytes(run: Run, version: int) -> None:
    """A fetch waits for min_bytes, at most max_wait_ms."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    ticket = run.send(FETCH, version, max_wait_ms=600, min_bytes=100_000, topics=_topic(topic, partition(0, 0)))
    run.waits(ticket)
    run.receive(ticket)


@scenarios(FETCH, versions=[4, 12])
def produced_while_waiting(run: Run, version: int) -> None:
    """A fetch that waits gets a response when there are enough bytes."""
    topic = run.topic()
    rows = _topic(topic, partition(0, 0))
    ticket = run.send(FETCH, version, client="waiting", max_wait_ms=20_000, min_bytes=1, topics=rows)
    run.waits(ticket)
    run.produce_values(topic, b"one")
    run.receive(ticket)


@scenarios(FETCH, versions=[12])
def deleted_while_waiting(run: Run, version: int) -> None:
    """A fetch that waits for a topic that is deleted."""
    topic = run.topic()
    rows = _topic(topic, partition(0, 0))
    ticket = run.send(FETCH, version, client="waiting", max_wait_ms=20_000, min_bytes=1, topics=rows)
    run.prepare(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=5000)
    run.receive(ticket)


def _topic(topic: str, *rows: FetchPartition) -> list[FetchTopic]:
    return [FetchTopic(topic=topic, partitions=list(rows))]


@scenarios(FETCH, versions=[9, 12, 18], cases={"none": -1, "same": 0, "newer": 1, "much-newer": 40})
def current_leader_epoch(run: Run, version: int, epoch: int) -> None:
    """The leader epoch that a client knows is compared with the leader's."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    fetch(run, version, topic, [partition(0, 0, current_leader_epoch=epoch)])


@scenarios(FETCH, versions=[12, 18], cases={"same": (0, 1), "newer": (1, 1), "beyond": (0, 9), "unknown": (-1, 1)})
def last_fetched_epoch(run: Run, version: int, position: tuple[int, int]) -> None:
    """A position whose epoch the log does not have there is diverging."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two")
    epoch, offset = position
    fetch(run, version, topic, [partition(0, offset, last_fetched_epoch=epoch, current_leader_epoch=0)])


@scenarios(FETCH, versions=[4, 11, 18], cases={"uncommitted": 0, "committed": 1})
def isolation(run: Run, version: int, level: int) -> None:
    """The list of aborted transactions is null if the client reads uncommitted records."""
    topic = run.topic()
    run.produce_values(topic, b"one")
    fetch(run, version, topic, [partition(0, 0)], isolation_level=level)
    fetch(run, version, topic, [partition(0, 1)], isolation_level=level)


@scenarios(FETCH, versions=[4, 12, 18])
def nothing(run: Run, version: int) -> None:
    """A request without topics."""
    fetch(run, version, None)


@scenarios(FETCH, versions=[4, 9, 10, 12])
def zstd(run: Run, version: int) -> None:
    """Batches compressed with zstd need v10."""
    topic = run.topic()
    run.produce(topic, build_batch([b"a" * 100], timestamp=TIMESTAMP, codec="zstd"))
    fetch(run, version, topic, [partition(0, 0)])


@scenarios(FETCH, versions=[4, 9, 10, 12])
def zstd_topic(run: Run, version: int) -> None:
    """A topic that compresses with zstd needs v10."""
    topic = run.topic(compression_type="zstd")
    fetch(run, version, topic, [partition(0, 0)])


@scenarios(FETCH, versions=[12])
def partition_twice(run: Run, version: int) -> None:
    """A partition that a request names twice."""
    topic = run.topic()
    run.produce_values(topic, b"one", b"two")
    fetch(run, version, topic, [partition(0, 0), partition(0, 1)])


@scenarios(FETCH, versions=[15, 18], cases={"wrong": "nonsense"})
def cluster_id(run: Run, version: int, wrong: str) -> None:
    """A consumer may say which cluster it expects."""
    fetch(run, version, run.topic(), [partition(0, 0)], cluster_id=wrong)


# --- fetch sessions -----------------------------------------------------------------------------------------

SESSION_VERSIONS = [7, 11, 12, 13, 18]


def open_session(run: Run, version: int, topic: str, *rows: FetchPartition) -> int:
    """Record the response to the first fetch of a session. Returns the id of the session."""
    found: int = fetch(run, version, topic, rows, session_epoch=0).session_id
    return found


@scenarios(FETCH, versions=SESSION_VERSIONS)
def session(run: Run, version: int) -> None:
    """A response in a session has only partitions with changes."""
    topic = run.topic(partitions=2)
    run.produce_values(topic, b"one")
    number = open_session(run, version, topic, partition(0, 0), partition(1, 0))
    fetch(run, version, topic, [partition(0, 1)], session_id=number, session_epoch=1)
    run.produce_values(topic, b"two", partition=1)
    fetch(run, version, None, session_id=number, session_epoch=2)
    fetch(run, version, None, session_id=number, session_epoch=3)
    fetch(run, version, topic, [partition(1, 1)], session_id=number, session_epoch=4)


@scenarios(FETCH, versions=SESSION_VERSIONS)
def forgotten(run: Run, version: int) -> None:
    """A partition that is removed from a session."""
    topic = run.topic(partitions=2)
    number = open_session(run, version, topic, partition(0, 0), partition(1, 0))
    run.produce_values(topic, b"one")
    run.produce_values(topic, b"two", partition=1)
    rows = [ForgottenTopic(**named(run, version, topic), partitions=[0])]
    fetch(run, version, None, session_id=number, session_epoch=1, forgotten_topics_data=rows)


@scenarios(FETCH, versions=[7, 13])
def forgotten_unknown(run: Run, version: int) -> None:
    """A partition is removed that the session does not have; then the last one."""
    topic = run.topic(partitions=2)
    number = open_session(run, version, topic, partition(0, 0))
    for epoch, index in ((1, 1), (2, 0)):
        rows = [ForgottenTopic(**named(run, version, topic), partitions=[index])]
        fetch(run, version, None, session_id=number, session_epoch=epoch, forgotten_topics_data=rows)
    fetch(run, version, None, session_id=number, session_epoch=3)


EPOCHS = {"too-large": 2, "far": 7, "huge": (1 << 31) - 1}


@scenarios(FETCH, versions=[7, 12, 13], cases=EPOCHS)
def wrong_session_epoch(run: Run, version: int, epoch: int) -> None:
    """An epoch that is not the next one; the session remains."""
    topic = run.topic()
    number = open_session(run, version, topic, partition(0, 0))
    fetch(run, version, topic, [partition(0, 0)], session_id=number, session_epoch=epoch)
    fetch(run, version, None, session_id=number, session_epoch=1)


@scenarios(FETCH, versions=[7, 12, 13])
def unknown_session(run: Run, version: int) -> None:
    """A session that does not exist, and a full fetch with the id of a session."""
    topic = run.topic()
    fetch(run, version, topic, [partition(0, 0)], session_id=12_345, session_epoch=3)
    number = open_session(run, version, topic, partition(0, 0))
    fetch(run, version, topic, [partition(0, 0)], session_id=number, session_epoch=0)
    fetch(run, version, None, session_id=number, session_epoch=1)


@scenarios(FETCH, versions=[7, 12, 13])
def closed_session(run: Run, version: int) -> None:
    """The last epoch closes a session."""
    topic = run.topic()
    number = open_session(run, version, topic, partition(0, 0))
    fetch(run, version, topic, [partition(0, 0)], session_id=number, session_epoch=-1)
    fetch(run, version, None, session_id=number, session_epoch=1)


@scenarios(FETCH, versions=[7, 13])
def empty_session(run: Run, version: int) -> None:
    """A full fetch without partitions."""
    fetch(run, version, None, session_epoch=0)


@scenarios(FETCH, versions=[7, 12])
def session_with_an_error(run: Run, version: int) -> None:
    """A partition with an error is in every response of a session."""
    topic = run.topic()
    number = open_session(run, version, topic, partition(0, 9), partition(7, 0))
    fetch(run, version, None, session_id=number, session_epoch=1)
    fetch(run, version, topic, [partition(0, 0)], session_id=number, session_epoch=2)
    fetch(run, version, None, session_id=number, session_epoch=3)


@scenarios(FETCH, versions=[13, 18])
def session_with_an_unknown_id(run: Run, version: int) -> None:
    """A topic id that does not exist in a session."""
    topic = run.topic()
    rows = [
        FetchTopic(topic_id=UNKNOWN_ID, partitions=[partition(0, 0)]),
        FetchTopic(**named(run, version, topic), partitions=[partition(0, 0)]),
    ]
    number = run.call(FETCH, version, max_wait_ms=0, min_bytes=1, session_epoch=0, topics=rows).session_id
    fetch(run, version, None, session_id=number, session_epoch=1)


@scenarios(FETCH, versions=[12, 13])
def session_of_a_deleted_topic(run: Run, version: int) -> None:
    """A topic of a session is deleted."""
    topic = run.topic()
    number = open_session(run, version, topic, partition(0, 0))
    run.prepare(DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=5000)
    run.sleep(1000)
    fetch(run, version, None, session_id=number, session_epoch=1)


@scenarios(FETCH, versions=[7, 13])
def order_in_a_session(run: Run, version: int) -> None:
    """Partitions that had data go to the end of a session."""
    topic = run.topic(partitions=3)
    for index in range(3):
        run.produce_values(topic, b"1234567", b"1234567", b"1234567", partition=index)
    rows = [partition(i, 0) for i in range(3)]
    number = fetch(run, version, topic, rows, session_epoch=0, max_bytes=80).session_id
    for epoch in (1, 2, 3):
        fetch(run, version, None, session_id=number, session_epoch=epoch, max_bytes=80)


@scenarios(FETCH, versions=[12])
def session_after_disconnect(run: Run, version: int) -> None:
    """A session belongs to no connection."""
    topic = run.topic()
    number = open_session(run, version, topic, partition(0, 0))
    fetch(run, version, None, session_id=number, session_epoch=1, client="other")
