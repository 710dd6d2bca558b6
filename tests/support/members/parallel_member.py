"""A member of a group that runs `kconsumer.parallel.process`: `python parallel_member.py '{"topics": [...], …}'`.

Its handlers write to a journal. It ends in order at SIGTERM, and prints the summary as JSON. `members.py` is the other
end. Options are those of `Consumer`, with those of `process` as `arguments`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

from kconsumer import Consumer
from kconsumer.parallel import Retry, process
from support.harnesses.parallel_journal import Journal


def main() -> None:
    """Run one member from its JSON argument."""
    settings = json.loads(sys.argv[1])
    logging.basicConfig(level="WARNING", stream=sys.stderr, format="%(asctime)s %(message)s")
    arguments, topics = settings.pop("arguments"), settings.pop("topics")
    journal = Journal(Path(settings.pop("journal")), settings.pop("longest_ms"), str(os.getpid()), fails=0.02)
    handler = journal.process_async if arguments["executor"] == "asyncio" else journal.process
    with Consumer(*topics, **settings) as consumer:
        summary = process(consumer, handler, retry=Retry(attempts=20, backoff_s=0.01), **arguments)
    found = dataclasses.asdict(summary)
    print(json.dumps({"event": "summary", **found, "committed": sum(found["committed"].values())}), flush=True)


if __name__ == "__main__":
    main()
