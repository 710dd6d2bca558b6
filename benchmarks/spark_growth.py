"""Measures how a stream grows with the number of partitions: planning, memory, offset log, micro-batches.

    python benchmarks/spark_growth.py [--partitions 10,100,1000,10000] [--streams 1,2,10] [--sources kconsumer,kafka]
        [--no-spark] [--json FILE]

Serves topics of ten partitions with a FakeCluster in a process of its own, and reads them by pattern. First, the part
of the driver runs without Spark, and its processor time is measured, which depends little on the load of the machine.
Then streams run in a Spark session of two cores. After each micro-batch, one record is written to each of ten
partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from kconsumer.spark.admin import Admin
from kconsumer.spark.batch_plan import plan_batch
from kconsumer.spark.executor import read
from kconsumer.spark.filters import Constraints
from kconsumer.spark.offsets import as_document, from_document
from kconsumer.spark.options import parse
from kconsumer.spark.schema import default_projection
from kconsumer.spark.stream_offsets import StreamProgress
from kconsumer.testing import FakeCluster

PER_TOPIC = 10
FEW = 10  # partitions with a new record in a micro-batch
BATCHES = 12
PATTERN = "growth-.*"
MB = 1 << 20


def names(partitions: int) -> list[str]:
    """Return the names of the topics."""
    return [f"growth-{number:04}" for number in range(partitions // PER_TOPIC)]


# --- the cluster ------------------------------------------------------------------------------------------------------


def serve(partitions: int) -> None:
    """Serve the topics, with three records in each partition. Each line of stdin writes a record to FEW partitions."""
    with FakeCluster(brokers=3) as cluster:
        for name in names(partitions):
            cluster.create_topic(name, partitions=PER_TOPIC)
            for partition in range(PER_TOPIC):
                cluster.produce(name, [b"x" * 100] * 3, partition=partition)
        print(cluster.bootstrap_servers, flush=True)
        for _ in sys.stdin:
            for partition in range(FEW):
                cluster.produce(names(partitions)[-1], b"y" * 100, partition=partition)
            print("written", flush=True)


class Served:
    """A cluster in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.servers = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def write(self) -> None:
        """Write a record to each of FEW partitions."""
        assert self._process.stdin is not None
        self._process.stdin.write("write\n")
        self._process.stdin.flush()
        self._line()


