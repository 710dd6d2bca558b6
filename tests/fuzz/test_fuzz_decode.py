"""Hostile bytes against the batch decoder: everything parses or raises CorruptRecordError, and nothing else happens.

Inputs are good batches of every format and codec, and logs of transactions, with bytes changed, cut, repeated and
spliced, with and without repaired sizes and checksums, inside and outside of compression, so that damage gets past the
outer checks. Seeds are fixed. `KCONSUMER_FUZZ_SECONDS` makes a run longer
(and its seeds follow on), which is worth it on the asan build.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import time
import zlib
from typing import Any, NamedTuple

import pytest

from kconsumer._core.crc import crc32c
from kconsumer._core.fetch import PartitionFetch
from kconsumer._core.run import RecordRun
from kconsumer.errors import CorruptRecordError, RecordDeserializationError, RecordTooLargeError
from kconsumer.testing.batches import (
    CODECS,
    Rec,
    abort_marker,
    build_batch,
    build_message,
    build_message_set,
    commit_marker,
    compress,
    control_batch,
    empty_batch,
    encode_record,
    frame_batch,
)
from kconsumer.types import TopicPartition

TP = TopicPartition("fuzz", 0)
ROUNDS = 5000
MOST_SECONDS = 20.0  # on slow builds; seeds not reached then are reached by the release build
FUZZ_SECONDS = float(os.environ.get("KCONSUMER_FUZZ_SECONDS", 0))
NASTY = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)

Buffer = bytearray


def seeds() -> list[bytes]:
    """Good inputs to damage."""
    records = [
        Rec(b"value", b"key", [("h", b"x"), ("n", None), ("e", b"")], 7),
        Rec(None, None),
        Rec(b"", b""),
        Rec(b"v" * 200, b"k" * 70, [(f"name{i}", b"y" * i) for i in range(6)], 1 << 40, offset=300),
    ]
    batches = [build_batch(records, base_offset=5, codec=codec, leader_epoch=3) for codec in CODECS]
    batches.append(build_batch(records, codec="snappy", snappy_framing="raw"))
    batches.append(control_batch("abort", 8, producer_id=1) + empty_batch(9, 20) + build_batch(records, base_offset=21))
    batches.append(frame_batch(b"\x0c\x00\x00\x00\x01\x01\x00" * 50, record_count=50, last_offset_delta=49))
    for magic in (0, 1):
        batches += [build_message_set(records, magic=magic, codec=codec) for codec in CODECS if codec != "zstd"]
        batches.append(build_message_set(records, magic=magic, codec="snappy", snappy_framing="raw"))
        batches.append(build_message_set([b"a"] * 40, magic=magic) + build_batch(records, base_offset=40))
    batches.append(build_message_set(records, magic=0, codec="lz4", lz4_header="historical"))
    batches.append(transactions())
    return batches


def transactions() -> bytes:
    """Three producers' batches between each other, some aborted."""

    def of(producer_id: int, offset: int, **fields: Any) -> bytes:
        return build_batch([b"x", b"y"], base_offset=offset, producer_id=producer_id, transactional=True, **fields)

    parts = [of(1, 0), of(2, 2, codec="gzip"), abort_marker(4, 1), of(3, 5), of(1, 7), commit_marker(9, 2)]
    return b"".join([*parts, abort_marker(10, 3), of(2, 11, codec="zstd"), commit_marker(13, 1), of(3, 14)])


