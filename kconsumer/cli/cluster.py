"""`kconsumer cluster`: shows brokers, offsets, and the transactions that hold back readers, and shows and changes
subscriptions for metrics of clients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from kconsumer.cli.arguments import (
    COMMAND_TIMEOUT_MS,
    CommandError,
    UsageError,
    add_connection,
    add_format,
    setting,
    with_settings,
)
from kconsumer.cli.group_changes import Scope, scope
from kconsumer.cli.notices import waiting
from kconsumer.cli.positions import parse_position
from kconsumer.cli.table import columns, show
from kconsumer.cluster import TIMES
from kconsumer.groups import GroupClient


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands `cluster describe|transactions|offsets|client-metrics`."""
    parser = commands.add_parser("cluster", help="show brokers, offsets, transactions that hold back readers",
                                 description="Show the brokers of a cluster, offsets, or open transactions. Show or "
                                 "change subscriptions for metrics of clients.")  # fmt: skip
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
    transactions.set_defaults(run=run_transactions)
    offsets = actions.add_parser("offsets", parents=[common], help="show the offsets of topics at a time",
                                 description="Show the offset of each partition at a time.")  # fmt: skip
    for action in (transactions, offsets):
        action.add_argument("scopes", nargs="+", type=scope, metavar="TOPIC[:NUMBERS]",
                            help="a topic, or partitions of it such as orders:0,2-4")  # fmt: skip
    offsets.add_argument("--at", type=_time, default="latest", metavar="TIME",
                         help=f"one of {', '.join(TIMES)}, a time ago such as -1h, or a time such as "
                         "@2024-05-01T12:00; default: latest")  # fmt: skip
    offsets.set_defaults(run=run_offsets)
    metrics = actions.add_parser(
        "client-metrics",
        parents=[common],
        help="show or change subscriptions for metrics of clients (KIP-714)",
        description="Show the subscriptions for metrics of clients. With --set, --unset or --delete, show the change "
        "of one subscription, or make it with --execute.",
    )
    metrics.add_argument("name", nargs="?", metavar="NAME", help="a subscription; default: all of them")
    metrics.add_argument("--set", dest="changes", action="append", type=setting, default=[], metavar="name=value",
                         help="set metrics, interval.ms or match; may be repeated")  # fmt: skip
    metrics.add_argument("--unset", action="append", default=[], metavar="name",
                         help="restore the default of a setting; may be repeated")  # fmt: skip
    metrics.add_argument("--delete", action="store_true", help="delete the subscription")
    metrics.add_argument("--execute", action="store_true", help="make the change; without it, it is only shown")
    metrics.set_defaults(run=run_client_metrics)
    for action in (describe, transactions, offsets, metrics):
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
    show(args, columns("cluster", "broker", "host", "port", "rack", "controller"), rows)
    return 0


def run_transactions(args: argparse.Namespace) -> int:
    """Print the open transactions, one per line."""
    with connect(args) as client, waiting(args.bootstrap_servers):
        found = client.stuck_transactions(_wanted(args.scopes))
    names = columns(
        "topic", "partition", "producer_id", "epoch", "start", "age_s", "state", "coordinator", "transactional_id"
    )
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
    show(args, names, rows)
    return 0


def _wanted(scopes: Sequence[Scope]) -> list[str | tuple[str, int]]:
    """Returns the topics and partitions of scopes."""
    return [item for topic, numbers in scopes for item in ([topic] if numbers is None else
            [(topic, number) for number in numbers])]  # fmt: skip


def _time(text: str) -> str | int:
    """Parse a special time, or a time in ms since 1970 as in other commands."""
    if text in TIMES:
        return text
    position = parse_position(text)
    if position.kind != "time":
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(TIMES)}, and no time")
    return position.value


def run_offsets(args: argparse.Namespace) -> int:
    """Print the offset of each partition, one per line."""
    with connect(args) as client, waiting(args.bootstrap_servers):
        found = client.partition_offsets(_wanted(args.scopes), args.at)
    rows = []
    for tp, at in sorted(found.items()):
        known = at is not None and at.timestamp >= 0
        rows.append((*tp, at.offset if at else None, at.timestamp if at and known else None))
    show(args, columns("topic", "partition", "offset", "timestamp"), rows)
    return 0


def run_client_metrics(args: argparse.Namespace) -> int:
    """Print subscriptions, one setting per line, or the change of one, which is made with --execute."""
    changes: dict[str, str | None] = {**dict(args.changes), **dict.fromkeys(args.unset)}
    changing = args.delete or bool(changes)
    if (args.execute and not changing) or (changing and args.name is None) or (args.delete and changes):
        raise UsageError("name a subscription and a change of it: --set and --unset, or --delete")
    with connect(args) as client, waiting(args.bootstrap_servers):
        present = client.client_metrics()
        if args.name is not None and args.name not in present and not changes:
            raise CommandError(f"there is no subscription {args.name!r}")
        if args.execute and args.delete:
            client.delete_client_metrics(args.name)
        elif args.execute:
            client.alter_client_metrics(args.name, changes)
    if changing:
        before = present.get(args.name, {})
        changes = dict.fromkeys(before) if args.delete else changes
        changed = [
            (args.name, key, before.get(key), new, "yes" if args.execute else "no") for key, new in changes.items()
        ]
        show(args, columns("subscription", "name", "value", "new", "executed"), changed)
        hint = f"{args.name!r} was changed" if args.execute else "nothing was changed; add --execute to make the change"
        print(f"kconsumer: {hint}", file=sys.stderr)
        return 0
    shown = [(name, *row) for name in sorted(present) if args.name in (None, name) for row in present[name].items()]
    show(args, columns("subscription", "name", "value"), shown)
    return 0
