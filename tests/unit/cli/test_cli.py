"""The `kconsumer` command, with a consumer that holds its records in memory."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kconsumer import ConsumerRecord, HeaderFilter, RawRecord, TopicPartition, cli, errors
from kconsumer.cli import consume, decoding, files, output, positions, progress, reader
from kconsumer.cli.arguments import UsageError
from kconsumer.config.options import ConsumerConfig
from kconsumer.testing.clock import VirtualClock
from kconsumer.types import OffsetAndTimestamp, PartitionInfo

COMMAND = ["consume", "clicks", "-b", "broker:9092"]


@dataclass(frozen=True)
class Record:
    offset: int
    value: bytes | None = b"v"
    key: bytes | None = None
    partition: int = 0
    topic: str = "clicks"
    timestamp: int = 1700000000000
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def serialized_key_size(self) -> int:
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        return -1 if self.value is None else len(self.value)


class Records(list[Record]):
    def partitions(self) -> list[TopicPartition]:
        return sorted({TopicPartition(record.topic, record.partition) for record in self})

    def records(self, partition: TopicPartition) -> list[Record]:
        return [record for record in self if record.partition == partition.partition]


@dataclass
class FakeConsumer:
    """The part of a Consumer that the command uses; `logs` maps a partition of "clicks" to its values."""

    logs: dict[int, list[bytes]]
    options: Mapping[str, object] = field(default_factory=dict)
    seeks: list[tuple[TopicPartition, object]] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    paused: list[TopicPartition] = field(default_factory=list)
    on_assign: Any = None
    closed: bool = False
    before_poll: Any = None
    woken: bool = False
    polls_to_join: int = 0

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        return tuple(PartitionInfo(topic, number) for number in self.logs) if topic == "clicks" else ()

    def list_topics(self) -> dict[str, tuple[PartitionInfo, ...]]:
        return {"clicks": self.partitions_for("clicks"), "__consumer_offsets": ()}

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.paused.clear()
        latest = self.options.get("auto_offset_reset", "latest") == "latest"
        ends = self.end_offsets(partitions)
        self.positions = {partition: ends[partition] if latest else 0 for partition in partitions}

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign = on_assign

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: len(self.logs[partition.partition]) for partition in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        return {tp: OffsetAndTimestamp(1, at) if tp.partition == 0 else None for tp, at in times.items()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.seeks.append((partition, offset))
        self.positions[partition] = offset

    def pause(self, partition: TopicPartition) -> None:
        self.paused.append(partition)

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def current_lag(self, partition: TopicPartition) -> int | None:
        return len(self.logs[partition.partition]) - self.positions[partition]

    def poll(self, timeout: float, max_records: int | None) -> Records:
        if self.before_poll:
            self.before_poll()
        if self.woken:
            raise errors.WakeupError
        if self.polls_to_join:
            self.polls_to_join -= 1
            return Records()
        if self.on_assign and not self.positions:
            partitions = [TopicPartition("clicks", number) for number in self.logs]
            self.assign(partitions)
            self.on_assign(self, tuple(partitions))
        for partition, position in self.positions.items():
            values = self.logs[partition.partition][position : position + (max_records or 2)]
            if values and partition not in self.paused:
                self.positions[partition] += len(values)
                return Records(Record(position + n, value, b"k", partition.partition) for n, value in enumerate(values))
        return Records()

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(waits=("waiting for the coordinator",))

    def wakeup(self) -> None:
        self.woken = True

    def close(self, timeout: float) -> None:
        self.closed = True


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConsumer]:
    """A fake consumer with two partitions and five records, which the command gets."""
    fake = FakeConsumer({0: [b"a0", b"a1", b"a2"], 1: [b"b0", b"b1"]})

    def connect(options: Mapping[str, object]) -> FakeConsumer:
        fake.options = options
        return fake

    monkeypatch.setattr(consume, "connect", connect)
    before = signal.getsignal(signal.SIGINT)
    yield fake
    assert before is signal.getsignal(signal.SIGINT)


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main([*COMMAND, *arguments])
    return code, *capfd.readouterr()


def test_count_is_exact(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """-n takes no more records than it prints, so the positions of a group stay right."""
    assert (0, "a0\na1\na2\nb0\n", "") == run(capfd, "-n", "4", "--from", "earliest")
    assert {TopicPartition("clicks", 0): 3, TopicPartition("clicks", 1): 1} == consumer.positions


def test_filters(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """--header and --key-prefix become `record_filter`, which all of them must select."""
    assert 0 == run(capfd, "--header", "kind=a=b", "-n", "1", "--from", "earliest")[0]
    assert HeaderFilter("kind", b"a=b") == consumer.options["record_filter"]
    run(capfd, "--key-prefix", "k", "--header", "kind=a=b", "-n", "1", "--from", "earliest")
    selects: Any = consumer.options["record_filter"]
    headers = [("kind", b"a=b")]
    found = [(key, given) for key in (b"k1", b"x") for given in (headers, []) if selects(_raw(key, given))]
    assert [(b"k1", headers)] == found
    code, _, error = run(capfd, "--header", "kind")
    assert (2, True) == (code, "'kind' is not of the form NAME=VALUE" in error)


def _raw(key: bytes, headers: list[tuple[str, bytes]]) -> RawRecord:
    return ConsumerRecord("clicks", 0, 0, key=key, headers=headers)


def test_in_a_group(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """-g subscribes, and the end offsets are taken when the partitions are assigned."""
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "-g", "team", "--exit-at-end")
    assert "team" == consumer.options["group_id"]


def test_some_partitions(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """-p reads only these partitions; one that does not exist is an error that names those that do."""
    assert (0, "b0\nb1\n", "") == run(capfd, "--exit-at-end", "-p", "1")
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "--exit-at-end", "-p", "1", "-p", "0-1")
    missing = "kconsumer: topic 'clicks' has no partition 7; it has 0 to 1\n"
    assert (1, "", missing) == run(capfd, "--exit-at-end", "-p", "0,7")


def test_the_last_records(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """--tail N reads the last N offsets of each partition and stops; --from -N begins there."""
    assert (0, "a1\na2\nb0\nb1\n", "") == run(capfd, "--tail", "2")
    assert (0, "a2\nb1\n", "") == run(capfd, "--from", "-1", "--exit-at-end")
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "--tail", "9")


def test_ends_when_no_record_arrives(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--timeout ends the command when no record has arrived for this time. The time to join a group does not count, but
    has an end.
    """
    clock = VirtualClock()
    monkeypatch.setattr(reader, "Clock", lambda: clock)
    consumer.before_poll = lambda: clock.advance(400)
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "--from", "earliest", "--timeout", "1.5")
    assert 2000 <= clock.now() < 5000
    consumer.positions.clear()
    consumer.polls_to_join = 10
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "-g", "g", "--from", "earliest", "--timeout", "0.4")
    for seconds, limit in (("0.4", 20), ("30", 30)):
        consumer.positions.clear()
        consumer.polls_to_join, started = 1000, clock.now()
        reason = f"kconsumer: the group has assigned no partitions within {limit} s: waiting for the coordinator\n"
        assert (1, "", reason) == run(capfd, "-g", "g", "--timeout", seconds)
        assert limit * 1000 <= clock.now() - started < (limit + 1) * 1000


