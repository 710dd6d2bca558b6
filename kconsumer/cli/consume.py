"""`kconsumer consume`: prints the records of topics as they arrive.

Without `-g` every partition of the topics, or those of `-p`, are assigned and no group is involved. With `-g` the
command is an ordinary member of the group. It commits only records that were written, or that `--key` and `--grep`
leave out. The first SIGINT or SIGTERM calls `wakeup()`, which ends the command between two batches; the second one ends
it at once. SIGUSR1 prints to stderr what each partition waits for.
With `-o` records are written to a file as columns, and the positions are committed once, when the file is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from kconsumer import Consumer, errors
from kconsumer.cli.arguments import COMMAND_TIMEOUT_MS, CommandError, UsageError, add_connection, with_settings
from kconsumer.cli.files import ColumnFile, column_file, write_all
from kconsumer.cli.lookups import offsets_at, partitions_of
from kconsumer.cli.notices import waiting
from kconsumer.cli.output import Terminal, Writer, as_bytes, writer
from kconsumer.cli.parser import suggestion
from kconsumer.cli.positions import POSITION_HELP, Position, parse_partitions, parse_position
from kconsumer.cli.progress import Progress
from kconsumer.cli.terminal import has_colors
from kconsumer.engine.state_dump import full_report
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord, ConsumerRecords

INTERRUPTED = 130
POLL_S = 0.5
CLOSE_S = 10.0
MAX_FILE_ROWS = 100_000  # maximum rows of one poll with `-o`

# Unlike the library, the command does not create a topic by reading it, has a shorter timeout and takes larger batches.
DEFAULTS = {
    "allow_auto_create_topics": False,
    "default_api_timeout_ms": COMMAND_TIMEOUT_MS,
    "max_poll_records": 5_000,
}


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of records")
    return int(text)


def _format(text: str) -> str:
    try:
        writer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}{suggestion(text, ('text', 'json'))}") from None
    return text


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
        description="Print the records of topics until Ctrl-C, --count, --to or --exit-at-end.",
        epilog=f"{POSITION_HELP}\n\n"
        "Tokens of a FORMAT: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp (ms), "
        "%h headers, %K and %S length of key and value in bytes, %% a percent sign; \\n \\r \\t \\xHH as in C.\n\n"
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
    add_connection(parser)
    add("-p", "--partition", dest="partitions", action="extend", type=parse_partitions, metavar="PARTITION",
        help="read only this partition, or several such as 0,3-5; may be repeated")  # fmt: skip
    add("-g", "--group", metavar="GROUP", help="read as a member of this group, and commit what was printed, or "
        "left out by --key and --grep")  # fmt: skip
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
    add("-n", "--count", type=_count, metavar="N", help="stop after N records")
    add("--key", metavar="KEY", help="print only records with this key")
    add("--grep", type=_pattern, metavar="REGEX",
        help="print only records whose value contains a match of this regular expression of Python; (?i) at its "
        "beginning ignores case")  # fmt: skip
    add("-f", "--format", type=_format, default="text", metavar="text|json|FORMAT",
        help="print values only (default), one JSON object per line, or tokens as below")  # fmt: skip
    add("-o", "--output", type=_column_file, metavar="FILE.parquet|FILE.arrow",
        help="write the records as columns to this file instead of printing them; needs pyarrow")  # fmt: skip
    parser.set_defaults(run=run)


def connect(options: Mapping[str, object]) -> Consumer:
    """Create the consumer. Tests replace this function."""
    return Consumer.from_config(options)


def run(args: argparse.Namespace) -> int:
    """Read until --count, the end of the topics, an error or a signal. Returns the exit code."""
    _check(args)
    if args.exit_at_end:
        args.stop = args.stop or Position("latest")
    start: Position = args.start or Position("latest" if args.stop is None else "earliest")
    file = None if args.output is None else ColumnFile(args.output)
    consumer = connect(_options(args, start))
    progress = Progress(sys.stderr)
    if file is None:
        out = sys.stdout.buffer
        terminal = Terminal(has_colors(out), args.grep) if out.isatty() else None
        selection = None if args.key is None and args.grep is None else Selection(args.key, args.grep)
        reader = Reader(consumer, args.topics, writer(args.format, terminal), out, progress, args.stop, selection)
    else:
        reader = FileReader(consumer, args.topics, file, progress, args.stop)
    with _signals_wake(consumer) as caught:
        try:
            with file or contextlib.nullcontext():
                try:
                    if args.group is None:
                        reader.assign(start, args.bootstrap_servers, args.partitions)
                    else:
                        reader.join(args.bootstrap_servers)
                    reader.read(args.count)
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
                consumer.commit(timeout=CLOSE_S)
        finally:
            progress.finish()
            consumer.close(timeout=CLOSE_S)
    return 128 + caught[0] if caught else 0


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that cannot be used together."""
    if args.group is not None:
        if args.start is not None and args.start.kind in ("offset", "time"):
            raise UsageError(
                "--from with an offset or a time cannot be used with -g; use earliest or latest, or set the offsets of "
                "the group with kconsumer groups reset"
            )
        if args.partitions is not None:
            raise UsageError("-p cannot be used with -g, because the group assigns the partitions")
        if args.stop is not None:
            raise UsageError("--to cannot be used with -g; use --exit-at-end")
    if args.exit_at_end and args.stop is not None:
        raise UsageError("--to and --exit-at-end cannot be used together")
    if args.output is not None and (args.key is not None or args.grep is not None):
        raise UsageError("--key and --grep cannot be used with -o")


