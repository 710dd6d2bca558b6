"""Our record batches compared with Kafka's: written by either side and read by both, with equal results.

Java's result is that of the class in which its consumer keeps one partition's part of a fetch, not of the decoder
alone. Seeds are fixed; `KCONSUMER_FUZZ_SECONDS` extends the comparison of damaged bytes.
"""

from __future__ import annotations

import os
import random
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer.testing.batches import Rec, build_batch, build_message_set
from support.harnesses.decoding import compiled
from support.oracles import reference
from support.oracles.java_records import JavaRecords

FUZZ_SECONDS = float(os.environ.get("KCONSUMER_FUZZ_SECONDS", 0))
CODECS = {0: ("none", "gzip", "snappy", "lz4"), 1: ("none", "gzip", "snappy", "lz4")}
CODECS[2] = (*CODECS[1], "zstd")
FORMATS = [(magic, codec) for magic, codecs in CODECS.items() for codec in codecs]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaRecords]:
    """A Java process with Kafka's record classes."""
    with JavaRecords() as process:
        yield process


def random_records(rng: random.Random, magic: int, base: int) -> list[Rec]:
    """Returns records with ascending offsets from `base` on and random values in all fields of the format."""
    records, offset = [], base
    for _ in range(rng.randint(1, 6)):
        headers = [(rng.choice(("h", "", "käse")), rng.choice((None, b"", b"x" * 70))) for _ in range(rng.randrange(3))]
        records.append(
            Rec(
                rng.choice((None, b"", rng.randbytes(rng.randrange(60)), bytes(rng.randrange(3000)))),
                rng.choice((None, b"", b"key")),
                headers if magic == 2 else (),
                timestamp=rng.choice((-1, 0, rng.randrange(1 << 41))),
                offset=offset,
            )
        )
        offset += rng.choice((1, 1, 2, 1000))
    return records


def random_fields(rng: random.Random, magic: int) -> dict[str, Any]:
    """Returns random values for the fields of a batch other than its records."""
    time_ms = rng.choice((None, None, rng.randrange(1 << 41)))
    fields: dict[str, Any] = {"magic": magic, "log_append_time": None if magic == 0 else time_ms}
    if magic == 2:
        fields |= {"leader_epoch": rng.choice((-1, 0, 5)), "producer_id": rng.choice((-1, 4))}
    return fields


def assert_same(theirs: reference.Decoded, ours: reference.Decoded, start: int = 0) -> None:
    """Check that all results are equal and neither side found an error. Our position never decreases; Java's may, below
    `start`.
    """
    assert (None, None) == (theirs.malformed, ours.malformed)
    assert theirs.records == ours.records
    position = max(start, theirs.next_offset or 0)
    assert (position, theirs.leader_epoch) == (ours.next_offset, ours.leader_epoch)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_what_java_writes(java: JavaRecords, magic: int, codec: str) -> None:
    """From any offset on, we read the same records of Java's batches as Java, and these are the written ones."""
    rng = random.Random(f"{magic} {codec}")
    for _ in range(40):
        base = rng.choice((0, 7, 1 << 40))
        records, fields = random_records(rng, magic, base), random_fields(rng, magic)
        data = java.write(records, codec=codec, base_offset=base, **fields)
        start = base + rng.choice((0, 0, 1, 1000))
        ours = compiled(data, start, 4)
        assert_same(java.read(data, start), ours, start)
        written = [(r.offset, r.key, r.value) for r in records if (r.offset or 0) >= start]
        assert written == [(row[0], row[3], row[4]) for row in ours.records]
        kind = -1 if magic == 0 else int(fields["log_append_time"] is not None)
        assert {kind} >= {row[2] for row in ours.records}


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_what_we_write(java: JavaRecords, magic: int, codec: str) -> None:
    """Java reads the same records as we do from batches of our builders."""
    rng = random.Random(f"{magic} {codec}")
    for _ in range(40):
        base = rng.choice((0, 7, 1 << 40))
        records, log_append = random_records(rng, magic, base), rng.random() < 0.5
        fields: dict[str, Any] = {"base_offset": base, "codec": codec, "log_append_time": log_append}
        fields["snappy_framing"] = rng.choice(("xerial", "raw"))
        if magic == 2:
            data = build_batch(records, leader_epoch=rng.choice((-1, 3)), timestamp=99, **fields)
        else:
            data = build_message_set(records, magic=magic, lz4_header="historical" if magic == 0 else "right", **fields)
        assert_same(java.read(data), compiled(data, 0, 100))


def random_log(java: JavaRecords, rng: random.Random, *, old: bool) -> tuple[bytes, list[tuple[int, int]]]:
    """Returns a log of several producers' transactions in all formats, with the aborted transactions that a broker
    would list.
    """
    log, end = b"", 0
    first: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for _ in range(rng.randint(3, 14)):
        producer = rng.randrange(3)
        kind = rng.choice(("transactional",) * 4 + ("marker",) * 3 + ("idempotent", "plain"))
        if kind == "marker":
            abort = rng.random() < 0.6
            if abort and producer in first:
                aborted.append((producer, first[producer]))
            first.pop(producer, None)
            log += java.marker(end, producer, abort=abort)
            end += 1
            continue
        magic = rng.choice((0, 1, 2)) if kind == "plain" and old else 2
        records = random_records(rng, magic, end)
        fields: dict[str, Any] = {"magic": magic, "codec": rng.choice(CODECS[magic]), "base_offset": end}
        if kind != "plain":
            fields |= {"producer_id": producer, "transactional": kind == "transactional"}
        if kind == "transactional":
            first.setdefault(producer, end)
        log += java.write(records, **fields)
        end = (records[-1].offset or 0) + 1
    rng.shuffle(aborted)
    return log, aborted


