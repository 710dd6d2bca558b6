"""The Java client, measured in two ways.

`performance` is Kafka's own ConsumerPerformance: an empty loop over poll's records.  Its fetch time leaves out
joining the group, as the clocks of the others leave out connecting; it includes the JVM's warming up, which in a
short run is most of it.  `warm` is PollLoop.java, which touches each value and times a second pass.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.data import java_command
from support.kafka_jars import TOOLS_VERSION

PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
POLL_LOOP = str(Path(__file__).with_name("PollLoop.java"))


def run(command: list[str]) -> tuple[str, dict[str, Any]]:
    """The tool's last two lines, and what it used."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tool:
        assert tool.stdout is not None
        output = tool.stdout.read().strip()
        _pid, status, usage = os.wait4(tool.pid, 0)
        tool.returncode = os.waitstatus_to_exitcode(status)
    if tool.returncode:
        raise RuntimeError(f"{command} failed:\n{output}")
    used = {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,  # of the whole process: both passes, compiler, collector
        "peak_rss_mb": usage.ru_maxrss * 1024 / 1e6,
        "version": TOOLS_VERSION,
    }
    return output, used


def performance(bootstrap: str, topic: str, total: str) -> dict[str, Any]:
    """ConsumerPerformance's figures; its bytes are of keys and values."""
    options = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", total]
    output, used = run(java_command(PERFORMANCE, *options))
    header, values = (re.split(r",\s*", line) for line in output.splitlines()[-2:])
    figures = dict(zip(header, values, strict=True))
    return {
        "seconds": float(figures["fetch.time.ms"]) / 1000,
        "records": int(figures["data.consumed.in.nMsg"]),
        "bytes": int(float(figures["data.consumed.in.MB"]) * (1 << 20)),
        **used,
    }


def warm(*arguments: str) -> dict[str, Any]:
    """PollLoop's figures."""
    output, used = run(java_command(POLL_LOOP, *arguments))
    return {**json.loads(output.splitlines()[-1]), **used}


if __name__ == "__main__":
    print(json.dumps(warm(*sys.argv[1:5]) if "warm" in sys.argv[5:] else performance(*sys.argv[1:4])))
