"""`kconsumer consume`: prints the records of topics as they arrive.

Without `-g` every partition of the topics, or those of `-p`, are assigned and no group is involved. With `-g` the
command is an ordinary member of the group. It commits only records that were written, or that `--key`, `--grep`,
`--key-prefix` and `--header` leave out. The first SIGINT or SIGTERM calls `wakeup()`, which ends the command between
two batches; the second one ends it at once. SIGUSR1 prints to stderr what each partition waits for.
With `-o` records are written to a file as columns, decoded if there are deserializers, and the positions are committed
once, when the file is complete. `--skip-undecodable` leaves out and counts records that do not decode.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kconsumer import Consumer, HeaderFilter, KeyFilter, errors
from kconsumer.cli.arguments import CommandError, UsageError, add_connection, with_settings
from kconsumer.cli.decoding import (
    decoded_part,
    decoded_parts,
    registry_deserializers,
    registry_option,
)
from kconsumer.cli.files import ColumnFile, column_file
from kconsumer.cli.output import Terminal, writer
from kconsumer.cli.parser import suggestion
from kconsumer.cli.positions import POSITION_HELP, Position, parse_partitions, parse_position
from kconsumer.cli.progress import Progress
from kconsumer.cli.reader import DEFAULTS, FileReader, Reader, Selection, topic_pattern
from kconsumer.cli.terminal import has_colors
from kconsumer.config.options import canonical_name
from kconsumer.engine.state_dump import full_report

if TYPE_CHECKING:
    pass

INTERRUPTED = 130
CLOSE_S = 10.0


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of records")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return float(text)


def _format(text: str) -> str:
    try:
        writer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}{suggestion(text, ('text', 'json'))}") from None
    return text


def _header(text: str) -> HeaderFilter:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return HeaderFilter(name, os.fsencode(value))


def _key_prefix(text: str) -> KeyFilter:
    return KeyFilter(os.fsencode(text))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


def _column_file(text: str) -> Path:
    try:
        return column_file(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `consume TOPIC… -b HOST:PORT …`."""
    parser = commands.add_parser(
        "consume",
        parents=[common],
        help="print the records of topics",
        description="Print the records of topics until Ctrl-C, --count, --to, --exit-at-end or --timeout.",
        epilog=f"{POSITION_HELP}\n\n"
        "Tokens of a FORMAT: %t topic, %p partition, %o offset, %k key, %s value, %x value in hex, "
        "%T timestamp (ms), %d timestamp as ISO 8601 in UTC, %D in local time, %h headers, %K and %S length of key and "
        "value in bytes (-1 for null), %% a percent sign; \\n \\r \\t \\xHH as in C.\n\n"
        "Records are printed as they are to a pipe or a file. On a terminal control characters are shown as "
        "\\x1b, and JSON and what --grep finds have colors, unless NO_COLOR is set. -X value_deserializer=json decodes "
        "values, which are then objects in JSON.\n\n"
        "Examples:\n"
        "  kconsumer consume orders -b localhost:9092 -f '%p/%o %k: %s\\n'\n"
        "  kconsumer consume orders -b localhost:9092 --from -1h --to -30m -f json\n"
        "  kconsumer consume orders -b localhost:9092 -p 0,2 --exit-at-end --grep error\n\n"
        "The signal SIGUSR1 prints to stderr what each partition waits for, the state of the group member and the "
        "connections; so does an error with --debug.",
    )
    add = parser.add_argument
    add("topics", nargs="+", metavar="TOPIC", help="topics to read")
    add("--regex", action="store_true",
        help="TOPIC is a regular expression of Python for whole names; internal topics are left out")  # fmt: skip
    add_connection(parser)
    add("-p", "--partition", dest="partitions", action="extend", type=parse_partitions, metavar="PARTITION",
        help="read only this partition, or several such as 0,3-5; may be repeated")  # fmt: skip
    add("-g", "--group", metavar="GROUP", help="read as a member of this group, and commit what was printed, or "
        "left out by --key, --grep and the like")  # fmt: skip
    add("--from", dest="start", type=parse_position, metavar="POSITION",
        help="where to begin; default: latest, or earliest with --to and --exit-at-end; with -g only earliest or "
        "latest, for partitions without a committed offset")  # fmt: skip
    add("--to", dest="stop", type=parse_position, metavar="POSITION",
        help="where to stop: in each partition before the record at POSITION, or at the end offset that the partition "
        "had when the command started if that is earlier; not with -g")  # fmt: skip
    add(
        "--exit-at-end",
        action="store_true",
        help="stop at the end offsets that the partitions had when the command started; same as --to latest",
    )
    add("--tail", type=_count, metavar="N",
        help="print the last N offsets of each partition and stop; same as --from -N --exit-at-end")  # fmt: skip
    add(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="stop when no record has arrived for S seconds, with -g not before the group has assigned partitions; it "
        "is an error if that takes longer than S seconds and than default.api.timeout.ms (20 s unless set)",
    )
    add("-n", "--count", type=_count, metavar="N", help="stop after N records")
    add("--key", metavar="KEY", help="print only records with this key")
    add("--key-prefix", dest="filters", action="append", type=_key_prefix, default=[], metavar="PREFIX",
        help="read only records whose key begins with PREFIX; --header selects among these")  # fmt: skip
    add("--header", dest="filters", action="append", type=_header, metavar="NAME=VALUE",
        help="read only records whose header NAME has this value; may be repeated")  # fmt: skip
    add("--grep", type=_pattern, metavar="REGEX",
        help="print only records whose value contains a match of this regular expression of Python; (?i) at its "
        "beginning ignores case")  # fmt: skip
    add("-f", "--format", type=_format, metavar="text|json|FORMAT",
        help="print values only (default), one JSON object per line, or tokens as below")  # fmt: skip
    add("-Z", "--null", action="store_true", help="print NULL in place of a null key or value, not nothing")
    add("-s", "--decode", action="append", default=[], type=decoded_part, metavar="key|value=FORMAT",
        help="decode keys or values by the schemas of a registry; FORMAT is avro, jsonschema or protobuf")  # fmt: skip
    add("-r", "--registry", action="append", default=[], type=registry_option, metavar="URL|key=value",
        help="the address of the schema registry, or an option of confluent-kafka's client for it, such as "
        "basic.auth.user.info=env:NAME; may be repeated")  # fmt: skip
    add("--skip-undecodable", action="store_true",
        help="leave out records that the deserializers cannot decode, and print how many there were")  # fmt: skip
    add("-o", "--output", type=_column_file, metavar="FILE.parquet|FILE.arrow",
        help="write the records as columns to this file instead of printing them; needs pyarrow. With -g the offsets "
        "are committed when the file is complete, and a file that exists is not replaced")  # fmt: skip
    parser.set_defaults(run=run)


