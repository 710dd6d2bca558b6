"""The Java client, measured in several ways.

`performance` is Kafka's own ConsumerPerformance: an empty loop over the records. Its fetch time excludes joining
the group, as the clocks of the other clients exclude connecting. It includes the warm-up of the JVM, which is most of a
short run. `warm` is PollLoop.java, which touches each value and measures a second pass. `steady` is Steady.java: many
partitions with few records. `delay` is Delay.java: the latency of records. `rate` is Rate.java: the CPU time at a rate.
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
from support.brokers.kafka_jars import TOOLS_VERSION

PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
POLL_LOOP = str(Path(__file__).with_name("PollLoop.java"))
STEADY = str(Path(__file__).with_name("Steady.java"))
DELAY = str(Path(__file__).with_name("Delay.java"))
RATE = str(Path(__file__).with_name("Rate.java"))
STEADY_WARM_UP_S = "15"  # its compiler needs longer than Python clients


def run(command: list[str]) -> tuple[str, dict[str, Any]]:
    """Run a tool. Returns its output, and its CPU time, memory and version."""
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
    """Run ConsumerPerformance. Returns its figures; its bytes are those of keys and values."""
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
    """Run PollLoop. Returns its figures."""
    output, used = run(java_command(POLL_LOOP, *arguments))
    return {**json.loads(output.splitlines()[-1]), **used}


def steady(*arguments: str) -> dict[str, Any]:
    """Run Steady. Returns its figures; its CPU time is that of the measured time."""
    output, used = run(java_command(STEADY, *arguments, STEADY_WARM_UP_S))
    return {**used, **json.loads(output.splitlines()[-1])}


def delay(*arguments: str) -> dict[str, Any]:
    """Run Delay. Returns its figures; its CPU time is that of the measured time."""
    output, used = run(java_command(DELAY, *arguments, heap="256m"))
    return {**used, **json.loads(output.splitlines()[-1])}


def rate(*arguments: str) -> dict[str, Any]:
    """Run Rate. Returns its figures; its CPU time is that of the measured time."""
    output, used = run(java_command(RATE, *arguments, heap="256m"))
    return {**used, **json.loads(output.splitlines()[-1])}


def main(arguments: list[str], words: list[str]) -> dict[str, Any]:
    """Run the tool that the words select."""
    if "delay" in words:
        return delay(*arguments, *(word for word in words if word != "delay"))
    if "rate" in words:
        return rate(*arguments, *(word for word in words if word != "rate"))
    if "steady" in words:
        return steady(*arguments)
    if "warm" in words:
        return warm(*arguments, *(word for word in words if word != "warm"))
    return performance(*arguments[:3])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:5], sys.argv[5:])))