def test_topics_by_a_regular_expression(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """--regex reads the topics whose whole names match; none is an error."""
    command = ["-b", "b:1", "--regex", "--exit-at-end"]
    assert 0 == cli.main(["consume", "cl.*s", "_.*", *command])
    assert "a0\na1\na2\nb0\nb1\n" == capfd.readouterr().out
    for topic, code, reason in (("c", 1, "no topic on b:1 matches c"), ("(", 2, "'(' is not a regular expression")):
        assert code == cli.main(["consume", topic, *command])
        assert reason in capfd.readouterr().err


def test_between_two_positions(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """--from and --to select a range of each partition; an empty range prints nothing."""
    assert (0, "a1\nb1\n", "") == run(capfd, "--from", "1", "--to", "2")
    assert (0, "", "") == run(capfd, "--from", "2", "--to", "1")


@pytest.mark.parametrize("group", [[], ["-g", "team"]])
def test_what_is_added_meanwhile_is_not_printed(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], group: list[str]
) -> None:
    """With --exit-at-end records beyond the end at the start are not printed, and a group gets them again."""

    def add() -> None:
        if consumer.positions and len(consumer.logs[0]) == 3:
            consumer.logs[0].append(b"later")

    consumer.before_poll = add
    assert (0, "a0\na1\na2\nb0\nb1\n", "") == run(capfd, "--exit-at-end", *group)
    assert 3 == consumer.positions[TopicPartition("clicks", 0)]


def test_grep_and_key(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """--grep prints records with a match in the value, --key those with this key; -n counts printed records."""
    assert (0, "a1\nb1\n", "") == run(capfd, "--exit-at-end", "--grep", "1$")
    assert (0, "a1\nb1\n", "") == run(capfd, "--exit-at-end", "--grep", "(?i)[AB]1", "--key", "k")
    assert (0, "", "") == run(capfd, "--exit-at-end", "--key", "other")


def test_grep_with_a_count(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """After the last match the position of a group is the next record, although more records were polled."""
    assert (0, "a0\n", "") == run(capfd, "-g", "team", "--from", "earliest", "--grep", "a", "-n", "1")
    assert 1 == consumer.positions[TopicPartition("clicks", 0)]


def test_null_is_no_key(consumer: FakeConsumer) -> None:
    """--key with an empty text selects empty keys, and no records without a key."""
    selection = reader.Selection("", None)
    chosen = [selection(cast("Any", Record(0, key=key))) for key in (b"", None, b"k")]
    assert [True, False, False] == chosen


@pytest.mark.parametrize("when", ["@1700000000000", "@2023-11-14T22:13:20", "@2023-11-14T23:13:20+01:00"])
def test_from_a_time(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], when: str) -> None:
    """A time is given in ms or as ISO-8601; a partition without a record since then starts at its end."""
    assert positions.Position("time", 1700000000000) == positions.parse_position(when)
    assert (0, "a1\na2\n", "") == run(capfd, "--from", when, "--exit-at-end")
    assert [(("clicks", 0), 1), (("clicks", 1), 2)] == consumer.seeks


def test_missing_topic(consumer: FakeConsumer, capfd: pytest.CaptureFixture[str]) -> None:
    """A topic that does not exist gives one line on stderr and exit code 1, with and without a group."""
    for group in ([], ["-g", "team"]):
        assert 1 == cli.main(["consume", "clicks", "nope", "-b", "broker:9092", *group])
        assert ("", "kconsumer: topic 'nope' does not exist on broker:9092\n") == capfd.readouterr()


def test_errors_are_one_line(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the client gives exit code 1 and one line; --debug adds the traceback."""

    def fail() -> None:
        raise errors.TimeoutError("no broker\nresponded")

    monkeypatch.setattr(consume, "full_report", lambda asked: "")
    consumer.before_poll = fail
    assert (1, "", "kconsumer: no broker responded\n") == run(capfd)
    assert consumer.closed
    code, _, text = run(capfd, "--debug")
    assert 1 == code
    assert "Traceback" in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-n", "0"], "'0' is not a positive number of records"),
        (["--from", "yesterday"], "'yesterday' is not earliest, latest"),
        (["-f", "%q"], "%q is not a token of a format; the tokens are %t"),
        (["-f", "csv"], "'csv' is not text, json, or"),
        (["-X", "novalue"], "'novalue' is not of the form key=value"),
        (["-g", "team", "--from", "5"], "cannot be used with -g; use earliest or latest, or set the offsets of the"),
        (["-g", "team", "--from", "-1h"], "cannot be used with -g"),
        (["-g", "team", "--to", "5"], "--to cannot be used with -g; use --exit-at-end"),
        (["-g", "team", "-p", "0"], "-p cannot be used with -g"),
        (["--to", "5", "--exit-at-end"], "--to and --exit-at-end cannot be used together"),
        (["--key-prefix", "a", "--key-prefix", "b"], "--key-prefix can be given once"),
        (["-o", "x.arrow", "--grep", "x"], "--grep cannot be used with -o"),
        (["-o", "x.arrow", "-f", "json"], "-f cannot be used with -o"),
        (["-o", "x.arrow", "-Z"], "--null cannot be used with -o"),
        (["-f", "json", "-Z"], "--null cannot be used with -f json"),
        (["-f", "%t%%k", "-Z"], "--null has no effect: FORMAT has neither %k nor %s nor %x"),
        (["-X", "group.id=team"], "-X cannot set the group; use -g"),
        (["-s", "value=avro", "-s", "value=protobuf", "-r", "mock://r"], "-s sets value twice"),
        (["-s", "value=avro", "-r", "mock://r", "-r", "http://r"], "-r sets url twice"),
        (["--skip-undecodable"], "--skip-undecodable has no effect without deserializers"),
        (["--tail", "5", "--from", "earliest"], "--tail cannot be used with --from"),
        (["--tail", "5", "-g", "team"], "--tail cannot be used with -g"),
        (["--from", "-5", "-g", "team"], "--from with an offset or a time cannot be used with -g"),
        (["--timeout", "0"], "'0' is not a positive number of seconds"),
        (["-s", "value=xml"], "the formats are avro, jsonschema, protobuf"),
        (["-s", "value=avro"], "need the address of a registry with -r"),
        (["-r", "http://r:1"], "-r needs -s"),
        (
            ["-s", "value=avro", "-r", "mock://r", "-r", "bearer.auth.token=env:NO"],
            "-r: bearer.auth.token of a registry: ",
        ),
        (["-p", "x"], "'x' is not a number of a partition, or a list such as 0,3-5"),
        (["--grep", "("], "'(' is not a regular expression: missing )"),
        (["-f", "jsn"], "did you mean json?"),
        (["-g", "team", "-X", "group_id=other"], "-X group_id: another argument sets this option already\n"),
        (
            ["-g", "team", "-X", "group.id=other"],
            "-X group.id: another argument sets this option already under the name group_id",
        ),
        (["-X", "max_poll_records=1", "-X", "max.poll.records=2"], "already under the name max_poll_records"),
        (["-X", "bootstrap.servers=b:1"], "already under the name bootstrap_servers"),
        (["-X", "ssl.key.password=x", "--ask", "ssl_key_password"], "--ask ssl_key_password: another argument sets"),
        (["-n", "1", "--count", "1"], "argument -n/--count: it can be given once"),
        (["-o", "x.csv"], "does not end in .parquet or .arrow"),
        (["-X", "consumer.timeout.ms=1"], "-X consumer.timeout.ms has no effect: use --timeout"),
        (["-g", "team", "-X", "enable_auto_offset_store=false"], "has no effect: what was written is committed"),
        (["-X", "session_timeout_ms=9000"], "has no effect: there is no group without -g"),
        (["-X", "assignors=range"], "has no effect: there is no group without -g"),
        (["-o", "x.arrow", "-X", "max_poll_records=1"], "has no effect: -o writes row groups of its own size"),
    ],
)
def test_usage_errors(capfd: pytest.CaptureFixture[str], arguments: list[str], reason: str) -> None:
    """A wrong command line is refused with exit code 2 before a connection is opened."""
    code, out, text = run(capfd, *arguments)
    assert (2, "") == (code, out)
    assert reason in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["-X", "key_deserializer=json", "--key", "k"],
        ["-X", "value_deserializer=json", "-f", "%x", "--grep", "a"],
        ["-X", "key_deserializer=json", "--skip-undecodable"],
        ["-X", "key_deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer"],
        ["-g", "team", "-X", "session_timeout_ms=9000"],
    ],
)
def test_options_with_an_effect(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A deserializer has an effect if its part is printed, compared, or may be left out."""
    assert (0, "") == run(capfd, "--exit-at-end", *arguments)[::2]


def test_a_closed_standard_output(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `>&-` nothing is read, and the error is one line."""
    monkeypatch.setattr(sys, "stdout", None)
    assert (1, "", "kconsumer: standard output is closed\n") == run(capfd)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    """A signal wakes the consumer, which is closed; the exit code contains the number of the signal."""
    consumer.before_poll = lambda: os.kill(os.getpid(), number)
    assert (code, "", "") == run(capfd)
    assert consumer.closed


def test_sigusr1_prints_the_state(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGUSR1 prints the report to stderr, and reading continues; the handler is removed afterwards."""
    monkeypatch.setattr(consume, "full_report", lambda asked: "the report\n" if asked is consumer else "")

    def ask_once() -> None:
        consumer.before_poll = None
        os.kill(os.getpid(), signal.SIGUSR1)

    consumer.before_poll = ask_once
    assert (0, "a0\na1\na2\nb0\nb1\n", "the report\n") == run(capfd, "--exit-at-end")
    assert signal.SIG_DFL is signal.getsignal(signal.SIGUSR1)


def test_debug_prints_the_state_on_errors(
    consumer: FakeConsumer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --debug the report precedes an error; without --debug it is not printed."""
    monkeypatch.setattr(consume, "full_report", lambda asked: "the report\n")

    def fail() -> None:
        raise errors.TimeoutError("no broker responded")

    consumer.before_poll = fail
    assert (1, "", "kconsumer: no broker responded\n") == run(capfd)
    assert "the report" in run(capfd, "--debug")[2]


def test_closed_pipe(consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reader of the output ends (`| head`), the command succeeds, and seeks back to what was not printed."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as closed_pipe:
        monkeypatch.setattr(sys, "stdout", closed_pipe)
        assert 0 == cli.main([*COMMAND, "--exit-at-end"])
    assert [(("clicks", 0), 0)] == consumer.seeks
    assert consumer.closed


def test_partial_writes(consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unbuffered stdout may take a part of the bytes; nothing is lost."""

    class Narrow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data)[:2])

    out = Narrow()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out, flush=lambda: None))
    assert 0 == cli.main([*COMMAND, "--exit-at-end"])
    assert b"a0\na1\na2\nb0\nb1\n" == out.getvalue()


@pytest.mark.parametrize("group", [None, "team"])
def test_the_group_of_a_file_of_options(consumer: FakeConsumer, tmp_path: Path, group: str | None) -> None:
    """Without -g no group is involved, also if a properties file that programs use names one, with its options."""
    file = tmp_path / "client.properties"
    file.write_text("group.id=of-a-program\nenable.auto.commit=true\ngroup.instance.id=one\n")
    assert 0 == cli.main([*COMMAND, "-F", str(file), "--exit-at-end", *(["-g", group] if group else [])])
    assert (group, None) == (consumer.options["group_id"], consumer.options.get("group.id"))
    ConsumerConfig(**consumer.options)
    found = consumer.options.get("enable_auto_commit"), consumer.options.get("group.instance.id")
    assert found == ((None, "one") if group else (False, None))


@pytest.mark.parametrize(("cause", "failed"), [(ConnectionError("a page of a proxy"), True), (ValueError("no"), False)])
def test_what_is_no_failure_of_a_record(cause: Exception, failed: bool) -> None:
    """--skip-undecodable leaves out no record whose schema could not be requested."""
    error = errors.RecordDeserializationError("no value", topic_partition=TopicPartition("t", 0), offset=1)
    error.__cause__ = cause
    assert failed == decoding.is_of_registry_client(error)


def test_a_signal_while_a_file_is_committed() -> None:
    """The file is complete, so its offsets are committed although the signal interrupts the first commit."""
    outcomes = iter([errors.WakeupError(), None])

    class Interrupted:
        def commit(self, timeout: float) -> None:
            outcome = next(outcomes)
            if outcome is not None:
                raise outcome

    consume.commit_file(Interrupted())  # type: ignore[arg-type]  # a stand-in
    assert [] == list(outcomes)


def test_regular_expressions_of_topics() -> None:
    """Flags belong to their expression; names and numbers of groups do so only if there is one expression."""
    assert ["A", "b"] == [
        name for name in ("A", "a.", "b", "B") if reader.topic_pattern(["(?i)a", "b"]).fullmatch(name)
    ]
    assert reader.topic_pattern([r"(x)\1"]).fullmatch("xx")
    for wrong, message in ((["("], "missing \\)"), (["(?P<a>x)", "(?P<a>y)"], "exclude each other: redefinition")):
        with pytest.raises(UsageError, match=message):
            reader.topic_pattern(wrong)


def test_times_that_are_no_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last moment of the year 9999 in UTC is no time where it is later. Nothing is printed."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    last = replace(RECORD, timestamp=253_402_300_799_000)
    assert b"9999-12-31T23:59:59.000Z|" == output.writer("%d|%D")(last)  # type: ignore[arg-type]  # a stand-in record
    monkeypatch.undo()
    time.tzset()


RECORD = Record(7, b"\xffv", b"k", 3, headers=(("trace", b"1"), ("none", None)))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("text", b"\xffv\n"),
        ("%t/%p/%o", b"clicks/3/7"),
        (r"%k=%s\n", b"k=\xffv\n"),
        ("%T %h", b"1700000000000 trace=1,none=NULL"),
        ("%x|%d", b"ff76|2023-11-14T22:13:20.000Z"),
        (r"%K,%S%%\t\x00\\\q", b"1,2%\t\x00\\\\q"),
        ("é%k", "ék".encode()),
    ],
)
def test_formats(spec: str, expected: bytes) -> None:
    """Tokens and escapes of a format become bytes, and values are printed unchanged."""
    assert expected == output.writer(spec)(RECORD)  # type: ignore[arg-type]  # a stand-in record


