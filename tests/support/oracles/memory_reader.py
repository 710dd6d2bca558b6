"""A process that reads a topic to its end, slowly, and reports what memory that took.

    python memory_reader.py SERVERS TOPIC BUFFER_MEMORY PAUSE_S

Prints one JSON object: resident bytes before the first fetch (`idle`), at most (`peak`), at most the bytes that count
against `buffer_memory` (`counted`: all but what exceeds a half of it in the batch that the reader holds), records and
seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import kconsumer


def resident() -> int:
    """Returns the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident() -> int:
    """Returns the maximum of the resident bytes until now, as the kernel counts it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def main() -> None:
    """Read, and report."""
    servers, topic, buffer_memory, pause_s = sys.argv[1:]
    with kconsumer.Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", buffer_memory=int(buffer_memory)
    ) as consumer:
        partitions = [kconsumer.TopicPartition(topic, info.partition) for info in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        count = left = sum(consumer.end_offsets(partitions).values())
        memory = consumer._engine.components.buffer.memory
        idle, counted, started = resident(), 0, time.monotonic()
        while left:
            batch = consumer.poll(10.0)
            assert batch, consumer.partition_states()
            counted = max(counted, memory.used + memory.reserved)
            for record in batch:
                assert record.value
            left -= len(batch)
            time.sleep(float(pause_s))
        seconds = time.monotonic() - started
    found = {"idle": idle, "peak": most_resident(), "counted": counted, "records": count, "seconds": seconds}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
