"""The limit of throughput: sockets that fetch and count records by batch headers only.

Each of two connections fetches half of the partitions, so the broker prepares and sends one response while this process
receives the other. Two requests on one connection would not overlap, because the broker handles them in order.
Frames are received into reused blocks. There is no CRC, no decompression and no record object.

With the word `one` there is one connection, as a client has to each broker: the limit of a client that keeps the order
of the protocol.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Sequence
from typing import Any

from meter import Meter

from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.wire import FrameBuffer
from kconsumer.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

VERSION = 12  # the last version with names of topics; later ones need a Metadata request for the topic id
FETCH_BYTES, PARTITION_BYTES = 50 << 20, 1 << 20
BATCH_HEADER = struct.Struct(">qiibihi")  # base offset, length, leader epoch, magic, crc, attributes, last delta


class BareFetcher:
    """One connection, and the next offset of each of its partitions."""

    def __init__(self, meter: Meter, partitions: Sequence[int]) -> None:
        host, port = meter.bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.meter = meter
        self.offsets = dict.fromkeys(partitions, 0)
        self.frames = FrameBuffer()

    def request(self) -> None:
        """Send a Fetch request for all partitions at their next offsets."""
        asked = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
            for partition, offset in self.offsets.items()
        ]
        message = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=self.meter.topic, partitions=asked)],
        )
        self.socket.sendall(encode_request(FETCH, VERSION, 0, "bare", message))

    def receive(self) -> None:
        """Receive bytes. For a complete response, count its records and send the next request."""
        received = self.socket.recv_into(self.frames.recv_view())
        if not received:
            raise ConnectionError("the broker closed the connection")
        for frame in self.frames.received(received):
            records, size = self.count(decode_response(FETCH, VERSION, frame)[1])
            self.request()
            self.meter.add(records, size)

    def count(self, response: Any) -> tuple[int, int]:
        """Return the number of records in a response, and the bytes of their batches."""
        records = size = 0
        for partition in response.responses[0].partitions:
            if partition.error_code:
                raise RuntimeError(f"fetch failed with error code {partition.error_code}")
            found, used = self.count_batches(partition.partition_index, partition.records or b"")
            records, size = records + found, size + used
        return records, size

    def count_batches(self, partition: int, data: Any) -> tuple[int, int]:
        """Step over complete batches. Returns records and bytes. In these topics offsets count records."""
        view, at, start = memoryview(data), 0, self.offsets[partition]
        offset = start
        while at + 61 <= len(view):
            base, length, _epoch, _magic, _crc, _attributes, last = BATCH_HEADER.unpack_from(view, at)
            if at + 12 + length > len(view):
                break
            at += 12 + length
            offset = base + last + 1
        self.offsets[partition] = offset
        return offset - start, at


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    half = len(meter.partitions) // 2
    shares = (meter.partitions,) if "one" in meter.words else (meter.partitions[:half], meter.partitions[half:])
    with selectors.DefaultSelector() as selector:
        for partitions in shares:
            fetcher = BareFetcher(meter, partitions)
            selector.register(fetcher.socket, selectors.EVENT_READ, fetcher)
            fetcher.request()
        while not meter.done:
            for key, _ in selector.select():
                key.data.receive()
        meter.report(f"Fetch v{VERSION}")


main()