def _how_to_skip(error: errors.RecordDeserializationError, group: str | None) -> str:
    """Returns the message of an error, with the arguments that skip the record in place of the advice to seek."""
    what = str(error).partition("; seek")[0]
    topic, partition = error.topic_partition
    after = error.offset + 1
    if group is None:
        return f"{what}; read the following records with -p {partition} --from {after}"
    skip = f"kconsumer groups reset {group} --topic {topic}:{partition} --to {after} --execute"
    return f"{what}; to skip it, stop the other members of the group, and run {skip}"


def _options(args: argparse.Namespace, start: Position) -> dict[str, object]:
    options: dict[str, object] = {}
    if args.group is not None:
        options["group_id"] = args.group
        if args.output is not None:
            options["enable_auto_commit"] = False
    if args.start is not None or args.stop is not None:
        options["auto_offset_reset"] = start.kind if start.kind in ("earliest", "latest") else "latest"
    return with_settings(args, options, DEFAULTS)


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


class Selection:
    """Decides which records are printed: those with a key, and with a match of a pattern in the value."""

    def __init__(self, key: str | None, pattern: re.Pattern[str] | None) -> None:
        self._key = None if key is None else key.encode(errors="surrogateescape")
        self._pattern = pattern

    def __call__(self, record: ConsumerRecord) -> bool:
        """Returns True if the record must be printed."""
        if self._key is not None and (record.key is None or as_bytes(record.key) != self._key):
            return False
        if self._pattern is None:
            return True
        return self._pattern.search(as_bytes(record.value).decode(errors="backslashreplace")) is not None