def test_null_differs_from_empty() -> None:
    """With --null, a null key or value is printed as NULL, and an empty one as nothing."""
    null, empty = Record(0, None), Record(0, b"", b"")
    for spec, expected in (("text", b"NULL\n"), ("%k|%s|%x|%o", b"NULL|NULL|NULL|0")):
        assert expected == output.writer(spec, null=b"NULL")(null)  # type: ignore[arg-type]
        assert expected.replace(b"NULL", b"") == output.writer(spec, null=b"NULL")(empty)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "shown", "text"),
    [
        ({"id": 0, "tags": ["a", None]}, {"id": 0, "tags": ["a", None]}, '{"id": 0, "tags": ["a", null]}'),
        ([1, 2.5, True], [1, 2.5, True], "[1, 2.5, true]"),
        ({7: b"x", "raw": b"\xff"}, {"7": "x", "raw": {"base64": "/w=="}}, '{"7": "x", "raw": {"base64": "/w=="}}'),
        ("ü", "ü", "ü"),
        (7, 7, "7"),
        (None, None, ""),
        (float("nan"), "nan", "nan"),
        (RECORD, str(RECORD), str(RECORD)),
    ],
)
def test_decoded_values(value: object, shown: object, text: str) -> None:
    """A value from a deserializer keeps its structure in a JSON line, and is JSON in a format."""
    record = replace(RECORD, value=value)  # type: ignore[arg-type]  # what a deserializer made
    line = output.writer("json")(record)  # type: ignore[arg-type]  # a stand-in record
    assert shown == json.loads(line, parse_constant=None)["value"]
    assert text == output.writer("%s")(record).decode()  # type: ignore[arg-type]  # a stand-in record