@pytest.mark.parametrize("part", range(4))
def test_transactions(java: JavaRecords, part: int) -> None:
    """From any offset on, both skip the same records of a log with transactions, whatever the list of aborted
    transactions contains.
    """
    for seed in range(100 * part, 100 * part + 100):
        rng = random.Random(seed)
        log, aborted = random_log(java, rng, old=seed % 2 == 0)
        if rng.random() < 0.3:
            aborted = [(rng.randrange(4), rng.randrange(50)) for _ in range(rng.randrange(5))]
        # Brokers send at most one batch from before the position.
        start = rng.choice((0, rng.randint(0, struct.unpack_from(">i", log, 23)[0] if log[16] == 2 else 0)))
        step = rng.choice((1, 5, 1000))
        assert_same(java.read(log, start, aborted=aborted), compiled(log, start, step, aborted=aborted), start)
        assert_same(java.read(log, start), compiled(log, start, 5), start)


def damaged(java: JavaRecords, rng: random.Random) -> bytes:
    """Returns bytes that Java wrote, with a byte or two changed, removed, or cut off."""
    data = bytearray()
    for _ in range(rng.choice((1, 1, 2))):
        magic = rng.choice((0, 1, 2))
        records = random_records(rng, magic, rng.randrange(20))
        base = records[0].offset or 0
        codec = rng.choice(CODECS[magic])
        data += java.write(records, codec=codec, base_offset=base, **random_fields(rng, magic))
    for _ in range(rng.choice((1, 1, 2))):
        match rng.randrange(4):
            case 0 | 1:
                data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                at = rng.randrange(len(data))
                del data[at : at + rng.randint(1, 5)]
            case 3:
                del data[rng.randrange(1, len(data) + 1) :]
        if not data:
            break
    return bytes(data)


# Where we reject what Java accepts, because no broker writes it: impossible offsets (Java skips such records and may
# set a negative position), a message inside a wrapper of another format (brokers reject it; Java's consumer does not
# check), and flags of compressed streams for parts that are missing.
STRICTER = re.compile(
    r"an offset that cannot be|a batch of base offset|malformed record|bytes where they belong|beyond 63 bits"
    r"|impossible size or format|another format|malformed message|unknown header flags|Frame incomplete"
)


def outcome(theirs: reference.Decoded, ours: reference.Decoded) -> str:
    """Returns how two decoders differ on damaged bytes, or an empty string if the difference is allowed."""
    if theirs.malformed is None and ours.malformed is None:
        if theirs.records == ours.records:
            return "both read it"
        return "" if rises(ours) and theirs.next_offset == ours.next_offset else "offsets do not rise"
    if theirs.malformed is None:
        return "we are stricter" if STRICTER.search(ours.malformed or "") else ""
    if theirs.malformed == "OutOfMemoryError":
        return "Java allocates what a size says"
    return "both refuse it" if ours.malformed is not None else ""


def rises(found: reference.Decoded) -> bool:
    """Returns whether offsets ascend. Where they do not, Java also drops records inside a batch, and its position may
    decrease.
    """
    offsets = [int(str(row[0])) for row in found.records]
    return offsets == sorted(set(offsets))


def compare_damaged(java: JavaRecords, seed: int) -> str:
    """Read damaged bytes with both decoders and compare the results."""
    rng = random.Random(seed)
    data, check_crcs = damaged(java, rng), rng.random() < 0.2
    theirs = java.read(data, check_crcs=check_crcs)
    ours = compiled(data, 0, 3, check_crcs=check_crcs, log_bytes=False)
    theirs.records = [(*row[:6], row[6] if int(str(row[6] or 0)) >= 0 else None) for row in theirs.records]
    found = outcome(theirs, ours)
    if not found and set(theirs.records) <= set(compiled(data, 0, 3, check_crcs=check_crcs).records):
        found = "batches overlap"  # and we skip the offsets below the end of a batch that was read
    assert found, f"seed {seed}: {data.hex()}\n{theirs}\n{ours}"
    return found


@pytest.mark.parametrize("part", range(4))
def test_damaged_bytes(java: JavaRecords, part: int) -> None:
    """We read the damaged batches that Java reads and reject those that Java rejects; both happen often."""
    counts = Counter(compare_damaged(java, seed) for seed in range(600 * part, 600 * part + 600))
    assert min(counts["both read it"], counts["both refuse it"]) > 100
    assert sum(counts.values()) - counts["both read it"] - counts["both refuse it"] < 20


@pytest.mark.skipif(not FUZZ_SECONDS, reason="KCONSUMER_FUZZ_SECONDS is not set")
@pytest.mark.timeout(0)
def test_damaged_bytes_for_longer(java: JavaRecords) -> None:
    """The same comparison continues with further seeds for as long as requested."""
    seed, end = 10_000, time.monotonic() + FUZZ_SECONDS
    while time.monotonic() < end:
        compare_damaged(java, seed)
        seed += 1
