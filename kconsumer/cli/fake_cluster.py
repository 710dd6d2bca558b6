"""`kconsumer fake-cluster`: runs a fake Kafka cluster in the terminal, with topics and records to try the library."""

from __future__ import annotations

import argparse
import json
import threading
from typing import Any

from kconsumer.cli.arguments import UsageError

DEFAULT_PORT = 9092
MAX_PARTITIONS = 10_000


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `fake-cluster`."""
    parser = commands.add_parser("fake-cluster", parents=[common], help="run a fake Kafka cluster to try things",
                                 description="Run a fake Kafka cluster until Ctrl-C. It needs no Java. Its records are "
                                             "in memory, and lost at the end.")  # fmt: skip
    parser.add_argument("--topic", dest="topics", action="append", type=topic, default=[], metavar="NAME[:PARTITIONS]",
                        help="create a topic, of one partition by default; may be repeated")  # fmt: skip
    parser.add_argument("--records", type=count, default=0, metavar="N",
                        help="append N records to each topic (default: 0)")  # fmt: skip
    parser.add_argument("--brokers", type=positive, default=1, metavar="N", help="how many brokers (default: 1)")
    parser.add_argument("--port", type=count, default=DEFAULT_PORT, metavar="P",
                        help=f"the port of the first broker; the others have the ports behind it; 0: free ports "
                             f"(default: {DEFAULT_PORT})")  # fmt: skip
    parser.set_defaults(run=run)


def topic(text: str) -> tuple[str, int]:
    """Returns name and number of partitions of `NAME[:PARTITIONS]`. Raises ArgumentTypeError for other text."""
    name, separator, partitions = text.partition(":")
    if not name or (separator and not (partitions.isdecimal() and 1 <= int(partitions) <= MAX_PARTITIONS)):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME[:PARTITIONS]")
    return name, int(partitions) if separator else 1


def count(text: str) -> int:
    """Returns a number that is not negative. Raises ArgumentTypeError for other text."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """Returns a number of at least 1. Raises ArgumentTypeError for other text."""
    if count(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve the cluster until the process is interrupted. Raises UsageError for a port or a topic that cannot be."""
    if args.records and not args.topics:
        raise UsageError(f"--records {args.records} needs --topic")
    try:
        return _serve(args)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _serve(args: argparse.Namespace) -> int:
    from kconsumer.testing import FakeCluster

    with FakeCluster(args.brokers, port=args.port, auto_create_topics_enable=True) as cluster:
        for name, partitions in args.topics:
            cluster.create_topic(name, partitions)
            cluster.produce(name, [_record(number) for number in range(args.records)])
            print(f"topic {name}: {partitions} partition{'s' * (partitions != 1)}, {args.records} records")
        servers = cluster.bootstrap_servers
        print(f"bootstrap servers: {servers}")
        name = args.topics[0][0] if args.topics else "TOPIC"
        print(f"try: kconsumer consume {name} -b {servers.split(',')[0]} --from earliest")
        print("Ctrl-C ends the cluster.", flush=True)
        threading.Event().wait()
    return 0


def _record(number: int) -> tuple[str, str]:
    """Returns key and value of an example record."""
    return f"key-{number}", json.dumps({"number": number, "text": f"record {number}"})
