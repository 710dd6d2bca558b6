"""The limit of latency: one socket that fetches one partition, without a client around it.

With `ahead`, the next request is sent before the records are returned, as by clients that fetch while their caller
processes records.
"""

from __future__ import annotations

import socket
from typing import Any

from peers import Record

from kconsumer import decode_batches
from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.wire import FrameBuffer
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

VERSION = 12  # the last version with names of topics
PARTITION_BYTES = 1 << 20
WAIT_MS = 500  # fetch.max.wait.ms, the default of every client


class BarePeer:
    """Reads partition 0 of a topic from its beginning, with the methods that `delay.py` needs."""

    def __init__(self, bootstrap: str, *, ahead: bool = False) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.version = f"Fetch v{VERSION}"
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameBuffer()
        self._topic, self._offset = "", 0
        self._ahead, self._in_flight = ahead, False

    def subscribe(self, topic: str, _group: str, *, at_end: bool = False) -> None:
        self._topic = topic

    def read(self, _seconds: float) -> list[Record]:
        if not self._in_flight:
            self._send()
        while not (frames := self._frames.received(self._socket.recv_into(self._frames.recv_view()))):
            pass
        response: Any = decode_response(FETCH, VERSION, frames[0])[1]
        found = decode_batches(response.responses[0].partitions[0].records or b"", start_offset=self._offset)
        records = [(0, record.offset, record.value or b"") for record in found]
        self._offset = records[-1][1] + 1 if records else self._offset
        self._in_flight = False
        if self._ahead:
            self._send()
        return records

    def _send(self) -> None:
        self._socket.sendall(encode_request(FETCH, VERSION, 0, "bare", self._request()))
        self._in_flight = True

    def _request(self) -> FetchRequest:
        asked = FetchPartition(partition=0, fetch_offset=self._offset, partition_max_bytes=PARTITION_BYTES)
        topics = [FetchTopic(topic=self._topic, partitions=[asked])]
        return FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=PARTITION_BYTES, topics=topics)

    def close(self) -> None:
        self._socket.close()
