"""`Consumer` with a broker that serves corrupt records: each call raises an error that names the place until the caller
seeks. No valid record before, after or in another partition is lost.
"""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import zstandard

from kconsumer import Consumer, TopicPartition, read_range
from kconsumer.errors import BatchTooLargeError, CorruptRecordError
from kconsumer.testing.batches import (
    CODECS,
    Rec,
    build_batch,
    build_message,
    build_message_set,
    encode_record,
    frame_batch,
)
from support.fakes.log_broker import LogBroker
from support.harnesses.polling import read

BAD, AFTER = 5, 8  # the corrupt batch has offsets 5 to 7
THREE = b"".join(encode_record(Rec(b"%d" % (BAD + i)), offset_delta=i) for i in range(3))
MOST_GROWN_MIB = 400  # a batch may grow to 128 MiB; its parts are joined in twice as much memory, for a moment
GIB = 1 << 30


def frame(body: bytes, **fields: int) -> bytes:
    return frame_batch(body, **{"base_offset": BAD, "record_count": 3, "last_offset_delta": 2, **fields})


def zstd_bomb() -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(packer.compress(bytes(1 << 24)) for _ in range(64)) + packer.flush()
    return frame(packed, attributes=CODECS["zstd"])


def gzip_bomb_in_a_wrapper() -> bytes:
    value = gzip.compress(bytes(1 << 22), mtime=0) * 256
    return build_message(value, magic=1, offset=AFTER - 1, attributes=CODECS["gzip"])


def wrapper_in_a_wrapper() -> bytes:
    inner = build_message_set([b"5", b"6", b"7"], magic=1, codec="gzip")
    return build_message(gzip.compress(inner, mtime=0), magic=1, offset=AFTER - 1, attributes=CODECS["gzip"])


# How the bytes are damaged, the offset of the error, and a part of the error's message.
DAMAGE = {
    "checksum": (frame(THREE, crc=1), BAD, "checksum"),
    "too many records claimed": (frame(THREE, record_count=1 << 30), AFTER, "malformed record"),
    "too few records claimed": (frame(THREE, record_count=2), BAD + 1, "malformed record"),
    "a negative count": (frame(THREE, record_count=-1), BAD, "record count of -1"),
    "a record cut short": (frame(THREE[:-3]), BAD + 2, "malformed record"),
    "an endless varint": (frame(b"\xff" * 40), BAD, "malformed record"),
    "a format from the future": (frame(THREE, magic=3), BAD, "no message format 3"),
    "an impossible size": (frame(THREE, length=13), BAD, "size of 13"),
    "not what the codec writes": (frame(THREE, attributes=CODECS["lz4"]), BAD, "lz4"),
    "a codec that does not exist": (frame(THREE, attributes=7), BAD, "codec 7"),
    "a wrapper in a wrapper": (wrapper_in_a_wrapper(), AFTER - 1, "inside a compressed message"),
}
# Valid offsets end before the error's offset. A wrapper contains only its last offset, so none of its records is read.
GOOD = {kind: BAD if kind == "a wrapper in a wrapper" else offset for kind, (_, offset, _) in DAMAGE.items()}


@pytest.fixture
def broker() -> Iterator[LogBroker]:
    """A broker with two partitions of ten records; the first one has the corrupt batch."""
    with LogBroker(2) as broker:
        broker.logs[0].append(BAD)
        broker.logs[1].append(10)
        yield broker


def add(broker: LogBroker, damaged: bytes) -> None:
    broker.logs[0].add(damaged, AFTER)
    broker.logs[0].append(4)


def reader(broker: LogBroker, *partitions: int) -> Consumer:
    """Make a consumer of these partitions that reads from the beginning."""
    consumer = Consumer(bootstrap_servers=broker.address, auto_offset_reset="none")
    consumer.assign([TopicPartition("t", p) for p in partitions])
    for p in partitions:
        consumer.seek(TopicPartition("t", p), 0)
    return consumer


def until_corrupt(consumer: Consumer) -> tuple[list[tuple[int, int]], CorruptRecordError]:
    """Returns partition and offset of all records before the error, and the error."""
    found: list[tuple[int, int]] = []
    for _ in range(100):
        try:
            found += [(record.partition, record.offset) for record in consumer.poll(1)]
        except CorruptRecordError as error:
            return found, error
    raise AssertionError("no error")


@pytest.mark.parametrize("kind", DAMAGE)
def test_corrupt_batch(broker: LogBroker, kind: str) -> None:
    """Valid records are returned first. Then each poll raises and the position does not change; after a seek past the
    batch reading continues.
    """
    damaged, offset, message = DAMAGE[kind]
    add(broker, damaged)
    tp = TopicPartition("t", 0)
    with reader(broker, 0) as consumer:
        found, error = until_corrupt(consumer)
        assert [(0, i) for i in range(GOOD[kind])] == found
        for _ in range(3):
            assert ("t", 0, offset) == (error.topic, error.partition, error.offset)
            assert message in str(error)
            assert GOOD[kind] == consumer.position(tp)
            nothing, error = until_corrupt(consumer)
            assert [] == nothing
        consumer.seek(tp, AFTER)
        assert [8, 9, 10, 11] == [record.offset for record in read(consumer, 4)]


