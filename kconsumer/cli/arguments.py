"""Arguments that several subcommands have: which cluster, which options, text or JSON."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Mapping

from kconsumer.cli.properties import read_properties
from kconsumer.config.options import canonical_name

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
    """`-b HOST:PORT`, `-X key=value`, and where else options come from."""
    parser.add_argument(
        "-b", "--bootstrap-servers", metavar="HOST:PORT", help="brokers, separated by commas; or they are in FILE"
    )
    parser.add_argument("-X", dest="settings", action="append", type=setting, default=[], metavar="key=value",
                        help="any option of the consumer, as max.poll.records or max_poll_records; "
                             "secrets may be env:NAME or file:PATH")  # fmt: skip
    parser.add_argument("-F", "--config", metavar="FILE",
                        help="options from a file of Java properties, as Kafka's tools take; "
                             "-X goes before")  # fmt: skip
    parser.add_argument("--ask", dest="asked", action="append", default=[], metavar="key",
                        help="ask for this option, such as ssl_password, without showing what is typed")  # fmt: skip


def add_format(parser: argparse.ArgumentParser) -> None:
    """`-f text|json`, and `--json` for short."""
    parser.add_argument("-f", "--format", choices=("text", "json"), default="text",
                        help="a table (default), or one JSON object per line")  # fmt: skip
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as -f json")


def with_settings(
    args: argparse.Namespace, options: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """The options of the command line, of -X, those asked for, those of the file, and `defaults` for what none names.

    `args.bootstrap_servers` is then what was found. Raises UsageError when -X sets what the command line sets, OSError
    for a file that cannot be read.
    """
    chosen = {**options}
    if args.bootstrap_servers is not None:
        chosen["bootstrap_servers"] = args.bootstrap_servers
    for key, value in args.settings:
        if key in chosen:
            raise UsageError(f"-X {key}: the command line sets it already")
        chosen[key] = value
    for key in args.asked:
        chosen[key] = getpass.getpass(f"{key}: ")
    _add(chosen, _of_file(args.config))
    _ask_for_password(chosen)
    if "bootstrap_servers" not in _names(chosen):
        raise UsageError("which brokers? Give -b HOST:PORT, or bootstrap.servers in the file of -F")
    args.bootstrap_servers = next(value for key, value in chosen.items() if _names({key: 0}) == {"bootstrap_servers"})
    _add(chosen, defaults)
    return chosen


def _ask_for_password(chosen: dict[str, object]) -> None:
    """A user without a password: ask, if there is somebody to ask."""
    user = next((value for key, value in chosen.items() if _names({key: 0}) == {"sasl_plain_username"}), None)
    if user is not None and not _names(chosen) & {"sasl_plain_password", "sasl_jaas_config"} and sys.stdin.isatty():
        chosen["sasl_plain_password"] = getpass.getpass(f"password of {user}: ")


def _of_file(path: str | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        return read_properties(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no file of properties: {error}") from None


def _names(options: Mapping[str, object]) -> set[str]:
    return {canonical_name(key) for key in options}


def _add(chosen: dict[str, object], more: Mapping[str, object]) -> None:
    """Add the options that are not chosen yet under any of their names."""
    named = _names(chosen)
    chosen.update({key: value for key, value in more.items() if canonical_name(key) not in named})
