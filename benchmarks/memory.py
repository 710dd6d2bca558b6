"""Measures memory while a backlog is read slowly (`python benchmarks/memory.py`): RSS above idle and `buffer_memory`.

Each row is a process that reads a topic of 1 GB and pauses after each poll, so that the buffer is always full. Exits
with 1 if a process takes more than `buffer_memory` plus 40 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
READER = ROOT / "tests" / "support" / "oracles" / "memory_reader.py"

MB = 1_000_000
ALLOWED_OVER_BUFFER = 40 * MB
VALUE_BYTES = 1000
PARTITIONS = 64
CODECS = ("none", "lz4", "zstd")
BUFFERS = (8 << 20, 64 << 20)


def values(megabytes: int) -> Iterator[bytes]:
    """Yield values of a number and many zeros. 1 MB of them compresses to a few KB."""
    return (b"%012d" % number + bytes(VALUE_BYTES - 12) for number in range(megabytes * MB // VALUE_BYTES))


def run(servers: str, topic: str, buffer_memory: int, pause_s: float) -> dict[str, float]:
    """Take one reading in a new process."""
    command = [sys.executable, str(READER), servers, topic, str(buffer_memory), str(pause_s)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "assignors"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Start a broker, fill its topics, and read each topic with each size of the buffer."""
    from support.brokers.kafka import JVM_FULL, KafkaCluster

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="uncompressed size of each topic")
    parser.add_argument("--pause", type=float, default=0.005, help="seconds after each poll")
    parser.add_argument("--only", choices=CODECS, action="append", help="read only this topic")
    args = parser.parse_args()
    # Batches of the largest size that a broker accepts by default, before compression.
    settings: dict[str, Any] = {"linger.ms": 200, "batch.size": MB, "queue.buffering.max.kbytes": 65_536}
    worst = 0.0
    print("| codec | buffer_memory MiB | RSS idle MB | over idle MB | over idle and buffer MB | counted MB |")
    print("|---|---:|---:|---:|---:|---:|")
    with KafkaCluster(jvm=JVM_FULL) as kafka:
        for codec in args.only or CODECS:
            topic = kafka.create_topic(f"backlog-{codec}", PARTITIONS)
            kafka.produce(topic, values(args.megabytes), compression=codec, config=settings)
            for buffer_memory in BUFFERS:
                found = run(kafka.bootstrap_servers, topic, buffer_memory, args.pause)
                over = found["peak"] - found["idle"]
                worst = max(worst, over - buffer_memory)
                print(
                    f"| {codec} | {buffer_memory >> 20} | {found['idle'] / MB:.0f} | {over / MB:.0f}"
                    f" | {(over - buffer_memory) / MB:+.0f} | {found['counted'] / MB:.0f} |",
                    flush=True,
                )
    return 0 if worst <= ALLOWED_OVER_BUFFER else 1


if __name__ == "__main__":
    sys.exit(main())
