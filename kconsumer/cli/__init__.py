"""The `kconsumer` command: parses the arguments and returns an exit code. Each subcommand has its own module.

Exit codes: 0 success; 1 an error (one line on stderr); 2 a wrong command line or option (one line, too); 3 a group lags
by more than `--max-lag`; 4 handlers of `work` had not returned in time; 130 ended by SIGINT; 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from kconsumer import __version__, errors
from kconsumer.cli import assignors, cluster, completion, consume, dump, fake_cluster, groups, topics, work
from kconsumer.cli.arguments import CommandError, UsageError
from kconsumer.cli.files import drop_output, writing_output
from kconsumer.cli.notices import Notices
from kconsumer.cli.parser import Parser, join_negative_values
from kconsumer.cli.terminal import safe_text

OK, FAILED, USAGE = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the arguments of the process). Returns its exit code."""
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:  # argparse has printed its help
        return int(end.code or 0)
    except UsageError as error:
        print(f"{error.prog}: {_one_line(error)}", file=sys.stderr)
        return USAGE
    if args.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    else:
        logging.basicConfig(level=logging.WARNING, handlers=[Notices(sys.stderr)])
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        if sys.stdout is None:
            raise CommandError("standard output is closed")
        with writing_output():
            code = run(args)
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        drop_output()  # the program behind the pipe has ended, as `| head` does
        return OK
    except KeyboardInterrupt:
        return consume.INTERRUPTED
    except (errors.KafkaError, UsageError, OSError) as error:
        if args.debug:
            traceback.print_exc()
        print(f"kconsumer: {_one_line(error)}", file=sys.stderr)
        return USAGE if isinstance(error, errors.ConfigError | UsageError) else FAILED


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Returns the values of the arguments. Raises UsageError for a wrong command line."""
    parser = build_parser()
    completion.complete(parser)
    args, unknown = parser.parse_known_args(join_negative_values(argv))
    if unknown:
        args.parser.refuse(unknown)
    return args


def build_parser() -> Parser:
    """Returns a parser for all subcommands and their arguments."""
    parser = Parser(
        prog="kconsumer",
        description="Read and process topics of Apache Kafka, inspect topics and log segments, inspect and change "
        "groups.",
        epilog="Exit codes: 0 success; 1 an error; 2 a wrong command line or option; 3 a group lags by more than "
        "--max-lag; 4 handlers of work had not returned in time; 130 and 143 ended by SIGINT and SIGTERM.",
    )
    parser.add_argument("--version", action="version", version=f"kconsumer {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--debug",
        action="store_true",
        help="write debug logs to stderr, and a traceback after an error",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    consume.add_parser(commands, common)
    work.add_parser(commands, common)
    groups.add_parser(commands, common)
    topics.add_parser(commands, common)
    cluster.add_parser(commands, common)
    assignors.add_parser(commands, common)
    dump.add_parser(commands, common)
    fake_cluster.add_parser(commands, common)
    completion.add_parser(commands, common)
    return parser


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno and error.filename:
        return f"{error.filename}: {os.strerror(error.errno)}"
    return safe_text(" ".join(str(error).split())) or type(error).__name__
