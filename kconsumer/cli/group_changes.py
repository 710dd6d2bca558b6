"""`kconsumer groups reset`, `delete-offsets`, `remove-members`, `configs` and `delete`: change and delete groups.

Without --execute, only `delete` changes anything: the others show what they would do. `reset` computes offsets as
Kafka's own tool does: an offset outside the log becomes the nearer end of the log, and a time after the last record
becomes the end.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kconsumer import Consumer, errors
from kconsumer.cli.arguments import (
    COMMAND_TIMEOUT_MS,
    CommandError,
    UsageError,
    add_connection,
    add_format,
    setting,
    with_settings,
)
from kconsumer.cli.lookups import offsets_at, partitions_of
from kconsumer.cli.notices import waiting
from kconsumer.cli.positions import POSITION_HELP, Position, parse_partitions, parse_position
from kconsumer.cli.table import Column, columns, show
from kconsumer.groups import GroupClient, GroupDescription
from kconsumer.types import TopicPartition

DEFAULTS = {"allow_auto_create_topics": False, "default_api_timeout_ms": COMMAND_TIMEOUT_MS}
FAILED = 1
NO_MEMBERS = ("Empty", "Dead")

RESET = [
    *columns("topic", "partition", "committed", "new"),
    Column("CHANGE", None),
    Column("START", "log_start"),
    *columns("end", "lag"),
]
Scope = tuple[str, list[int] | None]  # a topic, and its partitions; None: all of them


@dataclass(frozen=True, slots=True)
class NewOffset:
    """The new offset of one partition, and the offsets that it depends on."""

    tp: TopicPartition
    committed: int | None
    start: int
    end: int
    offset: int


def add_parsers(actions: Any, common: argparse.ArgumentParser) -> None:
    """Add the actions `reset`, `delete-offsets`, `remove-members`, `configs` and `delete`."""
    reset = actions.add_parser(
        "reset",
        parents=[common],
        help="set the committed offsets, or start offsets, of a group without members",
        description="Show the offsets that a group would get, or set them with --execute. Stop the members of the "
        "group first.",
        epilog=POSITION_HELP + "\n\nExamples:\n"
        "  kconsumer groups reset billing -b localhost:9092 --to earliest\n"
        "  kconsumer groups reset billing -b localhost:9092 --topic orders:0,2 --to -1h\n"
        "  kconsumer groups reset billing -b localhost:9092 --shift -100 --execute",
    )
    reset.add_argument("group", metavar="GROUP", help="the group; it is created if it does not exist")
    add_connection(reset)
    add_format(reset)
    target = reset.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", type=parse_position, metavar="POSITION", help="the new position in each partition")
    target.add_argument("--shift", type=_shift, metavar="N",
                        help="move each committed offset by N records, back if N is negative")  # fmt: skip
    reset.add_argument("--topic", dest="scopes", action="append", type=scope, default=[],
                       metavar="TOPIC[:PARTITIONS]",
                       help="a topic, or partitions of it such as orders:0,2-4; may be repeated; "
                            "default: all partitions with a committed offset")  # fmt: skip
    reset.add_argument("--execute", action="store_true", help="set the offsets; without it they are only shown")
    reset.set_defaults(run=run_reset)

    delete_offsets = _add_change(
        actions, common, "delete-offsets", run_delete_offsets,
        "delete what a group has stored about topics",
        "Show the offsets that a group has stored about topics, or delete them with --execute. The group then begins "
        "there at its auto.offset.reset, a share group at its share.auto.offset.reset. Stop the members that subscribe "
        "to the topics first; a share group must have no members.",
    )  # fmt: skip
    delete_offsets.add_argument("--topic", dest="topics", action="append", required=True, metavar="TOPIC",
                                help="a topic, with all its partitions; may be repeated")  # fmt: skip

    remove = _add_change(
        actions, common, "remove-members", run_remove_members,
        "remove static members, or all members, from a group",
        "Show the members that would be removed from a group, or remove them with --execute. Their partitions are "
        "assigned to other members at once. A removed member that still runs joins again.",
    )  # fmt: skip
    which = remove.add_mutually_exclusive_group(required=True)
    which.add_argument("--instance", dest="instances", action="append", metavar="ID",
                       help="the group.instance.id of a member; may be repeated")  # fmt: skip
    which.add_argument("--all", action="store_true", help="all members")
    remove.add_argument("--reason", help="a text for the log of the broker")

    configs = _add_change(
        actions, common, "configs", run_configs,
        "show or change the settings of a group at the brokers",
        "Show the settings of a group at the brokers. With --set or --unset, show the changes, or make them with "
        "--execute.",
    )  # fmt: skip
    configs.add_argument("--set", dest="changes", action="append", type=setting, default=[], metavar="name=value",
                         help="set a setting, such as share.auto.offset.reset=earliest; may be repeated")  # fmt: skip
    configs.add_argument("--unset", action="append", default=[], metavar="name",
                         help="remove a setting, so that that of the brokers applies; may be repeated")  # fmt: skip

    delete = actions.add_parser(
        "delete",
        parents=[common],
        help="delete groups without members, with their offsets",
        description="Delete groups and all their committed offsets, at once. Stop the members of the groups first.",
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP", help="groups to delete")
    add_connection(delete)
    delete.set_defaults(run=run_delete)


def _add_change(
    actions: Any,
    common: argparse.ArgumentParser,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    description: str,
) -> argparse.ArgumentParser:
    """Add an action that changes one group with --execute. Returns its parser."""
    action: argparse.ArgumentParser
    action = actions.add_parser(name, parents=[common], help=summary, description=description)
    action.add_argument("group", metavar="GROUP", help="the group to change")
    add_connection(action)
    add_format(action)
    action.add_argument("--execute", action="store_true", help="make the change; without it, it is only shown")
    action.set_defaults(run=run)
    return action


def _shift(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records, such as 100 or -100")
    return int(text)


def scope(text: str) -> Scope:
    """Parse TOPIC[:PARTITIONS]. Raises ArgumentTypeError for other text."""
    topic, separator, partitions = text.partition(":")
    if not topic:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC[:PARTITIONS]")
    return topic, parse_partitions(partitions) if separator else None


def connect(options: dict[str, object]) -> GroupClient:
    """Create the client for groups. Tests replace this function."""
    return GroupClient.from_config(options)


def connect_consumer(options: dict[str, object]) -> Consumer:
    """Create the consumer that looks up offsets. Tests replace this function."""
    return Consumer.from_config(options)


# --- reset ------------------------------------------------------------------------------------------------------


def run_reset(args: argparse.Namespace) -> int:
    """Show the new offsets of a group, and set them with --execute. Returns the exit code."""
    options = with_settings(args, {}, DEFAULTS)
    with connect(options) as client, connect_consumer(options) as consumer, waiting(args.bootstrap_servers):
        group, committed = _find(client, args.group)
        if _is_share(group) and args.to is None:
            raise CommandError(
                f"--shift: group {args.group!r} is a share group, whose start offset may be before records that it has"
                " finished; name a position with --to"
            )
        partitions = _partitions(consumer, args, committed)
        found = new_offsets(consumer, partitions, committed, args.shift if args.to is None else args.to)
        if args.execute:
            alter = client.alter_share_offsets if _is_share(group) else client.alter_offsets
            alter(args.group, {new.tp: new.offset for new in found})
    _show(args, RESET, map(_reset_row, found))
    count = f"{len(found)} partition{'s' * (len(found) != 1)}"
    if args.execute:
        _note(f"the offsets of {count} of group {args.group!r} were set")
    else:
        _note(f"nothing was changed; add --execute to set the offsets of {count} of group {args.group!r}")
    return 0


def _is_share(group: GroupDescription | None) -> bool:
    return group is not None and group.type == "share"


def _find(
    client: GroupClient, group: str, *, while_empty: bool = True
) -> tuple[GroupDescription | None, dict[TopicPartition, int]]:
    """Returns a group and its committed offsets, or start offsets. If it does not exist: None, and no offsets.

    Raises CommandError if the group has members and `while_empty` is True, or if it is a share group with members.
    """
    try:
        found = client.describe(group)
    except errors.GroupError as error:
        if error.name != "GROUP_ID_NOT_FOUND":
            raise
        return None, {}
    if (while_empty or _is_share(found)) and (found.members or found.state not in NO_MEMBERS):
        members = f"{len(found.members)} member{'s' * (len(found.members) != 1)}"
        raise CommandError(
            f"group {group!r} is not empty: its state is {found.state}, and it has {members}; offsets can be "
            "changed only while a group has no members, so stop them first"
        )
    offsets = client.offsets(found)
    for tp, at in offsets.items():
        if at.end is None:
            _note(f"{tp} has no leader or does not exist any more")
    return found, {tp: at.committed for tp, at in offsets.items() if at.committed is not None and at.end is not None}


def _partitions(
    consumer: Consumer, args: argparse.Namespace, committed: Collection[TopicPartition]
) -> list[TopicPartition]:
    """Returns the partitions that --topic names, or else those with a committed offset."""
    if not args.scopes:
        if not committed:
            raise CommandError(f"group {args.group!r} has no committed offsets; name topics with --topic")
        return sorted(committed)
    found: set[TopicPartition] = set()
    for topic, numbers in args.scopes:
        found.update(partitions_of(consumer, topic, numbers, args.bootstrap_servers))
    return sorted(found)


def new_offsets(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: Position | int,
) -> list[NewOffset]:
    """Returns the new offset of each partition. `target` is a position, or how far committed offsets are moved."""
    starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    if isinstance(target, int):
        missing = [tp for tp in partitions if tp not in committed]
        if missing:
            raise CommandError(f"--shift: {missing[0]} has no committed offset that could be moved")
        wanted = {tp: committed[tp] + target for tp in partitions}
    else:
        wanted = offsets_at(consumer, partitions, target, starts, ends)
    found = []
    for tp in partitions:
        offset = max(starts[tp], min(wanted[tp], ends[tp]))
        if offset != wanted[tp]:
            where = f"before the first offset, {offset}" if offset > wanted[tp] else f"after the end, {offset}"
            _note(f"{tp}: {wanted[tp]} is {where}, which is used instead")
        found.append(NewOffset(tp, committed.get(tp), starts[tp], ends[tp], offset))
    return found


def _reset_row(new: NewOffset) -> tuple[object, ...]:
    change = None if new.committed is None else new.offset - new.committed
    return (*new.tp, new.committed, new.offset, change, new.start, new.end, new.end - new.offset)


def _note(text: str) -> None:
    print(f"kconsumer: {text}", file=sys.stderr)


# --- delete-offsets ---------------------------------------------------------------------------------------------


def run_delete_offsets(args: argparse.Namespace) -> int:
    """Show the offsets of a group in topics, and delete them with --execute. Returns the exit code."""
    topics = sorted(set(args.topics))
    with connect(with_settings(args, {}, DEFAULTS)) as client, waiting(args.bootstrap_servers):
        group, offsets = _find(client, args.group, while_empty=False)
        if group is None:
            raise CommandError(f"group {args.group!r} does not exist")
        missing = sorted(set(topics) - {tp.topic for tp in offsets})
        if missing:
            raise CommandError(f"group {args.group!r} has no offsets of topic {missing[0]!r}")
        found = sorted((tp, offset) for tp, offset in offsets.items() if tp.topic in topics)
        if args.execute and _is_share(group):
            client.delete_share_offsets(args.group, topics)
        elif args.execute:
            client.delete_offsets(args.group, [tp for tp, _ in found])
    _show(args, columns("topic", "partition", "committed"), [(*tp, offset) for tp, offset in found])
    count = f"{len(topics)} topic{'s' * (len(topics) != 1)}"
    _say_change(args, f"delete the offsets of {count}", f"the offsets of {count} of group {args.group!r} were deleted")
    return 0


def _show(args: argparse.Namespace, names: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print rows. As objects for JSON, they also have the group, and whether the change was made."""
    around = Column(None, "group"), Column(None, "executed")
    show(args, [around[0], *names, around[1]], [(args.group, *row, args.execute) for row in rows])


