"""`kconsumer cluster`: shows the brokers of a cluster, and the transactions that hold back its readers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from kconsumer.cli.arguments import COMMAND_TIMEOUT_MS, add_connection, add_format, with_settings
from kconsumer.cli.group_changes import Scope, scope
from kconsumer.cli.notices import waiting
from kconsumer.cli.table import Cell, table
from kconsumer.groups import GroupClient


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands `cluster describe` and `cluster transactions TOPIC[:NUMBERS]…`."""
    parser = commands.add_parser("cluster", help="show brokers, and transactions that hold back readers",
                                 description="Show the brokers of a cluster, or open transactions.")  # fmt: skip
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    describe = actions.add_parser("describe", parents=[common], help="show the brokers of the cluster",
                                  description="Show the brokers of the cluster, and its id.")  # fmt: skip
    describe.set_defaults(run=run_describe)
    transactions = actions.add_parser(
        "transactions",
        parents=[common],
        help="show the open transactions in topics, the oldest first",
        description="Show the open transactions in topics, the oldest first. A read_committed reader reads no record "
        "behind the start of such a transaction.",
    )
    transactions.add_argument("scopes", nargs="+", type=scope, metavar="TOPIC[:NUMBERS]",
                              help="a topic, or partitions of it such as orders:0,2-4")  # fmt: skip
    transactions.set_defaults(run=run_transactions)
    for action in (describe, transactions):
        add_connection(action)
        add_format(action)


def connect(args: argparse.Namespace) -> GroupClient:
    """Create the client. Tests replace this function."""
    return GroupClient.from_config(with_settings(args, {}, {"default_api_timeout_ms": COMMAND_TIMEOUT_MS}))


def run_describe(args: argparse.Namespace) -> int:
    """Print the brokers, one per line."""
    with connect(args) as client, waiting(args.bootstrap_servers):
        found = client.describe_cluster()
    rows = [
        (found.cluster_id, node.id, node.host, node.port, node.rack, "yes" if node == found.controller else "no")
        for node in found.brokers
    ]
    return _print(args, ("cluster", "broker", "host", "port", "rack", "controller"), rows)


def run_transactions(args: argparse.Namespace) -> int:
    """Print the open transactions, one per line."""
    scopes: list[Scope] = args.scopes
    wanted = [item for topic, numbers in scopes for item in ([topic] if numbers is None else
              [(topic, number) for number in numbers])]  # fmt: skip
    with connect(args) as client, waiting(args.bootstrap_servers):
        found = client.stuck_transactions(wanted)
    names = ("topic", "partition", "producer_id", "epoch", "start", "age_s", "state", "coordinator", "transactional_id")
    rows = [
        (
            *one.partition,
            one.producer_id,
            one.producer_epoch,
            one.start_offset,
            None if one.age_s is None else round(one.age_s),
            "hanging" if one.hanging else one.state,
            None if one.coordinator is None else one.coordinator.id,
            one.transactional_id,
        )
        for one in found
    ]
    return _print(args, names, rows)


def _print(args: argparse.Namespace, names: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> int:
    if args.format == "json":
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    else:
        lines = table([name.upper().replace("_", "-") for name in names], rows)
    if lines:
        print("\n".join(lines))
    return 0
