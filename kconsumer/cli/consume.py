"""`kconsumer consume`: prints the records of topics as they arrive.

Without `-g` every partition of the topics is assigned and no group is involved. With `-g` the command is an ordinary
member of the group and commits only records that were written. The first SIGINT or SIGTERM calls `wakeup()`, which ends
the command between two batches; the second one ends it at once. SIGUSR1 prints to stderr what each partition waits for.
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
from kconsumer.cli.notices import waiting
from kconsumer.cli.output import Writer, writer
from kconsumer.cli.positions import Position, parse_position
from kconsumer.cli.progress import Progress
from kconsumer.engine.state_dump import full_report
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecords

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


def _writer(text: str) -> Writer:
    try:
        return writer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
        description="Print the records of topics until Ctrl-C, --count or --exit-at-end.",
        epilog="Tokens of a FORMAT: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp (ms), "
        "%h headers, %K and %S length of key and value in bytes, %% a percent sign; \\n \\r \\t \\xHH as in C. "
        "Example: -f '%p/%o %k: %s\\n'. The signal SIGUSR1 prints to stderr what each partition waits for, "
        "the state of the group member and the connections; so does an error with --debug.",
    )
    add = parser.add_argument
    add("topics", nargs="+", metavar="TOPIC", help="topics to read")
    add_connection(parser)
    add("-g", "--group", metavar="GROUP", help="read as a member of this group, and commit what was printed")
    add("--from", dest="start", type=parse_position, metavar="earliest|latest|OFFSET|@TIMESTAMP",
        help="where to begin; default: latest, or earliest with --exit-at-end; with -g only earliest or latest, "
        "for partitions without a committed offset; TIMESTAMP is in ms since 1970 or ISO-8601, UTC by default"
        )  # fmt: skip
    add("-n", "--count", type=_count, metavar="N", help="stop after N records")
    add(
        "--exit-at-end",
        action="store_true",
        help="stop at the end offsets that the partitions had when the command started",
    )
    add("-f", "--format", type=_writer, default="text", metavar="text|json|FORMAT",
        help="print values only (default), one JSON object per line, or tokens as below")  # fmt: skip
    add("-o", "--output", type=_column_file, metavar="FILE.parquet|FILE.arrow",
        help="write the records as columns to this file instead of printing them; needs pyarrow")  # fmt: skip
    parser.set_defaults(run=run)


def connect(options: Mapping[str, object]) -> Consumer:
    """Create the consumer. Tests replace this function."""
    return Consumer.from_config(options)


def run(args: argparse.Namespace) -> int:
    """Read until --count, the end of the topics, an error or a signal. Returns the exit code."""
    start: Position = args.start or Position("earliest" if args.exit_at_end else "latest")
    if args.group is not None and start.kind in ("offset", "time"):
        raise UsageError("--from OFFSET and --from @TIMESTAMP cannot be used with -g; use earliest or latest")
    file = None if args.output is None else ColumnFile(args.output)
    consumer = connect(_options(args, start))
    progress = Progress(sys.stderr)
    if file is None:
        reader = Reader(consumer, args.topics, args.format, sys.stdout.buffer, progress, to_end=args.exit_at_end)
    else:
        reader = FileReader(consumer, args.topics, file, progress, to_end=args.exit_at_end)
    with _signals_wake(consumer) as caught:
        try:
            with file or contextlib.nullcontext():
                try:
                    if args.group is None:
                        reader.assign(start, args.bootstrap_servers)
                    else:
                        reader.join(args.bootstrap_servers)
                    reader.read(args.count)
                except errors.WakeupError:
                    if not caught:
                        raise
                except errors.KafkaError:
                    if args.debug:
                        _print_state(consumer)
                    raise
            if file is not None and args.group is not None:
                consumer.commit(timeout=CLOSE_S)
        finally:
            progress.finish()
            consumer.close(timeout=CLOSE_S)
    return 128 + caught[0] if caught else 0


def _options(args: argparse.Namespace, start: Position) -> dict[str, object]:
    options: dict[str, object] = {}
    if args.group is not None:
        options["group_id"] = args.group
        if args.output is not None:
            options["enable_auto_commit"] = False
    if args.start is not None or args.exit_at_end:
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

    handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGUSR1: report}
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


class Reader:
    """Reads with one consumer and writes the records to one output."""

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        write: Writer,
        out: BinaryIO,
        progress: Progress,
        *,
        to_end: bool = False,
    ) -> None:
        self.consumer = consumer
        self._to_end = to_end
        self._topics, self._write, self._out, self._progress = topics, write, out, progress
        self._unfinished: dict[TopicPartition, int] = {}  # with `to_end`: end offsets that are not reached yet
        self._has_partitions = False
        self._shares_terminal = progress.visible and out.isatty()

    def assign(self, start: Position, servers: str) -> None:
        """Assign every partition of the topics, without a group, and seek to `start`.

        Raises CommandError if a topic does not exist.
        """
        partitions = [partition for topic in self._topics for partition in self._partitions(topic, servers)]
        self.consumer.assign(partitions)
        if start.kind == "offset":
            self._seek_into_logs(partitions, start.value)
        elif start.kind == "time":
            self._seek_to_time(partitions, start.value)
        self._assigned(self.consumer, partitions)

    def join(self, servers: str) -> None:
        """Subscribe to the topics as a member of the group. Raises CommandError if a topic does not exist."""
        for topic in self._topics:
            self._partitions(topic, servers)
        self.consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def read(self, count: int | None) -> None:
        """Write records until `count` are written or, with `to_end`, every partition has reached its end offset."""
        while count is None or self._progress.records < count:
            if self._to_end and self._at_end():
                return
            wanted = None if count is None else count - self._progress.records
            self._read_some(wanted)
            if self._progress.due:
                self._progress.draw(self._lag())

    def _read_some(self, wanted: int | None) -> None:
        records = self.consumer.poll(timeout=POLL_S, max_records=self._at_most(wanted))
        if records:
            self._print(records)

    def _at_most(self, wanted: int | None) -> int | None:
        return None if wanted is None else min(wanted, DEFAULTS["max_poll_records"])

    def _print(self, records: ConsumerRecords) -> None:
        size = 0
        lines = []
        try:
            for record in records:
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
        self._progress.count(len(lines), size)

    def _partitions(self, topic: str, servers: str) -> list[TopicPartition]:
        try:
            with waiting(servers):
                found = self.consumer.partitions_for(topic)
        except errors.StaleMetadataError as error:
            if error.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            found = ()
        if not found:
            raise CommandError(f"topic {topic!r} does not exist on {servers}")
        return sorted(TopicPartition(topic, info.partition) for info in found)

    def _seek_into_logs(self, partitions: Sequence[TopicPartition], offset: int) -> None:
        """Seek each partition to the offset, or to the nearer end of its log if the offset is outside the log."""
        first, end = self.consumer.beginning_offsets(partitions), self.consumer.end_offsets(partitions)
        for partition in partitions:
            self.consumer.seek(partition, max(first[partition], min(offset, end[partition])))

    def _seek_to_time(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        found = self.consumer.offsets_for_times(dict.fromkeys(partitions, timestamp))
        for partition in partitions:
            at = found.get(partition)
            if at is None:  # no record has this timestamp or a later one yet
                self.consumer.seek_to_end(partition)
            else:
                self.consumer.seek(partition, at.offset)

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._has_partitions = True
        if self._to_end:
            self._unfinished.update(consumer.end_offsets(partitions))

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self._unfinished.pop(partition, None)

    def _at_end(self) -> bool:
        for partition, end in list(self._unfinished.items()):
            if self.consumer.position(partition) >= end:
                del self._unfinished[partition]
        return self._has_partitions and not self._unfinished

    def _lag(self) -> int | None:
        lags = [self.consumer.current_lag(partition) for partition in self.consumer.assignment()]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None


class FileReader(Reader):
    """Reads with one consumer and writes the records to a file as columns."""

    def __init__(
        self, consumer: Consumer, topics: Sequence[str], file: ColumnFile, progress: Progress, *, to_end: bool = False
    ) -> None:
        super().__init__(consumer, topics, writer("text"), sys.stdout.buffer, progress, to_end=to_end)
        self._file = file

    def _read_some(self, wanted: int | None) -> None:
        batch = self.consumer.poll_arrow(timeout=POLL_S, max_rows=min(wanted or MAX_FILE_ROWS, MAX_FILE_ROWS))
        if batch:
            self._progress.count(len(batch), self._file.write(batch))
