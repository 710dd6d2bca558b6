"""Runs of `kconsumer.parallel` that end when enough records are finished."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from kconsumer import ConsumerRecord, parallel
from kconsumer.parallel import Processor, ShareProcessor, Summary
from kconsumer.testing import FakeCluster

PAUSE_S = 0.005
DEADLINE_S = 20.0  # after which a test fails


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    """Returns the options of a consumer whose offsets a run commits."""
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **more,
    }


class Finished(Counter[bytes]):
    """Counts the calls for each value. Stops all runs when there were calls for this number of values."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self._values = values

    def add(self, record: ConsumerRecord) -> None:
        """Count a call."""
        self[record.value] += 1
        if len(self) == self._values:
            parallel.stop()


def finished(summary: Summary) -> int:
    """Returns the number of records that are finished, by this run or an earlier one."""
    return summary.processed + summary.failed + summary.restored


def run_until_finished(processor: Processor | ShareProcessor, records: int) -> Summary:
    """Run on this thread, and stop when this number of records is finished. Returns the summary."""
    ended = threading.Event()

    def stop() -> None:
        while not ended.wait(PAUSE_S):
            if finished(processor.summary()) >= records:
                processor.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return processor.run()
    finally:
        ended.set()
        thread.join()


def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Wait until a call returns true."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(PAUSE_S)


def run_with(processor: Processor, meanwhile: Callable[[], object]) -> Summary:
    """Run, and call a function on another thread. It must stop the run."""
    errors: list[BaseException] = []

    def call() -> None:
        try:
            meanwhile()
        except BaseException as error:
            errors.append(error)
            processor.stop()

    thread = threading.Thread(target=call)
    thread.start()
    summary = processor.run()
    thread.join(DEADLINE_S)
    assert [] == errors
    return summary
