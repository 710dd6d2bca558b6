"""What commits contain with enable_auto_offset_store=False. MockConsumer has the state of a consumer."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kconsumer import ConsumerRecord, ConsumerRecords, OffsetAndMetadata, TopicPartition, errors
from kconsumer.testing import MockConsumer

TP = TopicPartition("t", 0)


def reader(offsets: Iterable[int] = range(5)) -> MockConsumer:
    """Returns a consumer whose next poll returns records with these offsets."""
    made = MockConsumer(group_id="g", auto_offset_reset="earliest", enable_auto_offset_store=False)
    made.assign([TP])
    made.add_records(TP, [ConsumerRecord("t", 0, offset) for offset in offsets])
    return made


def committed(consumer: MockConsumer) -> int | None:
    """Commit what is stored. Returns the committed offset of the partition."""
    consumer.commit()
    at = consumer.committed([TP])[TP]
    return None if at is None else at.offset


@given(st.sets(st.integers(0, 30), min_size=1).map(sorted), st.randoms(use_true_random=False))
def test_commits_end_at_the_first_record_that_is_not_stored(offsets: list[int], rng: object) -> None:
    """Records are stored in any order. After each, the commit ends at the lowest that is not stored, behind gaps."""
    with reader(offsets) as consumer:
        records = list(consumer.poll())
        order = list(records)
        rng.shuffle(order)  # type: ignore[attr-defined]
        assert committed(consumer) is None
        for done in range(1, len(order) + 1):
            consumer.store_offsets(order[done - 1])
            left = [record.offset for record in order[done:]]
            assert (min(left) if left else offsets[-1] + 1) == committed(consumer)


def test_records_and_mappings_are_stored() -> None:
    """All records of a batch can be stored at once; a mapping sets the offset, with its metadata, also a lower one."""
    with reader() as consumer:
        batch = consumer.poll()
        consumer.store_offsets(ConsumerRecords(list(batch)[:2]))
        assert 2 == committed(consumer)
        consumer.store_offsets({TP: OffsetAndMetadata(4, "note", 1)})
        assert 4 == committed(consumer)
        assert OffsetAndMetadata(4, "note", 1) == consumer.committed([TP])[TP]
        consumer.store_offsets({("t", 0): 3})
        assert 3 == committed(consumer)
        consumer.store_offsets(batch)
        assert 5 == committed(consumer)


def test_records_from_before_a_seek_are_ignored() -> None:
    """A seek drops what is stored, and what is stored later of the records from before it."""
    with reader() as consumer:
        batch = list(consumer.poll())
        consumer.store_offsets(batch[0])
        consumer.seek(TP, 3)
        consumer.store_offsets(batch)
        assert committed(consumer) is None
        consumer.store_offsets(next(iter(consumer.poll())))
        assert 4 == committed(consumer)


def test_records_of_revoked_partitions_are_ignored() -> None:
    """A record that is stored after its partition was revoked, or assigned again since, changes nothing."""
    with reader() as consumer:
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        consumer.rebalance([TP])
        batch = consumer.poll()
        consumer.rebalance([])
        consumer.store_offsets(batch)
        consumer.store_offsets(batch.next_offsets())
        consumer.rebalance([TP])
        consumer.store_offsets(batch)
        assert committed(consumer) is None


@pytest.mark.parametrize("ending", ["rebalance", "close", "interval"])
def test_automatic_commits_contain_what_is_stored(ending: str) -> None:
    """Another thread stores two of five records: the commits before a rebalance, on close and after the interval."""
    consumer = reader()
    consumer.unsubscribe()
    consumer.subscribe(["t"])
    consumer.rebalance([TP])
    thread = threading.Thread(target=consumer.store_offsets, args=[list(consumer.poll())[:2]])
    thread.start()
    thread.join()
    if ending == "rebalance":
        consumer.rebalance([])
    elif ending == "interval":
        consumer.poll(6.0)
        consumer.poll(0)
    assert (None if ending == "close" else {TP: OffsetAndMetadata(2)}) == (consumer.committed_offsets() or None)
    consumer.close()
    assert {TP: OffsetAndMetadata(2)} == consumer.committed_offsets()


def test_a_loop_that_stops_keeps_what_is_stored() -> None:
    """A `for` loop stores each record and stops in the middle of the batch: the next poll drops nothing stored."""
    with reader() as consumer:
        for record in consumer:
            consumer.store_offsets(record)
            if record.offset == 2:
                break
        assert 3 == committed(consumer)
        consumer.store_offsets(next(iter(consumer.poll())))
        assert 4 == committed(consumer)


def test_what_is_stored_is_committed_after_an_error() -> None:
    """A `with` block that an error ends commits what is stored, because that is done."""
    consumer = reader()

    def run() -> None:
        with consumer:
            consumer.store_offsets(next(iter(consumer.poll())))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert {TP: OffsetAndMetadata(1)} == consumer.committed_offsets()


def test_store_offsets_refuses_what_it_cannot_store() -> None:
    """Positions that are stored automatically, and other objects, are refused."""
    with MockConsumer(group_id="g") as consumer, pytest.raises(errors.StateError, match="enable_auto_offset_store"):
        consumer.store_offsets({TP: 1})
    with reader() as consumer, pytest.raises(TypeError, match="a record, records, or a mapping"):
        consumer.store_offsets(5)  # type: ignore[arg-type]


def test_commit_takes_a_record() -> None:
    """The offset after the record is committed, with its leader epoch."""
    with reader() as consumer:
        consumer.commit(ConsumerRecord("t", 0, 3, leader_epoch=7))
        assert {TP: OffsetAndMetadata(4, "", 7)} == consumer.committed_offsets()