def test_help_shows_formats_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """The example in the help of `consume` works when it is copied."""
    assert 0 == cli.main(["consume", "--help"])
    found = re.search(r"-b localhost:9092 -f '(.*?)'", " ".join(capsys.readouterr().out.split()))
    assert found is not None
    assert b"3/7 k: \xffv\n" == output.writer(found[1])(RECORD)  # type: ignore[arg-type]  # a stand-in record


@pytest.mark.parametrize("command", [COMMAND, ["assignors", "list"]])
def test_full_disk_behind_stdout(consumer: FakeConsumer, command: list[str]) -> None:
    """A full disk gives one line that names stdout and exit code 1; the group gets the records again."""
    script = "import sys; from kconsumer import cli; sys.exit(cli.main(sys.argv[1:]))"
    if command is COMMAND:
        with open("/dev/full", "w") as full, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert 1 == cli.main([*COMMAND, "--exit-at-end"])
            assert [(("clicks", 0), 0)] == consumer.seeks
        return
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (1, "kconsumer: cannot write to standard output: No space left on device\n") == (
        done.returncode, done.stderr
    )  # fmt: skip


def test_full_disk_behind_a_file(tmp_path: Path) -> None:
    """The error names the file of the command line and the reason, without an error number."""
    file = files.ColumnFile(tmp_path / "orders.parquet")
    (tmp_path / "orders.parquet.part").symlink_to("/dev/full")
    with pytest.raises(files.WriteError) as caught, file:
        pass
    assert f"cannot write {tmp_path}/orders.parquet: No space left on device" == str(caught.value)


