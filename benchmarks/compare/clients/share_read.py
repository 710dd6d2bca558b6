"""Reads a topic once as a member of a share group, and prints a line of JSON: seconds, CPU seconds, records, bytes.

    python share_read.py poll|arrow|confluent|bare|bare-ahead SERVERS TOPIC GROUP RECORDS

The clock starts when the first records arrive, and these are not counted. All accept what they have received in
implicit mode. `bare` exchanges requests for 500 records over a socket, and decodes no records: no client can be faster
that waits for a response before it sends the next request, and that requests no more. `bare-ahead` has always two
requests in flight.
"""

from __future__ import annotations

import json
import socket
import sys
import time
import uuid
from collections.abc import Callable, Generator
from typing import Any


def poll(servers: str, topic: str, group: str) -> Generator[tuple[int, int], None, None]:
    """kconsumer, records one by one."""
    from kconsumer import ShareConsumer

    with ShareConsumer(topic, bootstrap_servers=servers, group_id=group) as consumer:
        while True:
            records = consumer.poll(1.0)
            size = 0
            for record in records:
                size += len(record.value or b"")
            yield len(records), size


def arrow(servers: str, topic: str, group: str) -> Generator[tuple[int, int], None, None]:
    """kconsumer, columns."""
    from kconsumer import ShareConsumer

    with ShareConsumer(topic, bootstrap_servers=servers, group_id=group) as consumer:
        while True:
            batch = consumer.poll_arrow(1.0)
            yield len(batch), 0


def confluent(servers: str, topic: str, group: str) -> Generator[tuple[int, int], None, None]:
    """The share consumer of confluent-kafka."""
    import confluent_kafka

    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([topic])
    try:
        while True:
            messages = consumer.poll(1.0)
            size = 0
            for message in messages:
                size += len(message.value())
            yield len(messages), size
    finally:
        consumer.close()


def bare(servers: str, topic: str, group: str, depth: int = 1) -> Generator[tuple[int, int], None, None]:
    """ShareFetch requests with `depth` of them in flight. Yields acquired offsets, and the bytes of responses."""
    from kconsumer._core.codec import decode_response, encode_request
    from kconsumer.schema.metadata import (
        FIND_COORDINATOR,
        METADATA,
        FindCoordinatorRequest,
        MetadataRequest,
        MetadataRequestTopic,
    )
    from kconsumer.schema.share_group import (
        SHARE_FETCH,
        SHARE_GROUP_HEARTBEAT,
        ShareFetchAcknowledgementBatch,
        ShareFetchPartition,
        ShareFetchRequest,
        ShareFetchTopic,
        ShareGroupHeartbeatRequest,
    )

    host, port = servers.split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    member = str(uuid.uuid4())

    def send(api: Any, message: Any, version: int) -> None:
        connection.sendall(encode_request(api, version, 1, "bare", message))

    def receive(api: Any, version: int) -> tuple[Any, int]:
        size = int.from_bytes(_exactly(connection, 4))
        return decode_response(api, version, _exactly(connection, size))[1], size

    send(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    (row,) = receive(METADATA, 12)[0].topics
    send(FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)  # creates its topic
    receive(FIND_COORDINATOR, 4)
    partitions, epoch = [part.partition_index for part in row.partitions], 0
    while True:
        names = None if epoch else [topic]
        beat = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
        )
        send(SHARE_GROUP_HEARTBEAT, beat, 1)
        found = receive(SHARE_GROUP_HEARTBEAT, 1)[0]
        epoch = found.member_epoch
        if found.assignment is not None and found.assignment.topic_partitions:
            break
        time.sleep(0.5)  # the coordinator assigns partitions a moment after the member has joined

    version, session = 2, 0
    acquired: dict[int, list[tuple[int, int]]] = {}

    def fetch() -> None:
        nonlocal session, acquired
        asked = partitions if session == 0 else sorted(acquired)
        rows = [
            ShareFetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    ShareFetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1])
                    for first, last in acquired.get(index, ())
                ],
            )
            for index in asked
        ]
        message = ShareFetchRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=session,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=52_428_800,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchTopic(topic_id=row.topic_id, partitions=rows)] if rows else [],
        )
        acquired = {}
        session += 1
        send(SHARE_FETCH, message, version)

    for _ in range(depth):
        fetch()
    while True:
        response, size = receive(SHARE_FETCH, version)
        count = 0
        for answered in response.responses:
            for part in answered.partitions:
                ranges = [(r.first_offset, r.last_offset) for r in part.acquired_records]
                if ranges:
                    acquired.setdefault(part.partition_index, []).extend(ranges)
                    count += sum(last - first + 1 for first, last in ranges)
        fetch()
        yield count, size


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Returns the next bytes of a connection."""
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        at += connection.recv_into(view[at:])
    return bytes(data)


def bare_ahead(servers: str, topic: str, group: str) -> Generator[tuple[int, int], None, None]:
    """The same with two requests in flight."""
    return bare(servers, topic, group, depth=2)


WAYS: dict[str, Callable[[str, str, str], Generator[tuple[int, int], None, None]]] = {
    "poll": poll,
    "arrow": arrow,
    "confluent": confluent,
    "bare": bare,
    "bare-ahead": bare_ahead,
}


def main() -> None:
    """Read the topic, and print the result."""
    way, servers, topic, group, total = sys.argv[1:]
    batches = WAYS[way](servers, topic, group)
    skipped = 0
    while not skipped:
        skipped, _ = next(batches)
    records = size = 0
    start, cpu = time.perf_counter(), time.process_time()
    while skipped + records < int(total):
        count, more = next(batches)
        records += count
        size += more
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    batches.close()
    print(json.dumps({"seconds": seconds, "cpu": used, "records": records, "bytes": size}))


if __name__ == "__main__":
    main()