def connect(options: Mapping[str, object]) -> Consumer:
    """Create the consumer. Tests replace this function."""
    return Consumer.from_config(options)


def run(args: argparse.Namespace) -> int:
    """Read until --count, the end of the topics, an error or a signal. Returns the exit code."""
    _check(args)
    with registry_deserializers(args.decode, args.registry) as deserializers:
        return _run(args, deserializers)


def _run(args: argparse.Namespace, deserializers: Mapping[str, object]) -> int:
    if args.tail is not None:
        args.start, args.stop = Position("tail", args.tail), Position("latest")
    if args.exit_at_end:
        args.stop = args.stop or Position("latest")
    start: Position = args.start or Position("latest" if args.stop is None else "earliest")
    file = None if args.output is None else ColumnFile(args.output, keep_existing=args.group is not None)
    options = _options(args, start, deserializers)
    decoded = decoded_parts(options)
    if args.skip_undecodable and not decoded:
        raise UsageError("--skip-undecodable has no effect without deserializers; add -X value_deserializer=… or -s")
    consumer = connect(options)
    progress = Progress(sys.stderr)
    if file is None:
        out = sys.stdout.buffer
        terminal = Terminal(has_colors(out), args.grep) if out.isatty() else None
        selection = None if args.key is None and args.grep is None else Selection(args.key, args.grep)
        write = writer(args.format or "text", terminal, b"NULL" if args.null else b"")
        reader = Reader(consumer, args.topics, write, out, progress, args.stop, selection)
    else:
        reader = FileReader(consumer, args.topics, file, progress, args.stop, decoded)
    reader.skips, reader.regex = args.skip_undecodable, args.regex
    with _signals_wake(consumer) as caught:
        try:
            with file or contextlib.nullcontext():
                try:
                    if args.group is None:
                        reader.assign(start, args.bootstrap_servers, args.partitions)
                    else:
                        reader.join(args.bootstrap_servers)
                    reader.read(args.count, args.timeout, _api_timeout_s(options))
                except errors.WakeupError:
                    if not caught:
                        raise
                except errors.KafkaError as error:
                    if args.debug:
                        _print_state(consumer)
                    if isinstance(error, errors.RecordDeserializationError):
                        raise CommandError(_how_to_skip(error, args.group)) from error
                    raise
            if file is not None and args.group is not None:
                commit_file(consumer)
        finally:
            progress.finish()
            if reader.skipped:
                sys.stderr.write(f"{reader.skipped} records could not be decoded and were left out\n")
            consumer.close(timeout=CLOSE_S)
    return 128 + caught[0] if caught else 0