def _say_change(args: argparse.Namespace, planned: str, made: str) -> None:
    hint = f"nothing was changed; add --execute to {planned} of group {args.group!r}"
    _note(made if args.execute else hint)


# --- remove-members ---------------------------------------------------------------------------------------------


def run_remove_members(args: argparse.Namespace) -> int:
    """Show the members that --instance or --all selects, and remove them with --execute. Returns the exit code."""
    with connect(with_settings(args, {}, DEFAULTS)) as client, waiting(args.bootstrap_servers):
        members = client.describe(args.group).members
        known = {member.group_instance_id for member in members}
        for instance in args.instances or ():
            if instance not in known:
                raise CommandError(f"group {args.group!r} has no member with the instance id {instance!r}")
        found = [member for member in members if args.all or member.group_instance_id in args.instances]
        if args.execute:
            client.remove_members(args.group, found, args.reason)
    names = columns("member", "instance", "host", "partitions")
    _show(args, names, [(m.member_id, m.group_instance_id, m.host, len(m.assignment)) for m in found])
    count = f"{len(found)} member{'s' * (len(found) != 1)}"
    _say_change(args, f"remove {count}", f"{count} of group {args.group!r} were removed")
    return 0


# --- configs ----------------------------------------------------------------------------------------------------


def run_configs(args: argparse.Namespace) -> int:
    """Show the settings of a group, or changes of them, which are made with --execute. Returns the exit code."""
    changes: dict[str, str | None] = {**dict(args.changes), **dict.fromkeys(args.unset)}
    if args.execute and not changes:
        raise UsageError("--execute: name changes with --set or --unset")
    with connect(with_settings(args, {}, DEFAULTS)) as client, waiting(args.bootstrap_servers):
        present = client.configs(args.group)
        if args.execute:
            client.alter_configs(args.group, changes)
    if not changes:
        _show(args, columns("name", "value"), present.items())
        return 0
    _show(args, columns("name", "value", "new"), [(name, present.get(name), new) for name, new in changes.items()])
    settings = f"setting{'s' * (len(changes) != 1)} {', '.join(changes)}"
    _say_change(args, f"change the {settings}", f"changed the {settings} of group {args.group!r}")
    return 0


# --- delete -----------------------------------------------------------------------------------------------------


def run_delete(args: argparse.Namespace) -> int:
    """Delete each group. After a group that cannot be deleted, the command continues. Returns the exit code."""
    code = 0
    with connect(with_settings(args, {}, DEFAULTS)) as client, waiting(args.bootstrap_servers):
        for group in dict.fromkeys(args.groups):
            try:
                client.delete(group)
            except errors.GroupError as error:
                reasons = {
                    "NON_EMPTY_GROUP": "has members; stop them first",
                    "GROUP_ID_NOT_FOUND": "does not exist",
                }
                if error.name not in reasons:
                    raise
                _note(f"group {group!r} {reasons[error.name]}")
                code = FAILED
            else:
                print(f"group {group!r} was deleted", flush=True)
    return code
