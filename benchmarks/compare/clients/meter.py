"""The common part of the Python clients: arguments, clock, and the line of JSON.

Arguments are broker, topic, number of records and of partitions, and words: `committed` for read_committed, `headers`
to touch headers as well, `threaded` and `consumer` for kconsumer's threaded engine, without a group and as the only
member of a group with the consumer protocol.

The clock starts when the first records arrive, and these are not counted, so connecting and joining do not count. The
peak of resident memory is VmHWM of the process: getrusage would include the size of its parent at the fork.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kconsumer import Consumer


class Meter:
    """Counts records and bytes of values until the whole topic was read."""

    def __init__(self) -> None:
        self.bootstrap, self.topic, total, partitions = sys.argv[1:5]
        self.total, self.partitions = int(total), range(int(partitions))
        self.words = frozenset(sys.argv[5:])
        self.ca = os.environ.get("KCONSUMER_BENCHMARK_CA")  # connections are encrypted if it is set
        self.isolation = "read_committed" if "committed" in self.words else "read_uncommitted"
        self.records = self.bytes = self.skipped = 0
        self._start = self._cpu = 0.0

    def kconsumer(self) -> Consumer:
        """Create a consumer that reads the topic, with the engine that the words select."""
        from kconsumer import Consumer, TopicPartition

        options = {"auto_offset_reset": "earliest", "isolation_level": self.isolation}
        if self.ca is not None:
            options |= {"security_protocol": "SSL", "ssl_cafile": self.ca}
        if "consumer" in self.words:
            group = f"compare-{uuid.uuid4().hex[:8]}"
            options |= {"group_protocol": "consumer", "group_id": group}
            return Consumer(self.topic, bootstrap_servers=self.bootstrap, **options)
        if "threaded" in self.words:
            options["engine"] = "threaded"
        consumer = Consumer(bootstrap_servers=self.bootstrap, **options)
        consumer.assign([TopicPartition(self.topic, partition) for partition in self.partitions])
        return consumer

    @property
    def done(self) -> bool:
        """Whether every record was read."""
        return self.skipped + self.records >= self.total

    def add(self, records: int, size: int) -> None:
        """Count the records of a poll and the bytes of their values."""
        if self._start:
            self.records += records
            self.bytes += size
        elif records:
            self.skipped = records
            self._start, self._cpu = time.perf_counter(), time.process_time()

    def report(self, version: str) -> None:
        """Print the figures as one line of JSON."""
        result = {
            "seconds": time.perf_counter() - self._start,
            "cpu_seconds": time.process_time() - self._cpu,
            "records": self.records,
            "bytes": self.bytes,
            "peak_rss_mb": peak_rss_mb(),
            "version": version,
        }
        print(json.dumps(result))


def peak_rss_mb() -> float:
    """Return the peak of resident memory of this process, in MB."""
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6
