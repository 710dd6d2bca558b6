"""Reads hostile bytes, target by target, and checks the outcomes. The tests in `tests/fuzz` run each target for a
moment, `tests/fuzz/run.py` for as long as requested.

A target makes an input and reads it. It returns the outcome, and raises if that is anything but records or an allowed
error. Inputs come in chunks: `run_chunk(target, n)` uses the same inputs wherever it runs.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pyarrow

from kconsumer._core.arrow import (
    COLUMNS,
    MAX_COLUMN_BYTES,
    array_capsule,
    build,
    schema_capsule,
    spark_columns,
    stream_capsule,
)
from kconsumer._core.codec import decode_response, encode_response
from kconsumer._core.decode import PartitionFetch, RecordRun, next_fetch_offset, use_codecs
from kconsumer._core.wire import FrameBuffer, Slice
from kconsumer._internal import compression
from kconsumer.arrow import RecordBatch
from kconsumer.decode import decode_batches
from kconsumer.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    ProtocolError,
    RecordDeserializationError,
    RecordTooLargeError,
)
from kconsumer.schema.fetch import FETCH, FetchableTopicResponse, FetchPartitionData, FetchResponse
from kconsumer.types import TopicPartition
from support.harnesses.decoding import assert_same, compiled
from support.oracles import hostile_inputs as inputs
from support.oracles import reference

CHUNK = 1000
RECORDS, NOTHING, CORRUPT, LATE, TOO_LARGE = "records", "no records", "corrupt", "records, then corrupt", "too large"
REFUSED, PARSED, OVERFLOW = "refused", "parsed", "column too large"

TP = TopicPartition("fuzz", 0)
RECORD_ERRORS = (BatchTooLargeError, CorruptRecordError, RecordTooLargeError)
ALL = 1 << 62
STEPS = (1, 3, ALL, ALL)
STARTS = (0, 0, 0, 6, 38, 1 << 40)
# A message takes at least 7 bytes of what a batch decompresses to, and few batches are above 100 KB.
MOST_TAKES = 100_000

Straight = list[tuple[int, bytes | None]]


def new_fetch(
    data: bytes | bytearray | Slice,
    rng: Random,
    *,
    log_bytes: bool | None = None,
    hold: Callable[[Any], object] | None = None,
) -> PartitionFetch:
    """Returns a fetch with any configuration and position that a consumer may have."""
    bits = rng.getrandbits(8)
    return PartitionFetch(
        TP,
        data,
        inputs.pick(rng, STARTS),
        check_crcs=bool(bits & 1),
        log_bytes=bool(bits & 2) if log_bytes is None else log_bytes,
        read_committed=bool(bits & 4),
        aborted_transactions=aborted(rng) if bits & 4 else (),
        on_decompressed=hold,
    )


def aborted(rng: Random) -> list[tuple[int, int]]:
    """Returns up to three random aborted transactions (producer id, first offset), also impossible ones."""
    return [(rng.randint(-1, 3), rng.randint(-1, 12)) for _ in range(int(rng.random() * 4))]


def taken(fetch: PartitionFetch, rng: Random, *, back: bool = True) -> Iterator[RecordRun]:
    """Take runs of any length until no record is left; the position never decreases unless `back` is set."""
    step, bounded = inputs.pick(rng, STEPS), rng.random() < 0.2
    for _ in range(MOST_TAKES):
        if fetch.exhausted:
            return
        position = fetch.next_offset
        run = fetch.take(step, 50, 1000) if bounded else fetch.take(step)
        assert len(run) <= step
        assert run.next_offset == fetch.next_offset
        assert back or position <= fetch.next_offset
        yield run
    raise AssertionError("it does not end")


def next_error(fetch: PartitionFetch) -> Exception | None:
    """Returns the error of the next take."""
    try:
        fetch.take(1)
    except RECORD_ERRORS as error:
        return error
    return None


def ending(fetch: PartitionFetch, count: int, error: Exception | None = None) -> str:
    """Returns the outcome. An error must contain the place and be raised again."""
    if error is None:
        return RECORDS if count else NOTHING
    again = next_error(fetch)
    assert (type(error), str(error)) == (type(again), str(again))
    if isinstance(error, RecordTooLargeError):
        assert (error.topic_partition, error.offset, 0) == (TP, fetch.next_offset, count)
        return TOO_LARGE
    if isinstance(error, BatchTooLargeError):
        assert (error.topic_partition, error.next_offset > error.offset) == (TP, True)
        return LATE if count else CORRUPT
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition) == TP
    assert isinstance(error.offset, int)
    return LATE if count else CORRUPT


def read_records(data: bytes | Slice, rng: Random) -> str:
    """Read every attribute of every record."""
    log_bytes = rng.random() < 0.5
    fetch, count = new_fetch(data, rng, log_bytes=log_bytes), 0
    try:
        for run in taken(fetch, rng, back=log_bytes):
            before = count
            for record in run:
                assert record.offset >= 0
                assert (-1 if record.key is None else len(record.key)) == record.serialized_key_size
                assert (-1 if record.value is None else len(record.value)) == record.serialized_value_size
                assert isinstance(record.headers, tuple)
                count += 1
                if count & 63 == 1:
                    repr(record)
            assert len(run) == count - before
    except RECORD_ERRORS as error:
        return ending(fetch, count, error)
    return ending(fetch, count)


def read_in_two_ways(data: bytes, rng: Random) -> str:
    """Check that records and outcome do not depend on the length of runs. If a deserializer fails and is called again,
    no record is lost.
    """
    seed = rng.getrandbits(32)
    at_once: Straight = []
    in_runs: Straight = []
    fetches = [new_fetch(data, Random(seed), log_bytes=False) for _ in range(2)]
    ends: list[str] = []
    for fetch, out, step in ((fetches[0], at_once, ALL), (fetches[1], in_runs, 2)):
        try:
            while not fetch.exhausted:
                out += [(record.offset, record.value) for record in fetch.take(step)]
            ends.append(ending(fetch, len(out)))
        except RECORD_ERRORS as error:
            ends.append(f"{ending(fetch, len(out), error)} at {error.offset}")
    assert at_once == in_runs
    assert ends[0] == ends[1]
    offsets = [offset for offset, _ in at_once]
    if all(a < b for a, b in itertools.pairwise(offsets)):
        # Where batches overlap, going back to a record in the middle also gives those that the batch before it hid.
        back = going_back(new_fetch(data, Random(seed), log_bytes=False), rng)
        assert set(at_once) <= set(back)
    return ends[0].partition(" at ")[0]


def going_back(fetch: PartitionFetch, rng: Random) -> Straight:
    """Read everything with a deserializer that sometimes fails."""
    out: Straight = []

    def convert(_topic: str, _headers: object, data: bytes | None) -> bytes | None:
        if rng.random() < 0.1:
            raise ValueError("not this one")
        return data

    try:
        while not fetch.exhausted:
            run = fetch.take(3)
            try:
                run.deserialize(None, convert)
            except RecordDeserializationError:
                continue  # the same record comes again
            out += [(record.offset, record.value) for record in run]
    except RECORD_ERRORS:
        pass
    return out


def read_columns(data: bytes, rng: Random) -> str:
    """Check that columns, exported in every way and consumed or not, have the values of the records."""
    fetch, runs, problem = new_fetch(data, rng), [], None
    try:
        for run in taken(fetch, rng):
            runs.append(run)
    except RECORD_ERRORS as error:
        problem = error
    bits = rng.getrandbits(6)
    names = COLUMNS if bits & 3 else tuple(rng.sample(COLUMNS, 3 + (bits >> 2) % 3))
    try:
        parts = build(
            tuple(runs), names, max_bytes=inputs.pick(rng, (40, 700, 5000, MAX_COLUMN_BYTES, MAX_COLUMN_BYTES))
        )
    except OverflowError:
        return OVERFLOW
    count = sum(map(len, runs))
    assert count == sum(map(len, parts))
    kept = [array_capsule(part) for part in parts], schema_capsule(names), stream_capsule(parts, names)
    if "leader_epoch" not in names:
        assert [len(part) for part in parts] == [len(part) for part in map(spark_columns, parts)]
        array_capsule(spark_columns(parts[0]))
    if bits >> 2 == 0:
        records = [record for run in runs for record in run]
        arrays = [RecordBatch(part).to_pyarrow() for part in parts]
        del parts, runs, kept
        for array in arrays:
            array.validate(full=True)
        for name in {"key", "value", "offset"} & set(names):
            column = pyarrow.chunked_array([array[name] for array in arrays])
            assert [getattr(record, name) for record in records] == column.to_pylist()
    return ending(fetch, count, problem)


def read_changing(data: bytes, rng: Random) -> str:
    """Let another thread write into the buffer after the check: the result is other records or the one error."""
    buffer = bytearray(data)
    fetch, runs = new_fetch(buffer, rng), []
    with contextlib.suppress(*RECORD_ERRORS):
        for run in taken(fetch, rng):
            runs.append(run)
            if rng.random() < 0.3:
                inputs.overwrite(buffer, rng)
    inputs.overwrite(buffer, rng)
    refused = 0
    for run in runs:
        try:
            for record in run:
                assert isinstance(record.headers, tuple)
                repr(record)
            build((run,), COLUMNS, max_bytes=inputs.pick(rng, (200, 5000, MAX_COLUMN_BYTES)))
        except (CorruptRecordError, OverflowError):
            refused += 1
    return "changed" if refused else RECORDS if runs else NOTHING


def read_publicly(data: bytes, rng: Random) -> str:
    """Read with `decode_batches`, which users call with the bytes of a file."""
    try:
        records = decode_batches(
            data,
            topic="fuzz",
            isolation_level=inputs.pick(rng, ("read_committed", "read_uncommitted")),
            aborted_transactions=aborted(rng),
            check_crcs=rng.random() < 0.5,
            start_offset=inputs.pick(rng, (None, *STARTS)),
        )
    except (BatchTooLargeError, CorruptRecordError):
        return CORRUPT
    assert records.count == sum(1 for _ in records)
    if rng.random() < 0.2:
        assert records.count == len(records.to_arrow())
    return RECORDS if records.count else NOTHING


def read_ahead(data: bytes, rng: Random) -> str:
    """Check that the next fetch offset, computed from the headers, is not after the end of the good records."""
    guess = next_fetch_offset(data)
    fetch = PartitionFetch(TP, data, 0, check_crcs=False)
    try:
        while not fetch.exhausted:
            fetch.take(ALL)
    except RECORD_ERRORS:
        return CORRUPT if guess is None else "guessed, corrupt"
    assert guess is None or guess[0] <= fetch.next_offset
    return NOTHING if guess is None else "guessed, right"


def read_as_the_reference_does(data: bytes, rng: Random) -> str:
    """Check that the slow decoder returns the same records, position and epoch, and stops at the same place."""
    check_crcs, step = rng.random() < 0.5, inputs.pick(rng, STEPS)
    transactions = aborted(rng) if rng.random() < 0.5 else None
    plain = inputs.without_codecs(data)
    if len(plain) > 10_000:
        return "not compared"
    expected = reference.decode(plain, check_crcs=check_crcs, aborted=transactions)
    assert_same(expected, compiled(plain, None, step, check_crcs=check_crcs, aborted=transactions))
    if expected.malformed is None:
        return RECORDS if expected.records else NOTHING
    return LATE if expected.records else CORRUPT


def read_bomb(data: bytes, rng: Random) -> str:
    """Check that no codec exceeds its limit, and that a fetch reports what it decompressed."""
    output = 0

    def limited(codec: int, packed: Slice, limit: int, magic: int) -> Slice | bytes | bytearray:
        nonlocal output
        assert limit <= inputs.BOMB_LIMIT
        out = compression.decompress(codec, packed, limit, magic)
        assert len(out) <= limit
        if isinstance(out, Slice):  # it was not compressed after all, and is where it was
            output += len(out)
        return out

    def hold(memory: Any) -> None:
        nonlocal output
        assert len(memory) <= inputs.BOMB_LIMIT
        output += len(memory)

    use_codecs(limited, lambda _: inputs.BOMB_LIMIT)
    try:
        fetch, count = new_fetch(data, rng, hold=hold), 0
        try:
            for run in taken(fetch, rng):
                count += len(run)
        except RECORD_ERRORS as error:
            return ending(fetch, count, error)
        assert output == fetch.output_bytes
        return ending(fetch, count)
    finally:
        use_codecs(compression.decompress, compression.output_limit)


def read_response(rng: Random) -> str:
    """Check that a damaged response of a real broker is refused, or parsed and can be encoded and shown."""
    api, version, frame = inputs.pick(rng, inputs.RESPONSES)
    data = bytes(inputs.damage(frame, rng))
    if rng.random() < 0.1:
        version = rng.randint(api.min_version, api.max_version)
    try:
        correlation_id, message = decode_response(api, version, data)
    except ProtocolError:
        return REFUSED
    encode_response(api, version, correlation_id, message)
    repr(message)
    return PARSED


def read_fetch_response(rng: Random) -> str:
    """Read a frame, its partitions and their records, with damage in the frame, in the records, or in both."""
    version = rng.randint(FETCH.min_version, FETCH.max_version)
    partitions = [FetchPartitionData(partition_index=i, records=inputs.anything(rng)) for i in range(2)]
    topic = FetchableTopicResponse(topic="fuzz", partitions=partitions)
    frame = encode_response(FETCH, version, 1, FetchResponse(responses=[topic]))[4:]
    if rng.random() < 0.5:
        frame = bytes(inputs.damage(frame, rng))
    try:
        _, message = decode_response(FETCH, version, frame)
    except ProtocolError:
        return REFUSED
    ends = {
        read_records(partition.records, rng)
        for topic in message.responses or ()
        for partition in topic.partitions or ()
        if partition.records is not None
    }
    return next((end for end in (LATE, CORRUPT, TOO_LARGE, RECORDS) if end in ends), NOTHING)


def read_stream(rng: Random) -> str:
    """Check that a random stream is cut into frames of the sizes in it, or refused."""
    buffer = FrameBuffer(300)
    sent, received = bytearray(), bytearray()
    try:
        for _ in range(10):
            view = buffer.recv_view()
            count = min(len(view), inputs.pick(rng, (1, 2, 3, 50, 400)))
            noise = bytearray(rng.randbytes(count))
            noise[0::4] = bytes(len(noise[0::4]))
            noise[1::4] = bytes(len(noise[1::4]))
            noise[2::4] = bytes(inputs.pick(rng, (0, 0, 1)) for _ in noise[2::4])
            view[:count] = noise
            sent += noise
            for frame in buffer.received(count):
                received += len(frame).to_bytes(4, "big") + bytes(frame)
    except ProtocolError:
        return REFUSED
    assert sent.startswith(received)
    assert len(sent) - len(received) == buffer.pending
    return PARSED


def read_made(make: Callable[[Random], bytes], read: Callable[[bytes, Random], str], rng: Random) -> str:
    return read(make(rng), rng)


# Target to its share of the inputs and what it does.
TARGETS: dict[str, tuple[int, Callable[[Random], str]]] = {
    "v2 batches": (20, partial(read_made, inputs.batches, read_records)),
    "message sets": (12, partial(read_made, inputs.messages, read_records)),
    "inside compression": (12, partial(read_made, inputs.inside, read_records)),
    "compressed bytes": (8, partial(read_made, inputs.packed, read_records)),
    "wrappers in wrappers": (6, partial(read_made, inputs.nested, read_records)),
    "transactions": (8, partial(read_made, inputs.transactions, read_records)),
    "taken in two ways": (6, partial(read_made, inputs.anything, read_in_two_ways)),
    "arrow columns": (8, partial(read_made, inputs.anything, read_columns)),
    "changed while read": (4, partial(read_made, inputs.whole, read_changing)),
    "decode_batches": (6, partial(read_made, inputs.anything, read_publicly)),
    "next fetch offset": (3, partial(read_made, inputs.batches, read_ahead)),
    "as the reference": (2, partial(read_made, inputs.anything, read_as_the_reference_does)),
    "bombs": (3, partial(read_made, inputs.bombs, read_bomb)),
    "fetch responses": (3, read_fetch_response),
    "all responses": (2, read_response),
    "frames": (1, read_stream),
}


@dataclass
class Report:
    """The outcomes of some inputs of one target."""

    inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    seconds: float = 0.0

    def add(self, other: Report) -> None:
        """Add the outcomes of another report."""
        self.inputs += other.inputs
        self.ends += other.ends
        self.slowest_ms = max(self.slowest_ms, other.slowest_ms)
        self.seconds += other.seconds


def run_chunk(target: str, chunk: int, count: int = CHUNK, before: Callable[[int], object] | None = None) -> Report:
    """Run a chunk of a target's inputs, the same ones each time. `before` is called with each input's number."""
    rng, report = Random(f"{target} {chunk}"), Report()
    read = TARGETS[target][1]
    ends, clock = report.ends, time.perf_counter
    started = last = clock()
    for index in range(count):
        if before is not None:
            before(index)
        try:
            ends[read(rng)] += 1
        except BaseException as error:
            error.add_note(f"input {index} of chunk {chunk} of {target!r}")
            raise
        now = clock()
        report.slowest_ms = max(report.slowest_ms, (now - last) * 1000)
        last = now
    report.inputs, report.seconds = count, last - started
    return report


def chunks(total: int) -> list[tuple[str, int, int]]:
    """Returns target, number and size of the chunks that make `total` inputs."""
    weights = sum(share for share, _ in TARGETS.values())
    out = []
    for target, (share, _) in TARGETS.items():
        left, number = max(total * share // weights, 1), 0
        while left > 0:
            out.append((target, number, min(left, CHUNK)))
            left -= CHUNK
            number += 1
    return out
