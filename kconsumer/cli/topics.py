"""`kconsumer topics`: lists topics, and shows leader, replicas and offsets of their partitions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kconsumer import Consumer
from kconsumer.cli.arguments import COMMAND_TIMEOUT_MS, CommandError, add_connection, add_format, with_settings
from kconsumer.cli.notices import waiting
from kconsumer.cli.table import Column, columns, show
from kconsumer.types import Node, PartitionInfo, TopicPartition

DEFAULTS = {"allow_auto_create_topics": False, "default_api_timeout_ms": COMMAND_TIMEOUT_MS}


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands `topics list` and `topics describe TOPIC…`."""
    parser = commands.add_parser("topics", help="list topics, show their partitions",
                                 description="List topics, or show the partitions of topics.")  # fmt: skip
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="list the topics of the cluster",
                                 description="List the topics of the cluster.")  # fmt: skip
    listing.add_argument("--internal", action="store_true", help="include Kafka's own topics (__…)")
    listing.set_defaults(run=list_topics)
    describe = actions.add_parser("describe", parents=[common], help="show the partitions of topics",
                                  description="Show leader, replicas, log start and end offset of each partition."
                                  )  # fmt: skip
    describe.add_argument("topics", nargs="+", metavar="TOPIC", help="topics to show")
    describe.set_defaults(run=describe_topics)
    for action in (listing, describe):
        add_connection(action)
        add_format(action)


def connect(args: argparse.Namespace) -> Consumer:
    """Create the consumer. Tests replace this function."""
    return Consumer.from_config(with_settings(args, {}, DEFAULTS))


def list_topics(args: argparse.Namespace) -> int:
    """Print each topic's name, number of partitions and number of replicas."""
    with connect(args) as consumer, waiting(args.bootstrap_servers):
        found = consumer.list_topics()
    rows = [
        (name, len(partitions), max((len(info.replicas) for info in partitions), default=None))
        for name, partitions in sorted(found.items())
        if args.internal or not name.startswith("__")
    ]
    show(args, columns("topic", "partitions", "replicas"), rows)
    return 0


def describe_topics(args: argparse.Namespace) -> int:
    """Print each partition's leader, replicas and offsets."""
    with connect(args) as consumer, waiting(args.bootstrap_servers):
        topics = {name: _partitions(consumer, name, args.bootstrap_servers) for name in dict.fromkeys(args.topics)}
        led = [TopicPartition(i.topic, i.partition) for infos in topics.values() for i in infos if i.leader is not None]
        starts, ends = consumer.beginning_offsets(led), consumer.end_offsets(led)
    names = columns("topic", "partition", "leader", "replicas", "in_sync", "offline")
    rows = []
    for name, infos in topics.items():
        for info in infos:
            tp = TopicPartition(name, info.partition)
            leader = None if info.leader is None else info.leader.id
            nodes = [_ids(group) for group in (info.replicas, info.in_sync_replicas, info.offline_replicas)]
            rows.append((name, info.partition, leader, *nodes, starts.get(tp), ends.get(tp)))
    show(args, [*names, Column("START", "log_start"), *columns("end")], rows)
    return 0


def _partitions(consumer: Consumer, topic: str, servers: str) -> list[PartitionInfo]:
    found = consumer.partitions_for(topic)
    if not found:
        raise CommandError(f"topic {topic!r} does not exist on {servers}")
    return sorted(found, key=lambda info: info.partition)


def _ids(nodes: Sequence[Node]) -> list[int]:
    return [node.id for node in nodes]
