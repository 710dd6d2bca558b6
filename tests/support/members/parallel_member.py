"""A member of a group that runs `kconsumer.parallel.process`: `python parallel_member.py '{"topics": [...], …}'`.

Its handlers of batches write to a journal. It ends in order at SIGTERM, and prints the summary as JSON. `members.py` is
the other end. Options are those of the consumer, with those of `process` as `arguments`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kconsumer import Consumer, ConsumerRecord
from kconsumer.parallel import Batch, Retry, process
from support.harnesses.parallel_handlers import process_each, process_each_async
from support.harnesses.parallel_journal import Journal

RETRY = Retry(attempts=20, backoff_s=0.01)


def handler(journal: Journal, arguments: Mapping[str, Any]) -> Callable[[ConsumerRecord], Any]:
    """Returns the handler for an executor."""
    return partial(process_each_async if arguments["executor"] == "asyncio" else process_each, journal)


def announce() -> None:
    """Print an event when SIGTERM ends the run in order, which it does from the beginning of the run on."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.005)
    print(json.dumps({"event": "running"}), flush=True)


def main() -> None:
    """Run one member from its JSON argument."""
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(asctime)s %(message)s")
    arguments, topics = settings.pop("arguments"), settings.pop("topics")
    arguments["batch"] = Batch(*arguments["batch"])
    journal = Journal(
        Path(settings.pop("journal")),
        settings.pop("longest_ms"),
        str(os.getpid()),
        fails=0.02,
    )
    threading.Thread(target=announce, daemon=True).start()
    with Consumer(*topics, **settings) as consumer:
        summary = process(consumer, handler(journal, arguments), retry=RETRY, **arguments)
    found = dataclasses.asdict(summary)
    print(json.dumps({"event": "summary", **found, "committed": sum(found["committed"].values())}), flush=True)


if __name__ == "__main__":
    main()
