"""Runs of `kconsumer.parallel` that end when enough records are finished."""

from __future__ import annotations

import threading

from kconsumer.parallel import Processor, ShareProcessor, Summary

PAUSE_S = 0.005


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
