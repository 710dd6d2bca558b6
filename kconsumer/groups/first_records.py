"""The request that reads the first record which a group has not committed yet, and how its response is parsed.

`manager.py` sends it. It is a Fetch request outside of fetch sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kconsumer._core.decode import PartitionFetch
from kconsumer._internal.managers import Reply
from kconsumer.errors import KafkaError
from kconsumer.fetching.session import LAST_VERSION_WITH_NAMES
from kconsumer.groups.manager import QueryKind
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchPartition, FetchPartitionData, FetchRequest, FetchTopic
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
