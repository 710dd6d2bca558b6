"""The limit: a blocking socket that fetches and only counts, looking at nothing but batch headers.

Two fetches are on their way at any time, each for half of the partitions, so the broker reads one while this process
receives the other.  No CRC, no decompression, no records.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from meter import Meter

from kconsumer._core.codec import decode_response, encode_request
from kconsumer._core.wire import FrameBuffer
from kconsumer.schema import FETCH
from kconsumer.schema.fetch import FetchPartition, FetchRequest, FetchTopic

VERSION = 12  # the last that names topics; later ones need a Metadata request for the topic's id
FETCH_BYTES, PARTITION_BYTES = 50 << 20, 1 << 20
BATCH_HEADER = struct.Struct(">qiibihi")  # base offset, length, leader epoch, magic, crc, attributes, last delta


class BareFetcher:
    """One connection and the next offset of every partition."""

    def __init__(self, meter: Meter) -> None:
        host, port = meter.bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.topic = meter.topic
        self.offsets = dict.fromkeys(meter.partitions, 0)
        self.frames = FrameBuffer()

    def request(self, partitions: list[int]) -> None:
        """Send a fetch of these partitions from where they are."""
        asked = [
            FetchPartition(partition=p, fetch_offset=self.offsets[p], partition_max_bytes=PARTITION_BYTES)
            for p in partitions
        ]
        message = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=self.topic, partitions=asked)],
        )
        self.socket.sendall(encode_request(FETCH, VERSION, partitions[0], "bare", message))

    def responses(self) -> Iterator[object]:
        """Decoded fetch responses as they arrive."""
        while True:
            received = self.socket.recv_into(self.frames.recv_view())
            if not received:
                raise ConnectionError("the broker closed the connection")
            for frame in self.frames.received(received):
                yield decode_response(FETCH, VERSION, frame)[1]

    def count(self, response: object) -> tuple[list[int], int, int]:
        """The partitions answered, their records, and their batches' bytes."""
        seen, records, size = [], 0, 0
        for partition in response.responses[0].partitions:
            if partition.error_code:
                raise RuntimeError(f"fetch failed with error code {partition.error_code}")
            found, used = self.count_batches(partition.partition_index, partition.records or b"")
            seen.append(partition.partition_index)
            records, size = records + found, size + used
        return seen, records, size

    def count_batches(self, partition: int, data: object) -> tuple[int, int]:
        """Step over whole batches; by offsets, which in these topics count records."""
        view, at, start = memoryview(data), 0, self.offsets[partition]
        while at + 61 <= len(view):
            base, length, _epoch, _magic, _crc, _attributes, last = BATCH_HEADER.unpack_from(view, at)
            if at + 12 + length > len(view):
                break
            at += 12 + length
            self.offsets[partition] = base + last + 1
        return self.offsets[partition] - start, at


def main() -> None:
    """Read the topic once."""
    meter = Meter()
    fetcher = BareFetcher(meter)
    half = len(meter.partitions) // 2
    fetcher.request(list(meter.partitions[:half]))
    fetcher.request(list(meter.partitions[half:]))
    for response in fetcher.responses():
        partitions, records, size = fetcher.count(response)
        meter.add(records, size)
        if meter.done:
            break
        fetcher.request(partitions)
    meter.report(f"Fetch v{VERSION}")
    fetcher.socket.close()


main()
