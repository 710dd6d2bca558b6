"""A member of a group that runs `kconsumer.parallel.process`: `python parallel_member.py '{"topics": [...], …}'`.

Its handlers write to a journal. It ends in order at SIGTERM, and prints the summary as JSON. `members.py` is the other
end. Options are those of the consumer that `source` names, with those of `process` as `arguments`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kconsumer import Consumer, ConsumerRecord
from kconsumer.parallel import Batch, Retry, Summary, process
from support.harnesses.parallel_handlers import process_each, process_each_async
from support.harnesses.parallel_journal import Journal

Run = Callable[[Journal, Sequence[str], Mapping[str, Any], Mapping[str, Any]], Summary]
RETRY = Retry(attempts=20, backoff_s=0.01)


def with_consumer(
    journal: Journal, topics: Sequence[str], settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Summary:
    """Run with a Consumer. Its handlers are functions, or coroutines with the executor asyncio."""
    with Consumer(*topics, **settings) as consumer:
        return process(consumer, handler(journal, arguments), retry=RETRY, **arguments)


def with_async_consumer(
    journal: Journal, topics: Sequence[str], settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Summary:
    """Run with an AsyncConsumer, in the event loop of the process."""
    from kconsumer.aio import AsyncConsumer  # imported when used, so that other members start sooner

    async def run() -> Summary:
        async with AsyncConsumer(*topics, **settings) as consumer:
            return await process(consumer, handler(journal, arguments), retry=RETRY, **arguments)

    return asyncio.run(run())


def with_share_consumer(
    journal: Journal, topics: Sequence[str], settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Summary:
    """Run with a ShareConsumer, whose acknowledgements are in the journal, too."""
    from support.members.journaling_share_consumer import JournalingShareConsumer  # imported when used, too

    with JournalingShareConsumer(journal, *topics, **settings) as consumer:
        return process(consumer, handler(journal, arguments), retry=RETRY, **arguments)


SOURCES: dict[str, Run] = {
    "consumer": with_consumer,
    "async_consumer": with_async_consumer,
    "share_consumer": with_share_consumer,
}


def handler(journal: Journal, arguments: Mapping[str, Any]) -> Callable[[ConsumerRecord], Any]:
    """Returns the handler for an executor."""
    if "batch" in arguments:
        return partial(process_each_async if arguments["executor"] == "asyncio" else process_each, journal)
    return journal.process_async if arguments["executor"] == "asyncio" else journal.process


def announce() -> None:
    """Print an event when SIGTERM ends the run in order, which it does from the beginning of the run on."""
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.005)
    print(json.dumps({"event": "running"}), flush=True)


def main() -> None:
    """Run one member from its JSON argument."""
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(asctime)s %(message)s")
    source, arguments, topics = SOURCES[settings.pop("source")], settings.pop("arguments"), settings.pop("topics")
    if "batch" in arguments:
        arguments["batch"] = Batch(*arguments["batch"])
    journal = Journal(
        Path(settings.pop("journal")),
        settings.pop("longest_ms"),
        str(os.getpid()),
        fails=0.02,
        slow=settings.pop("slow"),
        slow_s=settings.pop("slow_s"),
    )
    threading.Thread(target=announce, daemon=True).start()
    summary = source(journal, topics, settings, arguments)
    found = dataclasses.asdict(summary)
    print(json.dumps({"event": "summary", **found, "committed": sum(found["committed"].values())}), flush=True)


if __name__ == "__main__":
    main()