def commit_file(consumer: Consumer) -> None:
    """Commit the positions behind the rows of a file that is complete, also if a signal arrives meanwhile."""
    try:
        consumer.commit(timeout=CLOSE_S)
    except errors.WakeupError:
        consumer.commit(timeout=CLOSE_S)


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that cannot be used together."""
    if args.group is not None:
        if args.start is not None and args.start.kind not in ("earliest", "latest"):
            raise UsageError(
                "--from with an offset or a time cannot be used with -g; use earliest or latest, or set the offsets of "
                "the group with kconsumer groups reset"
            )
        if args.partitions is not None:
            raise UsageError("-p cannot be used with -g, because the group assigns the partitions")
        if args.tail is not None:
            raise UsageError("--tail cannot be used with -g, because a group continues at its committed offsets")
        if args.stop is not None:
            raise UsageError("--to cannot be used with -g; use --exit-at-end")
    if sum(isinstance(chosen, KeyFilter) for chosen in args.filters or ()) > 1:
        raise UsageError("--key-prefix can be given once: no key begins with two different prefixes")
    if args.exit_at_end and args.stop is not None:
        raise UsageError("--to and --exit-at-end cannot be used together")
    if args.tail is not None and (args.start is not None or args.stop is not None or args.exit_at_end):
        raise UsageError("--tail cannot be used with --from, --to or --exit-at-end, which it contains")
    if args.output is not None:
        given = {"--key": args.key, "--grep": args.grep, "-f": args.format, "--null": args.null or None}
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            raise UsageError(f"{unused[0]} cannot be used with -o: a file contains all records, as columns")
    if args.null and args.format == "json":
        raise UsageError("--null cannot be used with -f json, which has null")
    if args.null and args.format not in (None, "text") and not re.search("%[ksx]", args.format.replace("%%", "")):
        raise UsageError("--null has no effect: FORMAT has neither %k nor %s nor %x")
    if args.group is None and any(canonical_name(key) == "group_id" for key, _ in args.settings):
        raise UsageError("-X cannot set the group; use -g")
    if args.regex:
        topic_pattern(args.topics)
    _check_settings(args)


#: Options of the consumer that have no effect on the command -> what to use, or why.
UNUSED = {"consumer_timeout_ms": "use --timeout", "enable_auto_offset_store": "what was written is committed"}
OF_GROUPS = {"assignors", "auto_commit_interval_ms", "group_instance_id", "group_protocol", "group_remote_assignor",
             "heartbeat_interval_ms", "max_poll_interval_ms", "session_timeout_ms"}  # fmt: skip


def _check_settings(args: argparse.Namespace) -> None:
    """Raise UsageError for options of -X that have no effect."""
    given = {canonical_name(key): key for key, _ in args.settings}
    for name, key in given.items():
        reason = UNUSED.get(name)
        if name in OF_GROUPS and args.group is None:
            reason = "there is no group without -g"
        if name == "max_poll_records" and args.output is not None:
            reason = "-o writes row groups of its own size"
        if reason is not None:
            raise UsageError(f"-X {key} has no effect: {reason}")


NO_GROUP: Mapping[str, object] = {"enable_auto_commit": False, "group_instance_id": None}
"""What a consumer without a group has in place of options of a file that belong to its group."""


def _how_to_skip(error: errors.RecordDeserializationError, group: str | None) -> str:
    """Returns the message of an error, with the arguments that skip the record in place of the advice to seek."""
    what = str(error).partition("; seek")[0]
    topic, partition = error.topic_partition
    after = error.offset + 1
    if group is None:
        return f"{what}; read the following records with -p {partition} --from {after}"
    skip = f"kconsumer groups reset {group} --topic {topic}:{partition} --to {after} --execute"
    return f"{what}; to skip it, stop the other members of the group, and run {skip}"


def _options(args: argparse.Namespace, start: Position, deserializers: Mapping[str, object]) -> dict[str, object]:
    options = dict(deserializers)
    if args.filters:
        filters = args.filters
        options["record_filter"] = filters[0] if len(filters) == 1 else lambda record: all(f(record) for f in filters)
    options["group_id"] = args.group
    if args.group is None:  # the file of -F may be that of a program, and name a group
        chosen = {canonical_name(key) for key, _ in args.settings}
        options |= {key: value for key, value in NO_GROUP.items() if key not in chosen}
    elif args.output is not None:
        options["enable_auto_commit"] = False
    if args.start is not None or args.stop is not None:
        options["auto_offset_reset"] = start.kind if start.kind in ("earliest", "latest") else "latest"
    return with_settings(args, options, DEFAULTS)


def _api_timeout_s(options: Mapping[str, object]) -> float:
    return next(float(str(options[key])) / 1000 for key in options if canonical_name(key) == "default_api_timeout_ms")


@contextlib.contextmanager
def _signals_wake(consumer: Consumer) -> Iterator[list[int]]:
    """Handle signals during the `with` block. Yields a list for the number of the first SIGINT or SIGTERM.

    The first SIGINT or SIGTERM calls `wakeup()`, so that the present or next blocking call raises WakeupError. The
    second one raises KeyboardInterrupt. SIGUSR1 prints the state of the consumer. No handlers are installed if this is
    not the main thread, because Python does not allow it.
    """
    caught: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        consumer.wakeup()

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def report(number: int, frame: FrameType | None) -> None:
        _print_state(consumer)

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop}
    if sys.platform != "win32":
        handlers[signal.SIGUSR1] = report
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _print_state(consumer: Consumer) -> None:
    """Write the state of the consumer to file descriptor 2.

    `sys.stderr` is not used: a signal may interrupt one of its writes, and a nested write raises RuntimeError.
    """
    os.write(2, full_report(consumer).encode())