@pytest.mark.parametrize("engine", ["classic", "threaded"])
def test_a_batch_above_the_limit(broker: LogBroker, engine: str) -> None:
    """poll, poll_arrow and read_range raise an error that names the option; with a larger limit they read the batch."""
    add(broker, build_batch([bytes(50_000)] * 3, base_offset=BAD, codec="gzip"))
    options = {"bootstrap_servers": broker.address, "engine": engine}
    for limit in (100_000, 200_000):
        with Consumer(**options, decompressed_batch_max_bytes=limit) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for call in (consumer.poll, consumer.poll_arrow):
                consumer.seek(TopicPartition("t", 0), BAD)
                with pytest.raises(BatchTooLargeError) if limit == 100_000 else nullcontext():
                    while not call(1.0):
                        pass
        reader = read_range(("t", 0), BAD, AFTER, decompressed_batch_max_bytes=limit, **options)
        with reader, pytest.raises(BatchTooLargeError) if limit == 100_000 else nullcontext():
            assert AFTER - BAD == sum(map(len, reader))


def test_the_other_partition_loses_nothing(broker: LogBroker) -> None:
    """The records of the other partition that arrived with the corrupt batch are returned. Later ones are returned
    while the corrupt partition is paused; after resume() it raises again.
    """
    add(broker, DAMAGE["checksum"][0])
    tp = TopicPartition("t", 0)
    with reader(broker, 0, 1) as consumer:
        found, _ = until_corrupt(consumer)
        broker.logs[1].append(10)
        consumer.pause(tp)
        while len(found) < BAD + 20:
            found += [(record.partition, record.offset) for record in consumer.poll(5)]
        consumer.resume(tp)
        nothing, error = until_corrupt(consumer)
        assert ([], BAD) == (nothing, error.offset)
    assert [(0, i) for i in range(BAD)] + [(1, i) for i in range(20)] == sorted(found)


def test_columns_and_loops_meet_the_same_error(broker: LogBroker) -> None:
    """`poll_arrow` and `for record in consumer` return the valid records and raise at the same offset as poll."""
    add(broker, DAMAGE["a record cut short"][0])
    with reader(broker, 0) as consumer:
        rows = 0
        while rows < BAD + 2:
            rows += consumer.poll_arrow(timeout=5).num_rows
        with pytest.raises(CorruptRecordError, match="t-0 at offset 7"):
            consumer.poll_arrow(timeout=5)
        consumer.seek(TopicPartition("t", 0), 0)
        assert list(range(BAD + 2)) == [record.offset for record in itertools.islice(consumer, BAD + 2)]
        with pytest.raises(CorruptRecordError, match="t-0 at offset 7"):
            next(iter(consumer))


def test_seek_back_meets_it_again(broker: LogBroker) -> None:
    """A seek back removes the error but keeps the batch: the records before it are returned again, and then the error
    is raised again.
    """
    add(broker, DAMAGE["checksum"][0])
    with reader(broker, 0) as consumer:
        until_corrupt(consumer)
        consumer.seek(TopicPartition("t", 0), 3)
        found, error = until_corrupt(consumer)
        assert [(0, 3), (0, 4)] == found
        assert BAD == error.offset


def test_without_checksums(broker: LogBroker) -> None:
    """With check_crcs=False a wrong checksum is ignored, and malformed records still raise."""
    broker.logs[0].add(frame(THREE, crc=1), AFTER)
    broker.logs[0].add(frame(THREE[:-3], crc=1, base_offset=AFTER), AFTER + 3)
    tp = TopicPartition("t", 0)
    with Consumer(bootstrap_servers=broker.address, check_crcs=False, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 0)
        found, error = until_corrupt(consumer)
        assert [(0, i) for i in range(AFTER + 2)] == found
        assert AFTER + 2 == error.offset


def peak_mib() -> int:
    """Returns the highest memory use of this process since `forget_peak` (MiB)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError("no VmHWM")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer holds freed memory back")
@pytest.mark.parametrize("bomb", [zstd_bomb, gzip_bomb_in_a_wrapper])
def test_bomb(broker: LogBroker, bomb: object) -> None:
    """A small batch that decompresses to a gigabyte raises at each poll, is never decompressed as a whole, and can be
    skipped by a seek.
    """
    assert callable(bomb)
    data = bomb()
    assert len(data) < GIB / 200
    add(broker, data)
    tp = TopicPartition("t", 0)
    with reader(broker, 0) as consumer:
        assert BAD == len(read(consumer, BAD))
        forget_peak()
        before = peak_mib()
        for _ in range(3):
            with pytest.raises(BatchTooLargeError, match="more than the 134217728 bytes that decompressed_") as caught:
                read(consumer, 1)
            assert caught.value.offset in (BAD, AFTER - 1)  # of a wrapper only the last offset is known
            assert (AFTER, 128 << 20) == (caught.value.next_offset, caught.value.limit)
            assert BAD == consumer.position(tp)
        assert peak_mib() - before < MOST_GROWN_MIB
        consumer.seek(tp, AFTER)
        assert [8, 9, 10, 11] == [record.offset for record in read(consumer, 4)]
