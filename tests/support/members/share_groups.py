"""Share groups in tests: their configuration at a broker, and consumers of them."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Mapping
from typing import Any

from kconsumer import ConsumerRecords, ShareConsumer, ShareRecord
from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.lock import Clock, Timer
from kconsumer._core.wire import FrameBuffer
from kconsumer.schema.topics import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP_RESOURCE = 32  # confluent-kafka cannot name this kind of resource
_numbers = itertools.count(1)


def configure_group(bootstrap_servers: str, group: str, config: Mapping[str, str]) -> None:
    """Set the configuration of a group at its brokers."""
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE,
        resource_name=group,
        configs=[AlterableConfig(name=name, config_operation=0, value=value) for name, value in config.items()],
    )
    host, port = bootstrap_servers.split(",")[0].split(":")
    message = IncrementalAlterConfigsRequest(resources=[resource])
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(encode_request(INCREMENTAL_ALTER_CONFIGS, 1, next(_numbers), "tests", message))
        buffer = FrameBuffer()
        frames: list[Any] = []
        while not frames:
            frames = buffer.received(connection.recv_into(buffer.recv_view()))
        _, response = decode_response(INCREMENTAL_ALTER_CONFIGS, 1, frames[0])
    errors = [row.error_message for row in response.responses if row.error_code]
    assert [] == errors


def poll_records(consumer: ShareConsumer, count: int, timeout_s: float = 30.0) -> list[ShareRecord]:
    """Returns the records of one poll after the other, until there are `count` of them."""
    found: list[ShareRecord] = []
    timer = Timer(Clock(), timeout_s * 1000)
    while len(found) < count and not timer.expired:
        found += share_records(consumer.poll(1.0))
    assert len(found) >= count, f"{len(found)} of {count} records after {timeout_s} s"
    return found


def share_records(records: ConsumerRecords) -> list[ShareRecord]:
    """Returns the records of a poll."""
    return [record for record in records if isinstance(record, ShareRecord)]
