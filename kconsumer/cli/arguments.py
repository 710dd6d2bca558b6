"""Arguments that several subcommands share: brokers, consumer options and the output format."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Mapping

from kconsumer.cli.properties import read_properties
from kconsumer.config.options import canonical_name
from kconsumer.errors import KafkaError

COMMAND_TIMEOUT_MS = 20_000  # shorter than the library's default, because a user waits at the terminal


class UsageError(Exception):
    """An error in the command line. The exit code is 2. `prog` is the command that has the error."""

    def __init__(self, message: str, prog: str = "kconsumer") -> None:
        super().__init__(message)
        self.prog = prog


class CommandError(KafkaError):
    """An error that ends the command with exit code 1."""


def setting(text: str) -> tuple[str, str]:
    """Split the argument of -X, `key=value`. Returns the key and the value. Raises ArgumentTypeError for other text."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    return key.strip(), value


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add `-b HOST:PORT`, and the arguments that set other options: `-X key=value`, `-F FILE` and `--ask key`."""
    parser.add_argument("-b", "--bootstrap-servers", metavar="HOST:PORT",
                        help="brokers to connect to first, separated by commas; "
                             "required unless FILE contains bootstrap.servers")  # fmt: skip
    parser.add_argument("-X", dest="settings", action="append", type=setting, default=[], metavar="key=value",
                        help="set any option of the consumer, such as max.poll.records or max_poll_records; "
                             "a secret can be read with env:NAME or file:PATH; may be repeated")  # fmt: skip
    parser.add_argument("-F", "--config", metavar="FILE",
                        help="read options from a Java properties file, as Kafka's own tools do; "
                             "-X and other arguments override it")  # fmt: skip
    parser.add_argument("--ask", dest="asked", action="append", default=[], metavar="key",
                        help="prompt for the value of this option, such as ssl_password, without echo; "
                             "may be repeated")  # fmt: skip


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add `-f text|json`, and its short form `--json`."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("-f", "--format", choices=("text", "json"), default="text",
                        help="print a table (default), or one JSON object per line")  # fmt: skip
    formats.add_argument("--json", dest="format", action="store_const", const="json", help="same as -f json")


def with_settings(
    args: argparse.Namespace, options: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """Merge the options of a consumer from all sources. Returns them, and sets `args.bootstrap_servers`.

    `options` contains the options that arguments of the subcommand set. These options, -b, -X and --ask override the
    file of -F. `defaults` applies to options that no source sets.

    Raises UsageError if -X or --ask sets an option that is set already, by the same name or by another one. Also raises
    it if no source names brokers, or if the file is not UTF-8. Raises OSError if the file cannot be read.
    """
    if "" not in sys.path:  # of `python -m`: token providers may be in modules of the present folder
        sys.path.append("")
    chosen = {**options}
    if args.bootstrap_servers is not None:
        chosen["bootstrap_servers"] = args.bootstrap_servers
    for key, value in args.settings:
        _check_unset(chosen, key, "-X")
        chosen[key] = value
    for key in args.asked:
        _check_unset(chosen, key, "--ask")
        chosen[key] = _prompt(key)
    _add(chosen, _of_file(args.config))
    _ask_for_password(chosen)
    if "bootstrap_servers" not in _names(chosen):
        raise UsageError("no brokers: give -b HOST:PORT, or bootstrap.servers in the file of -F")
    args.bootstrap_servers = next(value for key, value in chosen.items() if _names({key: 0}) == {"bootstrap_servers"})
    _add(chosen, defaults)
    return chosen


def _check_unset(chosen: Mapping[str, object], key: str, argument: str) -> None:
    """Raise UsageError if `chosen` contains the option `key`, in any spelling. `argument` is -X or --ask."""
    name = canonical_name(key)
    for spelling in chosen:
        if canonical_name(spelling) == name:
            other = f" under the name {spelling}" if spelling != key else ""
            raise UsageError(f"{argument} {key}: another argument sets this option already{other}")


def _ask_for_password(chosen: dict[str, object]) -> None:
    """Prompt for the password if a user name is set without a password, and stdin is a terminal."""
    user = next((value for key, value in chosen.items() if _names({key: 0}) == {"sasl_plain_username"}), None)
    if user is not None and not _names(chosen) & {"sasl_plain_password", "sasl_jaas_config"} and sys.stdin.isatty():
        chosen["sasl_plain_password"] = _prompt(f"password of {user}")


def _prompt(name: str) -> str:
    try:
        return getpass.getpass(f"{name}: ")
    except EOFError:
        raise UsageError(f"{name}: nothing was entered, and standard input has ended") from None


def _of_file(path: str | None) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        return read_properties(path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a properties file in UTF-8: {error}") from None


def _names(options: Mapping[str, object]) -> set[str]:
    return {canonical_name(key) for key in options}


def _add(chosen: dict[str, object], more: Mapping[str, object]) -> None:
    """Add the options of `more` to `chosen`, except those that `chosen` contains already, also under another name."""
    named = _names(chosen)
    chosen.update({key: value for key, value in more.items() if canonical_name(key) not in named})