class Reader:
    """Reads with one consumer and writes the records to one output."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        write: Writer,
        out: BinaryIO,
        progress: Progress,
        stop: Position | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.consumer = consumer
        self._stop = stop
        self._selection = selection
        self._topics, self._write, self._out, self._progress = topics, write, out, progress
        self._unfinished: dict[TopicPartition, int] = {}  # with `stop`: its offsets that are not reached yet
        self._has_partitions = False
        self._shares_terminal = progress.visible and out.isatty()

    def assign(self, start: Position, servers: str, numbers: Sequence[int] | None = None) -> None:
        """Assign every partition of the topics, or those with these numbers, without a group, and seek to `start`.

        Raises CommandError if a topic or partition does not exist.
        """
        partitions = [tp for topic in dict.fromkeys(self._topics) for tp in self._partitions(topic, servers, numbers)]
        self.consumer.assign(partitions)
        if start.kind in ("offset", "time"):
            for tp, offset in self._offsets_at(partitions, start).items():
                self.consumer.seek(tp, offset)
        self._assigned(self.consumer, partitions)

    def join(self, servers: str) -> None:
        """Subscribe to the topics as a member of the group. Raises CommandError if a topic does not exist."""
        for topic in self._topics:
            self._partitions(topic, servers)
        self.consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def read(self, count: int | None) -> None:
        """Write records until `count` are written or, with `stop`, every partition has reached the stop position."""
        while count is None or self._progress.records < count:
            if self._stop is not None and self._at_end():
                return
            wanted = None if count is None else count - self._progress.records
            self._read_some(wanted)
            if self._progress.due:
                self._progress.draw(self._lag())

    def _read_some(self, wanted: int | None) -> None:
        records = self.consumer.poll(timeout=POLL_S, max_records=self._at_most(wanted))
        if records:
            self._print(records, wanted)

    def _at_most(self, wanted: int | None) -> int | None:
        """Returns the `max_records` of a poll. With a selection it is not `wanted`, because few records may match."""
        return None if wanted is None or self._selection is not None else min(wanted, DEFAULTS["max_poll_records"])

    def _print(self, records: ConsumerRecords, wanted: int | None) -> None:
        """Write the selected records, at most `wanted`, and none beyond the stop position.

        Seeks back to the first record of each partition that was not examined.
        """
        size = 0
        lines: list[bytes] = []
        remaining: dict[TopicPartition, int] = {}
        ends, selection = self._unfinished, self._selection
        try:
            for record in records:
                if len(lines) == wanted or (ends and self._is_beyond_stop(record)):
                    remaining.setdefault(TopicPartition(record.topic, record.partition), record.offset)
                    continue
                if selection is not None and not selection(record):
                    continue
                lines.append(self._write(record))
                size += max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
            if self._shares_terminal:
                self._progress.clear()
            write_all(self._out, b"".join(lines))
        except BaseException:
            # The batch was not written, or not completely. close() commits positions, so without the seek the group
            # would skip these records.
            for partition in records.partitions():
                self.consumer.seek(partition, records.records(partition)[0].offset)
            raise
        for tp, offset in remaining.items():
            self.consumer.seek(tp, offset)
        self._progress.count(len(lines), size)

    def _is_beyond_stop(self, record: ConsumerRecord) -> bool:
        end = self._unfinished.get(TopicPartition(record.topic, record.partition))
        return end is not None and record.offset >= end

    def _partitions(self, topic: str, servers: str, numbers: Sequence[int] | None = None) -> list[TopicPartition]:
        with waiting(servers):
            return partitions_of(self.consumer, topic, numbers, servers)

    def _offsets_at(self, partitions: Sequence[TopicPartition], position: Position) -> dict[TopicPartition, int]:
        """Returns the offset of a position in each partition. One outside a log becomes the nearer end of the log."""
        starts, ends = self.consumer.beginning_offsets(partitions), self.consumer.end_offsets(partitions)
        found = offsets_at(self.consumer, partitions, position, starts, ends)
        return {tp: max(starts[tp], min(offset, ends[tp])) for tp, offset in found.items()}

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._has_partitions = True
        if self._stop is not None:
            self._unfinished.update(self._offsets_at(partitions, self._stop))

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._unfinished.pop(partition, None)

    def _at_end(self) -> bool:
        for partition, end in list(self._unfinished.items()):
            if self.consumer.position(partition) >= end:
                self.consumer.pause(partition)  # records that arrive while other partitions are read are not printed
                del self._unfinished[partition]
        return self._has_partitions and not self._unfinished

    def _lag(self) -> int | None:
        lags = [self.consumer.current_lag(partition) for partition in self.consumer.assignment()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None


class FileReader(Reader):
    """Reads with one consumer and writes the records to a file as columns."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        file: ColumnFile,
        progress: Progress,
        stop: Position | None = None,
    ) -> None:
        super().__init__(consumer, topics, writer("text"), sys.stdout.buffer, progress, stop)
        self._file = file

    def _read_some(self, wanted: int | None) -> None:
        batch = self.consumer.poll_arrow(timeout=POLL_S, max_rows=min(wanted or MAX_FILE_ROWS, MAX_FILE_ROWS))
        if batch:
            ends = self._unfinished
            positions = {tp: at.offset for tp, at in batch.next_offsets().items()}
            beyond = {tp: ends[tp] for tp, position in positions.items() if position > ends.get(tp, position)}
            self._progress.count(*self._file.write(batch, beyond))
            for tp, end in beyond.items():
                self.consumer.seek(tp, end)
