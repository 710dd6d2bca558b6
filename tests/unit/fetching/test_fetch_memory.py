"""`buffer_memory`: which bytes it counts, when a fetch waits for memory, and that reading always continues."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from kconsumer._core.cycle import Memory
from kconsumer._core.wire import Frame, FrameBuffer, Slice
from kconsumer.records import ConsumerRecords
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TopicPartition
from support.harnesses.fetching import FetchHarness, offsets


def frame(data: bytes) -> Frame:
    """Return bytes in a received frame."""
    frames = FrameBuffer()
    stream = len(data).to_bytes(4) + data
    found: list[Frame] = []
    while stream:
        view = frames.recv_view()
        count = min(len(view), len(stream))
        view[:count] = stream[:count]
        found += frames.received(count)
        stream = stream[count:]
    return found[0]


def fill(harness: FetchHarness, batch_bytes: int, batches: int, **options: Any) -> None:
    """Append batches of one record of about this size to every partition."""
    for log in harness.logs.values():
        for _ in range(batches):
            value = b"%d" % log.end + bytes(batch_bytes)
            log.add(build_batch([value], base_offset=log.end, **options), log.end + 1)


# --- counted bytes ---------------------------------------------------------------------------------------


def test_block_counts_until_it_is_freed() -> None:
    """A frame counts with its whole block while any object refers to it, also if another thread frees it."""
    memory = Memory(1000)
    block = frame(bytes(300))
    size = memory.track(block).size
    assert (block.capacity, size) == (size, memory.total)
    slices = [Slice(block)]
    del block
    assert (size, False) == (memory.total, memory.has_freed)
    thread = threading.Thread(target=slices.clear)
    thread.start()
    thread.join()
    assert memory.has_freed
    assert (0, False) == (memory.total, memory.has_freed)


def test_room() -> None:
    """`room` is the memory that is neither in use, nor reserved by fetches, nor expected to be decompressed."""
    memory = Memory(1000)
    block = memoryview(bytes(300))
    memory.track(block)
    memory.reserved, memory.decompressed = 250, 100
    assert 350 == memory.room


def test_over_allocated_bytes_count() -> None:
    """A bytearray counts with all the bytes that it has allocated."""
    grown = bytearray(1000)
    for _ in range(100):
        grown += bytes(10)
    view = memoryview(grown)
    assert 2000 < Memory(1000).track(view).size == grown.__alloc__()


def test_what_the_caller_keeps_is_the_callers() -> None:
    """Blocks that only the caller keeps count for at most half of the memory; a block that two fetches need counts
    once.
    """
    memory = Memory(1000)
    memory.decompressed = 0
    ours, theirs = memoryview(bytes(200)), [memoryview(bytes(400)) for _ in range(5)]
    block = memory.track(ours)
    memory.acquire(block)
    memory.acquire(block)
    assert 800 == memory.room
    for view in theirs:
        memory.track(view)
    assert (2200, 700, 300) == (memory.total, memory.used, memory.room)
    memory.release(block)
    assert 700 == memory.used
    memory.release(block)
    assert 500 == memory.used
    memory.acquire(block)
    del ours
    assert 500 == memory.used, "freed while it was still needed"
    memory.release(block)
    assert 500 == memory.used


def test_cost_of_a_response() -> None:
    """A response is expected to be as large as an ordinary batch until responses show otherwise; after one that
    exceeded its limit, others may exceed it too.
    """
    memory = Memory(64 << 20)
    assert (1 << 20, 5 << 20) == (memory.reserve_for(1000), memory.reserve_for(4 << 20))
    for _ in range(80):
        memory.record_response(1000, 1250)
    assert 1250 == memory.reserve_for(1000)
    memory.record_response(3_000_000, 1250)
    assert 3_000_000 == memory.reserve_for(1000)
    memory.record_response(1000, 1250)
    assert 3_000_000 - 375_000 == memory.reserve_for(1000)


def test_expected_decompression() -> None:
    """The expected size of decompression follows earlier polls and decreases slowly."""
    memory = Memory(1000)
    seen = [memory.decompressed]
    for unpacked in (0, 400, 100, 0):
        memory.record_decompressed(unpacked)
        seen.append(memory.decompressed)
    assert [125, 123, 400, 393, 386] == seen
    for _ in range(400):
        memory.record_decompressed(0)
    assert 0 == memory.decompressed


@pytest.mark.parametrize(("brokers", "share"), [(1, 16), (2, 16), (3, 10), (8, 4), (1000, 1)])
def test_share_of_a_request(brokers: int, share: int) -> None:
    """One request may ask for a quarter of the memory at most, and for less with many brokers, so that each can have
    one.
    """
    assert share == Memory(64).per_request_limit(brokers)


# --- one response, several partitions --------------------------------------------------------------------


def test_frame_counts_until_its_last_partition_is_read() -> None:
    """A response counts in full while data of one of its partitions is buffered."""
    harness = FetchHarness(2)
    batches = [build_batch([b"0" * 2000], leader_epoch=0) for _ in harness.tps]
    block = frame(b"".join(batches))
    size = block.capacity
    whole = Slice(block)
    view = memoryview(block)
    del block, whole
    # The codec gives slices of the frame; here each wraps a view of it, and the frame is counted by hand.
    harness.buffer.memory.track(view.obj)
    slices = [Slice(view[: len(batches[0])]), Slice(view[len(batches[0]) :])]
    harness.respond(*harness.poll(), p0={"records": slices[0]}, p1={"records": slices[1]})
    del view
    slices.clear()
    held = harness.buffer.memory.total
    assert held >= size
    assert 1 == len(harness.collector.collect(1))
    assert size <= harness.buffer.memory.total < held
    assert 1 == len(harness.collector.collect(1))
    assert 0 == harness.buffer.memory.total


# --- when fetches leave ----------------------------------------------------------------------------------


def test_fetches_wait_for_room_and_not_for_time() -> None:
    """While the memory is in use no fetch is sent, however long that takes; one is sent as soon as there is room for
    it.
    """
    harness = FetchHarness(8, buffer_memory=8000, max_partition_fetch_bytes=1000)
    fill(harness, 900, 9)
    (request,) = harness.poll()
    assert (2000, 2500) == (request.message.max_bytes, harness.buffer.memory.reserved)
    harness.respond(request)
    while requests := harness.poll():
        harness.respond(*requests)
    held = harness.buffer.memory.total
    assert 8000 - 2500 < held < 8000
    harness.now += 60_000
    assert ([], False) == (harness.poll(), harness.manager.needs_poll)
    assert 1 == len(harness.collector.collect(1))
    assert harness.manager.needs_poll
    while not harness.poll():
        assert 1 == len(harness.collector.collect(1))
    assert held - 2500 < harness.buffer.memory.total <= 8000 - 2500


def test_brokers_share_the_memory() -> None:
    """The limits of all requests in flight do not exceed the memory."""
    harness = FetchHarness(4, brokers=4, buffer_memory=4000, max_partition_fetch_bytes=3000)
    assert [500] * 4 == [r.message.max_bytes for r in harness.poll()]
    assert 2500 == harness.buffer.memory.reserved


def test_bound_holds_while_reading_slowly() -> None:
    """With many partitions on several brokers, compressed or not, that are read a few records at a time, used and
    reserved bytes exceed the memory by at most one decompressed batch.
    """
    rng = random.Random(7)
    harness = FetchHarness(12, brokers=3, buffer_memory=200_000, max_partition_fetch_bytes=20_000, sessions=10)
    for log in harness.logs.values():
        for _ in range(30):
            values = [Rec(b"%d" % (log.end + i), headers=[("h", bytes(rng.randint(0, 600)))]) for i in range(5)]
            codec = rng.choice(("none", "gzip", "zstd"))
            log.add(build_batch(values, base_offset=log.end, codec=codec, leader_epoch=0), log.end + 5)
    memory, peak, in_flight = harness.buffer.memory, 0, []
    got: dict[TopicPartition, int] = dict.fromkeys(harness.tps, 0)
    while any(count < 150 for count in got.values()):
        in_flight += harness.poll()
        peak = max(peak, memory.total + memory.reserved)
        if in_flight and rng.random() < 0.6:
            harness.respond(in_flight.pop(rng.randrange(len(in_flight))))
        records = harness.collector.collect(rng.randint(1, 20))
        peak = max(peak, memory.total + memory.reserved)
        for record in records:
            got[record.topic_partition] += 1
    assert 100_000 < peak <= 200_000 + 3_500


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_bound_holds_with_many_brokers(codec: str) -> None:
    """The bound holds with twenty brokers that each send a batch larger than their limit, read record by record; a
    compressed batch has only a few bytes until it is decompressed.
    """
    harness = FetchHarness(20, brokers=20, buffer_memory=400_000, sessions=1)
    fill(harness, 40_000, 4, codec=codec)
    memory, peak, got = harness.buffer.memory, 0, 0
    for _ in range(400):
        for request in harness.poll():
            harness.respond(request)
            peak = max(peak, memory.total + memory.reserved)
        records = harness.collector.collect(1)
        peak = max(peak, memory.total + memory.reserved)
        got += len(records)
        del records
    assert 80 == got
    assert 100_000 < peak <= 400_000


def test_batches_larger_than_the_memory() -> None:
    """A batch that is larger than the memory is read, one at a time."""
    harness = FetchHarness(2, brokers=2, buffer_memory=1000, max_partition_fetch_bytes=1000)
    fill(harness, 5000, 3)
    got, rounds = 0, 0
    while got < 6:
        rounds += 1
        assert rounds < 30
        for request in harness.poll():
            harness.respond(request)
        got += len(harness.collector.collect(10))
    assert 1 == len(harness.poll()), "having seen how large they are, it asks one broker after the other"


def test_batches_that_the_caller_keeps() -> None:
    """Batches that the caller keeps take half of the memory at most; prefetching continues in the other half."""
    harness = FetchHarness(1, buffer_memory=8000, max_partition_fetch_bytes=1000)
    fill(harness, 900, 20)
    kept: list[ConsumerRecords] = []
    for _ in range(40):
        harness.fetch()
        kept.append(harness.collector.collect(1))
    assert list(range(20)) == [record.offset for records in kept for record in records]
    assert 16_000 < harness.buffer.memory.total
    fill(harness, 900, 4)
    assert [1, 1, 0] == [harness.fetch() for _ in range(3)], "two ahead, as ever"
    kept.clear()
    assert harness.buffer.memory.used < 2 * 1200


def test_batches_that_the_caller_keeps_do_not_cost_paused_data() -> None:
    """Buffered data of a paused partition is kept, however many batches the caller keeps."""
    harness = FetchHarness(2, brokers=2, buffer_memory=8000, max_partition_fetch_bytes=1000)
    paused, read = harness.tps
    fill(harness, 900, 20)
    harness.fetch()
    harness.assignment.pause(paused)
    kept = [harness.collector.collect(1)]
    held = harness.buffer.buffered_bytes(paused)
    while len([record for records in kept for record in records]) < 20:
        harness.fetch()
        kept.append(harness.collector.collect(1))
    assert {read} == {record.topic_partition for records in kept for record in records}
    assert (True, held) == (harness.buffer.memory.total > 16_000, harness.buffer.buffered_bytes(paused))


def test_poll_decompresses_no_more_than_a_part_of_the_memory() -> None:
    """A poll ends when it has decompressed a quarter of the memory, however many records are requested."""
    harness = FetchHarness(1, buffer_memory=100_000)
    fill(harness, 9_000, 20, codec="gzip")
    harness.fetch()
    records = harness.collector.collect(500)
    assert 3 == len(records)
    assert 27_000 < harness.buffer.memory.decompressed < 28_000
    assert harness.buffer.memory.total > 27_000
    del records
    assert harness.buffer.memory.total < 10_000
    assert 3 == len(harness.collector.collect(500))


# --- paused partitions ------------------------------------------------------------------------------------


def test_paused_data_is_kept_and_blocks_no_other_partition() -> None:
    """The buffered data of a paused partition stays, while others are fetched and read."""
    harness = FetchHarness(2, buffer_memory=8000, max_partition_fetch_bytes=1000)
    one, _ = harness.tps
    fill(harness, 900, 6)
    harness.fetch()
    harness.assignment.pause(one)
    got: list[int] = []
    for _ in range(20):
        got += [record.offset for record in harness.collector.collect(1)]
        harness.fetch()
    assert list(range(6)) == got
    kept = harness.buffer.buffered_bytes(one)
    assert 900 < kept
    harness.assignment.resume(one)
    assert 0 == next(iter(harness.collector.collect(1))).offset


def test_paused_partitions_do_not_lock_the_others_out() -> None:
    """If paused partitions hold all the memory, enough of their data for one fetch is dropped, from the partition that
    was paused last. It is fetched again later.
    """
    harness = FetchHarness(3, brokers=3, buffer_memory=3000, max_partition_fetch_bytes=1000)
    first, second, other = harness.tps
    fill(harness, 900, 4)
    harness.assignment.pause(other)
    for _ in range(2):
        for request in harness.poll():
            harness.respond(request)
    for tp in (first, second):
        harness.assignment.pause(tp)
    harness.assignment.resume(other)
    assert {} == harness.collector.collect(10).by_partition()
    before = {tp: harness.buffer.buffered_bytes(tp) for tp in (first, second)}
    (request,) = harness.poll()
    assert ("2", {2: 0}) == (request.node, offsets(request))
    assert (before[first], 0) == (harness.buffer.buffered_bytes(first), harness.buffer.buffered_bytes(second))


def test_broker_that_waits_for_room_gets_its_turn() -> None:
    """If paused data takes most of the memory, a broker with much data is asked although another one without data,
    which needs little memory, could be asked repeatedly.
    """
    harness = FetchHarness(8, brokers=1, buffer_memory=8000, max_partition_fetch_bytes=1000)
    fill(harness, 900, 8)
    harness.brokers = 2
    harness.leaders[7] = 1
    harness.update_metadata()
    harness.logs[harness.tps[7]].__init__()  # type: ignore[misc]  # an empty log
    for tp in harness.tps[4:7]:
        harness.assignment.pause(tp)
    for _ in range(6):
        harness.fetch()
    for tp in harness.tps[:4]:
        harness.assignment.pause(tp)
    for tp in harness.tps[4:7]:
        harness.assignment.resume(tp)
    got: set[TopicPartition] = set()
    for _ in range(20):
        harness.fetch()
        got |= {record.topic_partition for record in harness.collector.collect(500)}
        harness.now += 500
    assert set(harness.tps[4:7]) == got
    assert harness.buffer.has_paused, "what is paused is given up only as far as needed"
