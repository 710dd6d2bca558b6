"""A pipeline in processes of their own, which a test kills at random moments while it writes to its topic.

The fault of each round is drawn from a seed. The moments are not: they depend on the machine, too.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.brokers import processes
from support.brokers.kafka_admin import wait_until
from support.spark.python_path import python_path

PROGRESS_S = 300  # for the first micro-batch of a run, on a busy machine
END_S = 600
MAX_DELAY_S = 2.5  # between the first micro-batch of a run and the next fault
QUERIES = ("rows", "windows")


@dataclass
class Figures:
    """What happened during the rounds."""

    drivers: Counter[str] = field(default_factory=Counter)  # what was killed -> how often
    workers: int = 0  # Python workers killed
    ended: int = 0  # runs that ended by themselves, for example because a killed worker failed their query
    inside: int = 0  # kills of a driver while a micro-batch was running
    repeated: int = 0  # micro-batches that had been logged, but not completed, when a run began

    def __str__(self) -> str:
        return (
            f"{self.drivers.total()} drivers killed ({', '.join(f'{n} {what}' for what, n in self.drivers.items())}),"
            f" {self.inside} of them during a micro-batch; {self.workers} Python workers killed;"
            f" {self.ended} runs ended by themselves; {self.repeated} micro-batches repeated"
        )


class KilledPipeline:
    """Runs a pipeline's file again and again.

    `write` appends records to the topic; it is called before each run and during it. The checkpoint is the folder
    `checkpoint` in `folder`, where the output of all runs is in the file `output`.
    """

    def __init__(self, folder: Path, write: Callable[[int], None], seed: int) -> None:
        self._folder, self._write = folder, write
        self._random = random.Random(seed)
        self.figures = Figures()

    def newest(self, query: str, kind: str) -> int:
        """Returns the number of the newest micro-batch of a query that Spark planned (`offsets`) or completed
        (`commits`), or -1.
        """
        entries = (self._folder / "checkpoint" / query / kind).glob("[0-9]*")
        return max((int(path.name) for path in entries), default=-1)

    def output(self) -> str:
        """Returns the end of the output of all runs."""
        return (self._folder / "output").read_text(errors="replace")[-3000:]

    @contextlib.contextmanager
    def running(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the command as leader of its own session. At the end all its processes are killed."""
        environment = {**os.environ, "PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        self.figures.repeated += self._unfinished()
        command = [sys.executable, "-m", "kconsumer.spark.pipeline", str(self._folder / "pipeline.toml"), *options]
        with processes.running_session(command, environment, self._folder / "output", self._folder) as process:
            yield process

    def _unfinished(self) -> int:
        """Returns the number of micro-batches that are planned but not completed."""
        return sum(self.newest(query, "offsets") - self.newest(query, "commits") for query in QUERIES)

    def round(self, meanwhile: Callable[[], None] | None = None) -> bool:
        """Run the pipeline, kill one of its Python workers, and then its driver. Returns False if it ended before.

        `meanwhile` is called during the run. The kills come after a micro-batch that was completed after that. Without
        it, half of the runs are killed before they complete one.
        """
        with self._begun() as process:
            if meanwhile is not None or self._random.random() < 0.5:
                self._complete_one(process, meanwhile or (lambda: None))
            self._write_for(self._random.uniform(0, MAX_DELAY_S))
            self.figures.workers += self._kill_worker(process.pid)
            self._write_for(self._random.uniform(0, MAX_DELAY_S))
            return self._kill_driver(process)

    def survive(self, fault: Callable[[], None]) -> None:
        """Run the pipeline and call `fault` during the run, which then completes a micro-batch or ends."""
        with self._begun() as process:
            self._complete_one(process, fault)
            self.figures.ended += process.poll() is not None

    @contextlib.contextmanager
    def _begun(self) -> Iterator[subprocess.Popen[bytes]]:
        """Write records, start the pipeline, and wait until it plans a micro-batch or ends."""
        self._write(300)
        before = self.newest("rows", "offsets")
        with self.running() as process:
            self._await(process, lambda: self.newest("rows", "offsets") > before, "the first micro-batch")
            yield process

    def _complete_one(self, process: subprocess.Popen[bytes], fault: Callable[[], None]) -> None:
        """Call `fault`, then write records and wait until a micro-batch is completed or the run ends."""
        fault()
        done = self.newest("rows", "commits")
        self._write(300)
        self._await(process, lambda: self.newest("rows", "commits") > done, "a micro-batch after the fault")

    def _await(self, process: subprocess.Popen[bytes], condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or process.poll() is not None, PROGRESS_S, what)

    def _write_for(self, seconds: float) -> None:
        """Write some records every 0.2 s."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._write(30)
            time.sleep(min(left, 0.2))

    def _kill_worker(self, leader: int) -> int:
        """Kill one process that pyspark's daemon has forked. Returns 1, or 0 if there is none."""
        daemons = [pid for pid in processes.of_session(leader) if "pyspark.daemon" in processes.command(pid)]
        workers = [pid for pid in daemons if processes.parent(pid) in daemons]
        processes.kill([self._random.choice(workers)] if workers else [])
        return int(bool(workers))

    def _kill_driver(self, process: subprocess.Popen[bytes]) -> bool:
        """Kill the driver: its Python process, its JVM or both. Returns False if the run has ended already."""
        kind = self._random.choice(("Python", "JVM", "both"))
        session = processes.of_session(process.pid)
        jvms = [pid for pid in session if "org.apache.spark.deploy.SparkSubmit" in processes.command(pid)]
        inside = self._unfinished()
        if process.poll() is not None:
            self.figures.ended += 1
            return False
        processes.kill({"Python": [process.pid], "JVM": jvms, "both": session}[kind])
        self.figures.drivers[kind] += 1
        self.figures.inside += bool(inside)
        if kind != "both":  # the rest of the driver continues for a moment, as it would on a real machine
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._random.uniform(0, MAX_DELAY_S))
        return True

    def finish(self) -> None:
        """Run the pipeline to the end of the topic.

        Before pyspark 4.2, a run that repeats an unfinished micro-batch reads nothing else.
        """
        for _ in range(2 if self._unfinished() else 1):
            with self.running("--set", "run.trigger=available_now") as process:
                assert 0 == process.wait(END_S), self.output()