def test_missing_file_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    """An OSError names the file first and has no number."""
    assert 1 == cli.main([*COMMAND, "-F", "/nowhere/client.properties"])
    assert "kconsumer: /nowhere/client.properties: No such file or directory\n" == capsys.readouterr().err


class Screen:
    """A terminal that stores what was written."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_progress_line() -> None:
    """On a terminal the line shows rates since the last draw, and the totals remain at the end."""
    clock = VirtualClock()
    screen = Screen()
    line = progress.Progress(screen, clock)  # type: ignore[arg-type]  # a stand-in stream
    line.count(1000, 2_000_000)
    assert not line.due
    clock.advance(500)
    assert line.due
    line.draw(42)
    assert "\r\x1b[K1,000 records  2,000 records/s  4.0 MB/s  lag 42" == screen.text
    line.clear()
    clock.advance(1500)
    line.finish()
    assert screen.text.endswith("1,000 records  500 records/s  1.0 MB/s\n")


def test_assignors(capsys: pytest.CaptureFixture[str]) -> None:
    """The installed assignors are listed with their distribution; an unknown name is an error."""
    assert 0 == cli.main(["assignors", "list"])
    lines = capsys.readouterr().out.splitlines()
    assert ["NAME", "DISTRIBUTION", "VERSION", "TARGET"] == lines[0].split()
    assert {"range", "roundrobin", "sticky", "cooperative-sticky"} <= {line.split()[0] for line in lines}
    assert 0 == cli.main(["assignors", "check", "range"])
    assert "loads; protocols: eager" in capsys.readouterr().out
    assert 2 == cli.main(["assignors", "check", "nope"])
    assert 'no assignor named "nope"' in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version of the distribution."""
    assert 0 == cli.main(["--version"])
    assert f"kconsumer {metadata.version('kconsumer')}\n" == capsys.readouterr().out


def test_as_a_module() -> None:
    """`python -m kconsumer` is the same command; without a subcommand it is a usage error."""
    done = subprocess.run([sys.executable, "-m", "kconsumer"], capture_output=True, text=True, check=False)
    missing = "kconsumer: the following arguments are required: COMMAND; see kconsumer --help\n"
    assert (2, "", missing) == (done.returncode, done.stdout, done.stderr)
