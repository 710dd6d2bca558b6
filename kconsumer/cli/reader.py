"""Reads for `kconsumer consume` with one consumer, and writes the records to a stream or as columns to a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from kconsumer import Consumer, errors
from kconsumer._core.lock import Clock
from kconsumer.cli.arguments import COMMAND_TIMEOUT_MS, CommandError, UsageError
from kconsumer.cli.decoding import is_of_registry_client
from kconsumer.cli.files import ColumnFile, write_all
from kconsumer.cli.lookups import offsets_at, partitions_of
from kconsumer.cli.notices import waiting
from kconsumer.cli.output import Writer, as_bytes, writer
from kconsumer.cli.positions import Position
from kconsumer.cli.progress import Progress
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord, ConsumerRecords

POLL_S = 0.5
MAX_FILE_ROWS = 100_000  # maximum rows of one poll with `-o`

# Unlike the library, the command does not create a topic by reading it, has a shorter timeout and takes larger batches.
DEFAULTS = {
    "allow_auto_create_topics": False,
    "default_api_timeout_ms": COMMAND_TIMEOUT_MS,
    "max_poll_records": 5_000,
}


def topic_pattern(topics: Sequence[str]) -> re.Pattern[str]:
    """Returns the pattern of names that one of several regular expressions matches. Raises UsageError for others.

    Flags at the beginning of one, such as `(?i)`, are those of this one.
    """
    for topic in topics:
        try:
            re.compile(topic)
        except re.error as error:
            raise UsageError(f"{topic!r} is not a regular expression: {error}") from None
    if len(topics) == 1:
        return re.compile(topics[0])
    try:
        return re.compile("|".join(re.sub(r"^(?:\(\?([aiLmsux]+)\))?", r"(?\1:", topic) + ")" for topic in topics))
    except re.error as error:
        raise UsageError(f"the regular expressions {' and '.join(topics)} exclude each other: {error}") from None


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
        self.skips = False  # records that do not decode are left out
        self.skipped = 0  # how many were left out
        self.regex = False  # topics are regular expressions
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
        topics = self._matching(servers) if self.regex else dict.fromkeys(self._topics)
        partitions = [tp for topic in topics for tp in self._partitions(topic, servers, numbers)]
        self.consumer.assign(partitions)
        if start.kind not in ("earliest", "latest"):
            for tp, offset in self._offsets_at(partitions, start).items():
                self.consumer.seek(tp, offset)
        self._assigned(self.consumer, partitions)

    def join(self, servers: str) -> None:
        """Subscribe to the topics as a member of the group. Raises CommandError if a topic does not exist."""
        for topic in () if self.regex else self._topics:
            self._partitions(topic, servers)
        topics = topic_pattern(self._topics) if self.regex else self._topics
        self.consumer.subscribe(topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _matching(self, servers: str) -> list[str]:
        """Returns the topics that match, without internal ones. Raises CommandError if there are none."""
        with waiting(servers):
            known = self.consumer.list_topics()
        internal = ("__consumer_offsets", "__transaction_state", "__share_group_state")
        pattern = topic_pattern(self._topics)
        found = [topic for topic in sorted(known) if pattern.fullmatch(topic) and topic not in internal]
        if not found:
            raise CommandError(f"no topic on {servers} matches {' or '.join(self._topics)}")
        return found

    def read(self, count: int | None, timeout_s: float | None = None, api_timeout_s: float = 0) -> None:
        """Write records until `count` are written or, with `stop`, every partition has reached the stop position.

        `timeout_s`: also end when no record has arrived for this time. It begins when there are partitions, or when the
        group has none for this member. Raises CommandError if that takes longer than both times.
        """
        clock = Clock()
        idle_since = started = clock.now()
        while count is None or self._progress.records < count:
            if self._stop is not None and self._at_end():
                return
            wanted = None if count is None else count - self._progress.records
            waited = not self._has_partitions
            if self._read_or_skip(wanted) or waited:
                idle_since = clock.now()
            elif timeout_s is not None and clock.now() - idle_since >= timeout_s * 1000:
                return
            if timeout_s is not None and not self._has_partitions:
                limit_s = max(timeout_s, api_timeout_s)
                if clock.now() - started >= limit_s * 1000:
                    waits = "; ".join(self.consumer.status().waits) or "no reason is known"
                    raise CommandError(f"the group has assigned no partitions within {limit_s:g} s: {waits}")
            if self._progress.due:
                self._progress.draw(self._lag())

    def _read_or_skip(self, wanted: int | None) -> bool:
        """Read some records, or leave out one that does not decode. Returns True if there was a record."""
        try:
            return self._read_some(wanted)
        except errors.RecordDeserializationError as error:
            if not self.skips or is_of_registry_client(error):
                raise
            self.consumer.seek(error.topic_partition, error.offset + 1)
            self.skipped += 1
            return True

    def _read_some(self, wanted: int | None) -> bool:
        """Read and write records, at most `wanted`. Returns True if records have arrived."""
        records = self.consumer.poll(timeout=POLL_S, max_records=self._at_most(wanted))
        if records:
            self._print(records, wanted)
        return bool(records)

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
        decoded: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(consumer, topics, writer("text"), sys.stdout.buffer, progress, stop)
        self._file, self._decoded = file, decoded

    def _read_some(self, wanted: int | None) -> bool:
        if self._decoded:
            return self._read_decoded(wanted)
        batch = self.consumer.poll_arrow(timeout=POLL_S, max_rows=min(wanted or MAX_FILE_ROWS, MAX_FILE_ROWS))
        if batch:
            ends = self._unfinished
            positions = {tp: at.offset for tp, at in batch.next_offsets().items()}
            beyond = {tp: ends[tp] for tp, position in positions.items() if position > ends.get(tp, position)}
            self._progress.count(*self._file.write(batch, beyond))
            for tp, end in beyond.items():
                self.consumer.seek(tp, end)
        return bool(batch)

    def _read_decoded(self, wanted: int | None) -> bool:
        records = self.consumer.poll(timeout=POLL_S, max_records=min(wanted or MAX_FILE_ROWS, MAX_FILE_ROWS))
        if records:
            within = [record for record in records if not self._is_beyond_stop(record)]
            self._progress.count(*self._file.write_records(within, self._decoded))
            for tp, end in self._unfinished.items():
                if self.consumer.position(tp) > end:
                    self.consumer.seek(tp, end)
        return bool(records)
