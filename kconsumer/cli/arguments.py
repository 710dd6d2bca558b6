"""Arguments that several subcommands have: which cluster, which options, text or JSON."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

COMMAND_TIMEOUT_MS = 20_000  # a command gives up sooner than a library


class UsageError(Exception):
    """The command line makes no sense; exit code 2."""


def setting(text: str) -> tuple[str, str]:
    """`key=value` of -X."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    return key.strip(), value


def add_connection(parser: argparse.ArgumentParser) -> None:
    """`-b HOST:PORT` and `-X key=value`."""
    parser.add_argument(
        "-b", "--bootstrap-servers", required=True, metavar="HOST:PORT", help="brokers, separated by commas"
    )
    parser.add_argument("-X", dest="settings", action="append", type=setting, default=[], metavar="key=value",
                        help="any option of the consumer, as max.poll.records or max_poll_records")  # fmt: skip


def add_format(parser: argparse.ArgumentParser) -> None:
    """`-f text|json`, and `--json` for short."""
    parser.add_argument("-f", "--format", choices=("text", "json"), default="text",
                        help="a table (default), or one JSON object per line")  # fmt: skip
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as -f json")


def with_settings(
    args: argparse.Namespace, options: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """The options of the command line, those of -X, and `defaults` for what neither names.

    Raises UsageError when -X sets what the command line sets.
    """
    chosen = {"bootstrap_servers": args.bootstrap_servers, **options}
    for key, value in args.settings:
        if key in chosen:
            raise UsageError(f"-X {key}: the command line sets it already")
        chosen[key] = value
    named = {key.replace(".", "_") for key in chosen}
    return chosen | {key: value for key, value in defaults.items() if key not in named}
