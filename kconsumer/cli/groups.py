"""`kconsumer groups`: lists groups and shows their members, offsets and lag. `group_changes.py` changes groups.

Without an argument GROUP all groups are shown. `--max-lag N` is for alerts: if a group lags by more than N records, the
exit code is 3 and a line on stderr names the group.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kconsumer import errors
from kconsumer.cli import group_changes
from kconsumer.cli import group_views as views
from kconsumer.cli.arguments import COMMAND_TIMEOUT_MS, UsageError, add_connection, add_format, with_settings
from kconsumer.cli.notices import waiting
from kconsumer.cli.parser import suggestion
from kconsumer.cli.watch import Screen, repeat
from kconsumer.groups import STATES, TYPES, GroupClient, GroupDescription

EXIT_LAGGING = 3
DEFAULT_WATCH_S = 2.0

View = Callable[[GroupClient, argparse.Namespace], tuple[list[str], list[views.Health]]]


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommands `groups list|describe|members|offsets|lag`, and those of `group_changes.py`."""
    parser = commands.add_parser(
        "groups",
        help="list groups; show state, members, offsets, lag; reset, delete",
        description="List groups, show their state, members, offsets and lag, reset their offsets, and delete them.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, (view, meaning) in ACTIONS.items():
        action = actions.add_parser(name, parents=[common], help=meaning, description=meaning.capitalize() + ".")
        add = action.add_argument
        if name != "list":
            add("groups", nargs="*", metavar="GROUP", help="groups to show; default: all groups")
        add_connection(action)
        add_format(action)
        add("--state", action="append", type=_one_of(STATES), default=[], metavar="STATE",
            help=f"show only groups in this state, one of {', '.join(STATES)}; may be repeated")  # fmt: skip
        add("--type", action="append", type=_one_of(TYPES), default=[], metavar="TYPE",
            help=f"show only groups of this type, one of {', '.join(TYPES)}; may be repeated")  # fmt: skip
        add("--watch", nargs="?", type=_seconds, const=DEFAULT_WATCH_S, metavar="SECONDS",
            help=f"repeat every SECONDS (default: {DEFAULT_WATCH_S:g}) until Ctrl-C")  # fmt: skip
        if name in ("describe", "offsets", "lag"):
            add("--max-lag", type=_number, metavar="N",
                help=f"exit with code {EXIT_LAGGING} if a group lags by more than N records")  # fmt: skip
            add(
                "--seconds",
                action="store_true",
                help="show how old the first record is that is not committed; reads one batch of each partition",
            )
        action.set_defaults(run=run, view=view, action=name, max_lag=None)
    group_changes.add_parsers(actions, common)


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    spelled = {name.lower(): name for name in known}

    def parse(text: str) -> str:
        name = re.sub("[-_]", "", text).lower()
        if name not in spelled:
            listed = ", ".join(known)
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {listed}{suggestion(name, spelled)}")
        return spelled[name]

    return parse


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?|\.\d+", text) or float(text) < 0.1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds (at least 0.1)")
    return float(text)


def _number(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of records")
    return int(text)


def connect(options: dict[str, object]) -> GroupClient:
    """Create the client. Tests replace this function."""
    return GroupClient.from_config(options)


def run(args: argparse.Namespace) -> int:
    """Show the view once, or repeat it until Ctrl-C. Returns the exit code."""
    if args.watch is not None and args.max_lag is not None:
        raise UsageError("--max-lag sets the exit code, and --watch never exits; give only one of them")
    if getattr(args, "groups", None) and (args.state or args.type):
        raise UsageError("--state and --type filter all groups; omit them, or omit the names of groups")
    with connect(with_settings(args, {}, {"default_api_timeout_ms": COMMAND_TIMEOUT_MS})) as client:
        if args.watch is not None:
            title = f"kconsumer groups {args.action}   {args.bootstrap_servers}"
            repeat(lambda: _query(args, client)[0], Screen(sys.stdout), title, args.watch)
        lines, healths = _query(args, client)
    if lines:
        print("\n".join(lines))
    return _check_lag(healths, args.max_lag)


def _query(args: argparse.Namespace, client: GroupClient) -> tuple[list[str], list[views.Health]]:
    view: View = args.view
    with waiting(args.bootstrap_servers):
        return view(client, args)


def _check_lag(healths: Sequence[views.Health], limit: int | None) -> int:
    lagging = [] if limit is None else [health for health in healths if health.lag > limit]
    for health in lagging:
        where = f" (largest lag: {health.max_lag[1]} in {health.max_lag[0]})" if health.max_lag else ""
        name = health.group.group_id
        print(f"kconsumer: group {name!r} lags by {health.lag} records{where}; the limit is {limit}", file=sys.stderr)
    return EXIT_LAGGING if lagging else 0


# --- the actions ------------------------------------------------------------------------------------------------


def _list(client: GroupClient, args: argparse.Namespace) -> tuple[list[str], list[views.Health]]:
    return views.listing(args, client.list(states=args.state, types=args.type)), []


def _members(client: GroupClient, args: argparse.Namespace) -> tuple[list[str], list[views.Health]]:
    return views.members(args, _described(client, args)), []


def _of_healths(show: Callable[[argparse.Namespace, list[views.Health]], list[str]]) -> View:
    def view(client: GroupClient, args: argparse.Namespace) -> tuple[list[str], list[views.Health]]:
        found = _healths(client, args)
        return show(args, found), found

    return view


def _described(client: GroupClient, args: argparse.Namespace) -> Sequence[GroupDescription]:
    if not args.groups:
        return client.describe_all(states=args.state, types=args.type)
    return [_one(client, group) for group in dict.fromkeys(args.groups)]


def _one(client: GroupClient, group: str) -> GroupDescription:
    try:
        return client.describe(group)
    except errors.GroupError as error:
        if error.name != "GROUP_ID_NOT_FOUND":
            raise
        raise errors.KafkaError(f"group {group!r} does not exist, or is of a type that cannot be described") from error


def _healths(client: GroupClient, args: argparse.Namespace) -> list[views.Health]:
    groups = _described(client, args)
    offsets = client.all_offsets(groups, seconds=True) if args.seconds else client.all_offsets(groups)
    return [views.Health(group, at, args.seconds) for group, at in zip(groups, offsets, strict=True)]


ACTIONS: dict[str, tuple[View, str]] = {
    "list": (_list, "list the groups of the cluster"),
    "describe": (
        _of_healths(views.descriptions),
        "show state, assignor and coordinator, and offsets, lag and owner of each partition",
    ),
    "members": (_members, "show the members of groups, and the partitions of each"),
    "offsets": (_of_healths(views.offsets), "show committed offset, log start, end, lag and owner of each partition"),
    "lag": (_of_healths(views.lags), "show one line per group with its lag"),
}