@contextmanager
def cluster_of(partitions: int) -> Iterator[Served]:
    """Run a cluster with this number of partitions."""
    command = [sys.executable, __file__, "--serve", str(partitions)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


# --- planning, without Spark ------------------------------------------------------------------------------------------


def cpu_ms(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call in ms, and its result."""
    before = time.process_time()
    result = run()
    return (time.process_time() - before) * 1000, result


def plan(servers: str) -> dict[str, float]:
    """Measure the driver's part of a batch and of a micro-batch, and a task that reads 500 offsets."""
    given = {"kafka.bootstrap.servers": servers, "subscribePattern": PATTERN, "startingOffsets": "earliest"}
    found: dict[str, float] = {}
    batch, stream = parse(given, "batch"), parse(given, "stream")
    with Admin(batch) as admin:
        plan_batch(batch, admin, Constraints(), 2)  # opens connections
        found["batch ms"], _ = cpu_ms(lambda: plan_batch(batch, admin, Constraints(), 2))
    with Admin(stream) as admin:
        progress = StreamProgress(stream, admin, 2)
        found["first ms"], start = cpu_ms(progress.initial)
        times = [cpu_ms(lambda: progress.latest(start, 0)) for _ in range(5)]
        found["latest ms"], end = min(ms for ms, _ in times), times[-1][1]
        text = json.dumps(as_document(end), separators=(",", ":"))
        found["offsets KB"] = len(text) / 1000
        found["parse ms"], _ = cpu_ms(lambda: from_document(json.loads(text)))
        found["tasks ms"], tasks = cpu_ms(lambda: progress.tasks(start, end))
    found["tasks"] = len(tasks)
    projection = default_projection(stream)

    def rows() -> int:
        return sum(batch.num_rows for batch in read(stream, projection, tasks[0], ("growth", "0")))

    rows()
    found["task ms"], found["task rows"] = min(cpu_ms(rows) for _ in range(3))
    found["RSS MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    return found


def planning(partitions: list[int]) -> dict[int, dict[str, float]]:
    """Measure planning with each number of partitions, each in a process of its own."""
    found = {}
    for count in partitions:
        with cluster_of(count) as cluster:
            command = [sys.executable, __file__, "--plan", cluster.servers]
            output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
        found[count] = json.loads(output)
        print(f"| {count} | " + " | ".join(f"{key} {value:.4g}" for key, value in found[count].items()), flush=True)
    return found


# --- streams ----------------------------------------------------------------------------------------------------------


def session() -> Any:
    """Create a Spark session of two cores with both sources."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "assignors")])
    from pyspark.sql import SparkSession

    import kconsumer.spark
    from support.spark.spark_jars import spark_kafka_jars

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", ",".join(map(str, spark_kafka_jars()))).config("spark.driver.memory", "2g")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kconsumer.spark.register(spark)
    return spark


ROLES = {
    "pyspark.daemon\0pyspark.worker": "executor",
    "python_streaming_source_runner": "driver",
    "pyspark.sql.worker": "driver",
    "SparkSubmit": "JVM",
}


def processes() -> dict[int, str]:
    """Return the processes of the session, with their roles: Python for planning, Python for tasks, or the JVM."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            name = next((name for name in ROLES if name in command), None)
            if name is not None:
                found[int(folder.name)] = ROLES[name]
    return found


def python_mb(found: dict[int, str]) -> dict[str, float]:
    """Return the memory of the Python processes by role, without pages of files, and the number of executors' ones."""
    used = {"driver": 0.0, "executor": 0.0}
    for pid, role in found.items():
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            used[role] = used.get(role, 0) + sum(int(each.split()[1]) for each in lines if each.startswith("RssAnon:"))
    return {"Python driver MB": used["driver"] / 1024, "Python executor MB": used["executor"] / 1024}


def connections(found: dict[int, str], ports: set[int]) -> dict[str, int]:
    """Return the number of connections to the brokers by role."""
    sockets = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and int(fields[2].rpartition(":")[2], 16) in ports:  # established
            sockets[f"socket:[{fields[9]}]"] = 0
    counts = dict.fromkeys(ROLES.values(), 0)
    for pid, role in found.items():
        with suppress(OSError):
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            counts[role] += sum(link in sockets for link in links)
    return {f"connections of {role}": count for role, count in counts.items()}


def resources(spark: Any, servers: str) -> dict[str, float]:
    """Return the heap of the JVM after a collection, the memory of Python processes in MB, and connections."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    spark._jvm.java.lang.System.gc()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / MB
    ports = {int(server.rpartition(":")[2]) for server in servers.split(",")}
    found = processes()
    workers = sum(role == "executor" for role in found.values())
    return {"JVM heap MB": heap, **python_mb(found), "Python executors": workers, **connections(found, ports)}


def stream(spark: Any, source: str, cluster: Served, folder: Path) -> Any:
    """Start a stream from the present ends of all partitions."""
    reader = spark.readStream.format(source).option("kafka.bootstrap.servers", cluster.servers)
    frame = reader.option("subscribePattern", PATTERN).option("startingOffsets", "earliest").load()
    return frame.writeStream.format("noop").option("checkpointLocation", str(folder)).start()


def run_streams(spark: Any, source: str, cluster: Served, count: int) -> dict[str, float]:
    """Run streams at the same time. Return medians of their micro-batches of FEW records, and the driver's memory."""
    folder = Path(tempfile.mkdtemp(prefix="kconsumer-growth-"))
    queries: list[Any] = []
    try:
        for number in range(count):  # one after the other, because Spark waits only 10 s for a new Python process
            queries.append(stream(spark, source, cluster, folder / str(number)))
            queries[-1].processAllAvailable()
        first = max(query.lastProgress.durationMs["triggerExecution"] for query in queries)
        for _ in range(BATCHES):
            cluster.write()
            for query in queries:
                query.processAllAvailable()
        reports = [report for query in queries for report in query.recentProgress if report.numInputRows == FEW]
        parts = {name: [report.durationMs.get(name, 0) for report in reports] for name in reports[0].durationMs}
        used = resources(spark, cluster.servers)
        newest = max((folder / "0" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return {
            "first ms": first,
            "micro-batch ms": statistics.median(parts["triggerExecution"]),
            "latestOffset ms": statistics.median(parts["latestOffset"]),
            "addBatch ms": statistics.median(parts["addBatch"]),
            "offset log KB": newest.stat().st_size / 1000,
            **used,
        }
    finally:
        for query in queries:
            query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def streams(partitions: list[int], counts: list[int], sources: list[str]) -> dict[str, Any]:
    """Measure streams of each source, by number of partitions, and by number of streams over 100 partitions."""
    spark, found = session(), dict[str, Any]()
    try:
        for size, count in [*((size, 1) for size in partitions), *((100, count) for count in counts if count > 1)]:
            with cluster_of(size) as cluster:
                for source in sources:
                    measured = run_streams(spark, source, cluster, count)
                    found[f"{source}, {size} partitions, {count} streams"] = measured
                    texts = " | ".join(f"{key} {value:.4g}" for key, value in measured.items())
                    print(f"| {source} | {size} | {count} | {texts}", flush=True)
    finally:
        spark.stop()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="10,100,1000,10000", help="multiples of ten")
    parser.add_argument("--streams", default="1,2,10")
    parser.add_argument("--sources", default="kconsumer,kafka")
    parser.add_argument("--no-spark", action="store_true", help="measure planning only")
    parser.add_argument("--json", type=Path, help="write all readings to this file")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--plan", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.plan:
        print(json.dumps(plan(options.plan)))
        return
    partitions, counts = ([int(each) for each in text.split(",")] for text in (options.partitions, options.streams))
    readings: dict[str, Any] = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "planning": planning(partitions)}
    if not options.no_spark:
        readings["streams"] = streams(partitions, counts, options.sources.split(","))
    if options.json:
        options.json.write_text(json.dumps(readings, indent=1) + "\n")


if __name__ == "__main__":
    main()