def change_byte(data: Buffer, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice(NASTY)


def flip_bit(data: Buffer, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def change_header(data: Buffer, rng: random.Random) -> None:
    data[rng.randrange(min(len(data), 61))] = rng.choice(NASTY)


def drop(data: Buffer, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 9)]


def insert(data: Buffer, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = bytes(rng.choice(NASTY) for _ in range(rng.randint(1, 9)))


def repeat(data: Buffer, rng: random.Random) -> None:
    at, size = rng.randrange(len(data)), rng.randint(1, 40)
    data[at:at] = data[at : at + size]


def cut(data: Buffer, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def splice(data: Buffer, rng: random.Random) -> None:
    other = rng.choice(SEEDS)
    at = rng.randrange(len(other))
    data[rng.randrange(len(data)) :] = other[at:]


SEEDS = seeds()
CHANGES = (change_byte, flip_bit, change_header, drop, insert, repeat, cut, splice)


def repair(data: Buffer) -> None:
    """Make the first batch's size and checksum fit its bytes again, if it is all there is."""
    if len(data) < 34:
        return
    struct.pack_into(">i", data, 8, len(data) - 12)
    if data[16] in (0, 1):
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    elif len(data) > 61:
        data[16] = 2
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))


def damaged_inside(rng: random.Random) -> bytes:
    """Records or messages damaged before they are compressed."""
    magic, codec = rng.randrange(3), rng.choice(tuple(CODECS))
    if magic == 2:
        records = [Rec(b"value", b"key", [("h", b"x")]), Rec(None, None), Rec(b"v" * 100)]
        body = bytearray(b"".join(encode_record(record, offset_delta=i) for i, record in enumerate(records)))
        rng.choice(CHANGES)(body, rng)
        packed = compress(codec, bytes(body))
        return frame_batch(packed, attributes=CODECS[codec], record_count=rng.choice((3, 3, 2, 4)), last_offset_delta=2)
    body = bytearray(build_message_set([b"value", (b"key", None), b"v" * 100], magic=magic))
    rng.choice(CHANGES)(body, rng)
    return build_message(
        compress(codec, bytes(body)), magic=magic, offset=rng.choice((0, 2, 9)), attributes=CODECS[codec]
    )


def damaged(seed: int) -> tuple[bytes, random.Random]:
    rng = random.Random(seed)
    if rng.random() < 0.2:
        return damaged_inside(rng), rng
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 4))):
        if data:
            rng.choice(CHANGES)(data, rng)
    if rng.random() < 0.8:
        repair(data)
    return bytes(data), rng


class Outcome(NamedTuple):
    """What became of an input."""

    records: int
    error: CorruptRecordError | RecordTooLargeError | None


def read_all(data: bytes, rng: random.Random) -> Outcome:
    """Take everything in pieces and look at every attribute, up to an error of the two allowed kinds."""
    count = 0
    of_log = rng.random() < 0.5
    fetch = PartitionFetch(
        TP,
        data,
        rng.choice((0, 0, 6, 1 << 40)),
        check_crcs=rng.random() < 0.3,
        log_bytes=of_log,
        read_committed=rng.random() < 0.5,
        aborted_transactions=[(rng.randint(-1, 3), rng.randint(-1, 12)) for _ in range(rng.randrange(4))],
    )
    try:
        while not fetch.exhausted:
            position = fetch.next_offset
            run = fetch.take(rng.choice((1, 3, 1 << 62)))
            assert run.next_offset == fetch.next_offset
            assert position <= fetch.next_offset or of_log
            for record in run:
                assert record.offset >= 0
                repr(record)
                count += 1
            assert len(run) == len(list(run))
            if rng.random() < 0.2:
                go_back(run, rng)
    except (CorruptRecordError, RecordTooLargeError) as error:
        return Outcome(count, error)
    return Outcome(count, None)


def go_back(run: RecordRun, rng: random.Random) -> None:
    """A deserializer fails somewhere in the run, and the fetch goes back to that record; or it does not."""
    left = rng.randrange(len(run) + 1)

    def convert(_topic: str, _headers: object, data: bytes | None) -> bytes | None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("not this one")
        return data

    with contextlib.suppress(RecordDeserializationError):
        run.deserialize(None, convert)


@pytest.mark.parametrize("part", range(8))
def test_damaged_batches(part: int) -> None:
    """Fixed seeds, a share of them in each part."""
    end = time.monotonic() + MOST_SECONDS
    for seed in range(part * ROUNDS, (part + 1) * ROUNDS):
        read_all(*damaged(seed))
        if time.monotonic() > end:
            break


if FUZZ_SECONDS:

    @pytest.mark.timeout(0)
    def test_for_longer() -> None:
        """Seeds go on from where the fixed ones end, for as long as asked."""
        seed, end = 8 * ROUNDS, time.monotonic() + FUZZ_SECONDS
        while time.monotonic() < end:
            for _ in range(100):
                read_all(*damaged(seed))
                seed += 1


def test_the_fuzzer_reaches_both_ends() -> None:
    """Damage often lets records through and is often refused, sometimes after records; else this would test nothing."""
    outcomes = [read_all(*damaged(seed)) for seed in range(400)]
    assert sum(outcome.records > 0 for outcome in outcomes) > 60
    assert sum(outcome.error is not None for outcome in outcomes) > 80
    assert sum(outcome.records > 0 and outcome.error is not None for outcome in outcomes) > 20


def test_every_byte_of_a_batch_set_to_every_nasty_value() -> None:
    """Small enough to do all of them; errors say where they were met."""
    batch = build_batch([Rec(b"value", b"key", [("h", b"x"), ("n", None)]), Rec(None, b"k")])
    rng = random.Random(0)
    for at in range(len(batch)):
        for value in NASTY:
            _, error = read_all(batch[:at] + bytes([value]) + batch[at + 1 :], rng)
            assert error is None or "fuzz-0" in str(error)
