"""Acquired records, their acknowledgements, and the batches in which these are sent."""

from __future__ import annotations

import random

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.decode import ShareRecord
from kconsumer.errors import CorruptRecordError, KafkaError, RecordDeserializationError, StateError, error_for
from kconsumer.share.acknowledgements import (
    AcquiredBatch,
    Commit,
    LockTime,
    RequestKind,
    check_acknowledged,
    merged_batches,
    to_batches,
)
from kconsumer.share.session import TopicIdPartition
from kconsumer.share.types import AcknowledgeType
from kconsumer.share.uniform_offsets import UniformOffsets, values_of
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import TopicPartition
from support.harnesses.share_harness import ShareHarness, completed

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
TP = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("types", "batches"),
    [
        ({}, []),
        ({5: 1}, [(5, 5, [1])]),
        ({5: 1, 6: 1, 7: 1}, [(5, 7, [1])]),
        ({7: 1, 5: 2, 6: 3}, [(5, 7, [2, 3, 1])]),
        ({1: 1, 2: 1, 4: 1}, [(1, 2, [1]), (4, 4, [1])]),
        ({**dict.fromkeys(range(10), 1), 10: 2}, [(0, 9, [1]), (10, 10, [2])]),
        ({**dict.fromkeys(range(9), 1), 9: 2}, [(0, 9, [1] * 9 + [2])]),
        ({0: 2, 1: 0, **dict.fromkeys(range(2, 20), 1)}, [(0, 1, [2, 0]), (2, 19, [1])]),
    ],
)
def test_batches(types: dict[int, int], batches: list[tuple[int, int, list[int]]]) -> None:
    """Offsets without a gap are one batch; a long run of equal types is a batch with one type."""
    assert batches == [tuple(batch) for batch in to_batches(types)]


def test_batches_keep_every_offset() -> None:
    """Random acknowledgements: the batches contain each offset once, with its type, and no others."""
    rng = random.Random(7)
    for _ in range(200):
        types = {offset: rng.choice((0, 1, 1, 1, 2, 3)) for offset in range(80) if rng.random() < 0.8}
        found = {}
        for first, last, kinds in to_batches(types):
            assert len(kinds) in (1, last - first + 1)
            for index, offset in enumerate(range(first, last + 1)):
                assert offset not in found
                found[offset] = kinds[0] if len(kinds) == 1 else kinds[index]
        assert types == found


def test_records_of_the_acquired_ranges_only() -> None:
    """Records outside of the acquired ranges are dropped; the others have the delivery count of their range."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec(value=b"%d" % i) for i in range(10)]), [(2, 3, 1), (6, 8, 4)]))
    batch = share.collect()
    assert [(2, b"2", 1), (3, b"3", 1), (6, b"6", 4), (7, b"7", 4), (8, b"8", 4)] == [
        (record.offset, record.value, record.delivery_count) for record in batch.records.values()
    ]
    assert {} == batch.types


def test_offsets_without_a_record_are_gaps() -> None:
    """Acquired offsets that have no record, as after compaction, are acknowledged as gaps with the next request."""
    share = ShareHarness()
    first, second = build_batch([Rec(), Rec()], base_offset=0), build_batch([Rec()], base_offset=5)
    share.buffer.add(completed(first + second, [(0, 6, 1)]))
    batch = share.collect()
    assert ([0, 1, 5], {2: 0, 3: 0, 4: 0, 6: 0}) == (list(batch.records), batch.types)
    batch.set_all(ACCEPT)
    (taken,) = batch.take()
    assert frozenset({0, 1, 5}) == taken.offsets


def test_control_records_are_gaps() -> None:
    """Transaction markers are never returned; their offsets are gaps."""
    share = ShareHarness()
    marker = build_batch([Rec(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")], base_offset=2, control=True, transactional=True)
    share.buffer.add(completed(build_batch([Rec(), Rec()]) + marker, [(0, 2, 1)]))
    batch = share.collect()
    assert ([0, 1], {2: 0}) == (list(batch.records), batch.types)


def test_a_record_that_cannot_be_deserialized() -> None:
    """The records before it are returned, the error follows with the record's bytes, and after that the rest."""
    share = ShareHarness(value_deserializer=lambda data: int(data))
    values = [b"0", b"1", b"x", b"3"]
    share.buffer.add(completed(build_batch([Rec(value=value) for value in values]), [(0, 3, 1)]))
    batch = share.collect()
    assert ([0, 1], {}) == ([record.value for record in batch.returned()], batch.types)
    refused, error = share.collector.take_refused(), share.collector.take_error()
    assert isinstance(error, RecordDeserializationError)
    assert (2, b"x") == (error.offset, error.value)
    assert "the next poll releases the record" in str(error)
    assert refused is not None
    assert (True, [(2, b"x", 1)]) == (
        refused.refused,
        [(record.offset, record.value, record.delivery_count) for record in refused.records.values() if record],
    )
    rest = share.collect()
    assert ([3], {}) == ([record.value for record in rest.returned()], rest.types)
    assert not share.buffer.has_data()


def test_records_are_created_by_iteration() -> None:
    """In implicit mode, no object exists of the records of a whole range. Iteration creates records with a count."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec(value=b"a"), Rec(value=b"b")]), [(0, 1, 3)]))
    batch = share.collect()
    assert {0: None, 1: None} == batch.records
    found = [record for record in batch.returned() if isinstance(record, ShareRecord)]
    assert [(0, b"a", 3), (1, b"b", 3)] == [(record.offset, record.value, record.delivery_count) for record in found]


def test_a_whole_run_is_acknowledged_without_an_entry_for_each_offset() -> None:
    """The acknowledgement of a run is one value for all of its offsets, until a part of it has another type."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec()] * 4), [(0, 3, 1)]))
    batch = share.collect()
    batch.set_all(ACCEPT)
    assert isinstance(batch.types, UniformOffsets)
    assert batch.acknowledge(2, REJECT)
    (taken,) = batch.take()
    assert ([(0, 3, [1, 1, 3, 1])], True) == ([tuple(row) for row in to_batches(taken.types)], batch.done)


def test_a_part_of_a_run_stays_unacknowledged() -> None:
    """Records of a run that a `for` loop has not reached can be acknowledged after the others were sent."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec()] * 4), [(0, 3, 1)]))
    batch = share.collect()
    batch.set_all(ACCEPT, [0, 1])
    (first,) = batch.take()
    assert ({0: 1, 1: 1}, [2, 3]) == (first.types, batch.unacknowledged())
    batch.set_all(RELEASE)
    (second,) = batch.take()
    assert ({2: 2, 3: 2}, True) == (second.types, batch.done)


def test_uniform_offsets_are_a_mapping() -> None:
    """A mapping with one value equals the dictionary with the same entries, and has no other offsets."""
    mapping = UniformOffsets(range(5, 8), ACCEPT)
    assert dict.fromkeys([5, 6, 7], ACCEPT) == mapping
    assert (3, [5, 6, 7], None, {ACCEPT}) == (len(mapping), [*mapping], mapping.get(8), values_of(mapping))
    with pytest.raises(KeyError):
        mapping[4]


def test_records_of_a_part_of_a_batch() -> None:
    """Records that other members have acquired are left out."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec()] * 5), [(1, 3, 1)]))
    batch = share.collect()
    assert [1, 2, 3] == [record.offset for record in batch.returned()]
    assert {} == batch.types


def test_the_first_record_cannot_be_deserialized() -> None:
    """The batch has no record then, and the refused record is apart."""
    share = ShareHarness(value_deserializer=lambda data: int(data))
    share.buffer.add(completed(build_batch([Rec(value=b"x")]), [(0, 0, 1)]))
    batch = share.collect()
    refused = share.collector.take_refused()
    assert refused is not None
    assert ([0], {}, {}, False) == (list(refused.records), batch.records, batch.types, share.buffer.has_data())


def test_a_refused_record_of_another_member() -> None:
    """A record between two acquired ranges that a deserializer refuses is neither an error nor acknowledged."""
    share = ShareHarness(value_deserializer=lambda data: int(data))
    share.buffer.add(completed(build_batch([Rec(value=v) for v in (b"0", b"x", b"2")]), [(0, 0, 1), (2, 2, 1)]))
    found = [record.value for batch in (share.collect(), share.collect()) for record in batch.returned()]
    assert ([0, 2], None, None) == (found, share.collector.take_error(), share.collector.take_refused())


def test_a_deserializer_that_ends_the_program() -> None:
    """If an exception such as SystemExit ends the decoding, all records are released."""

    def leave(data: bytes) -> None:
        raise SystemExit

    share = ShareHarness(value_deserializer=leave)
    fetch = completed(build_batch([Rec(value=b"v")] * 2), [(0, 1, 1)])
    batch = AcquiredBatch(1, fetch.partition, fetch.topic_partition)
    with pytest.raises(SystemExit):
        share.collect_into(batch, fetch)
    assert {0: RELEASE, 1: RELEASE} == batch.types


def test_corrupt_records_are_rejected() -> None:
    """The records before the corrupt batch are returned, the rest is rejected, and the error follows."""
    share = ShareHarness()
    good, bad = build_batch([Rec(), Rec()]), bytearray(build_batch([Rec(), Rec()], base_offset=2))
    bad[-1] ^= 0xFF
    share.buffer.add(completed(good + bytes(bad), [(0, 3, 1)]))
    batch = share.collect()
    assert ([0, 1], {2: REJECT, 3: REJECT}) == (list(batch.records), batch.types)
    assert isinstance(share.collector.take_error(), CorruptRecordError)


def test_explicit_acknowledgements() -> None:
    """The last type of a record counts until it is sent; then the record cannot be acknowledged again."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec()] * 3), [(0, 2, 1)]))
    batch = share.collect()
    assert batch.acknowledge(0, ACCEPT)
    assert batch.acknowledge(0, REJECT)
    assert not batch.acknowledge(7, ACCEPT)
    assert [1, 2] == batch.unacknowledged()
    (taken,) = batch.take()
    assert {0: REJECT} == taken.types
    assert not batch.acknowledge(0, ACCEPT)
    assert [] == batch.take()
    assert not batch.done


def test_one_offset_from_two_leaders() -> None:
    """After a leader change two batches may have the same offset: a record belongs to the batch that delivered it."""
    share = ShareHarness(share_acknowledgement_mode="explicit")
    for _ in range(2):
        share.buffer.add(completed(build_batch([Rec()]), [(0, 0, 1)]))
    old, new = share.collect(), share.collect()
    record = new.records[0]
    assert (False, True) == (old.contains(record), new.contains(record))


def test_what_is_not_acknowledged_is_named() -> None:
    """The error of the next poll names how many records have no acknowledgement, and the first of them."""
    share = ShareHarness()
    share.buffer.add(completed(build_batch([Rec()] * 3), [(0, 2, 1)]))
    batch = share.collect()
    batch.acknowledge(0, ACCEPT)
    with pytest.raises(StateError, match=r"2 records .* first at offset 1 of t-0"):
        check_acknowledged([batch])
    batch.set_all(ACCEPT)
    check_acknowledged([batch])


def test_renewals() -> None:
    """A renewed record is returned again after the confirmation; one whose renewal failed is lost."""
    share = ShareHarness(share_acknowledgement_mode="explicit")
    share.buffer.add(completed(build_batch([Rec()] * 3), [(0, 2, 1)]))
    batch = share.collect()
    batch.acknowledge(0, RENEW)
    batch.acknowledge(1, RENEW)
    batch.acknowledge(2, ACCEPT)
    accepted, renewed = batch.take()
    assert ({2: ACCEPT}, {0: RENEW, 1: RENEW}) == (accepted.types, renewed.types)
    assert (False, True) == (accepted.renews, renewed.renews)
    assert (True, []) == (batch.has_renewals, list(batch.take_renewed()))
    batch.renewals_done([0], None)
    batch.renewals_done([1], KafkaError("expired"))
    assert [0] == [record.offset for record in batch.take_renewed()]
    assert (False, [0]) == (batch.has_renewals, batch.unacknowledged())


def test_renewals_of_a_run() -> None:
    """Locks are renewed only when they end soon, once, and their records can be acknowledged meanwhile."""
    share = ShareHarness(share_acknowledgement_mode="explicit")
    share.buffer.add(completed(build_batch([Rec()] * 3), [(0, 2, 1)]))
    fetch = share.buffer.pop(500)
    batch = AcquiredBatch(1, fetch.partition, fetch.topic_partition, locked_until=30_000.0)
    share.collect_into(batch, fetch)
    batch.acknowledge(0, ACCEPT)
    assert (None, 20_000.0) == (batch.take_renewals(19_999.0, 10_000.0), batch.next_renewal(19_999.0, 10_000.0))
    renewals = batch.take_renewals(20_000.0, 10_000.0)
    assert renewals is not None
    assert ({1: RENEW, 2: RENEW}, RequestKind.RENEWAL) == (renewals.types, renewals.kind)
    assert batch.take_renewals(20_000.0, 10_000.0) is None
    assert batch.acknowledge(1, ACCEPT)
    renewals.complete(None, LockTime(20_000.0, 50_000.0))
    assert ([2], 40_000.0) == (batch.unacknowledged(), batch.next_renewal(20_000.0, 10_000.0))
    assert batch.next_renewal(50_000.0, 10_000.0) > 1e12  # a lock that has expired is not renewed


def test_a_refused_renewal_is_not_repeated() -> None:
    """After INVALID_RECORD_STATE the lock still lasts; after another error, such as of a session, it does not."""
    for code, kind in ((Errors.INVALID_RECORD_STATE, RequestKind.ORDINARY), (122, RequestKind.LATE)):
        batch = AcquiredBatch(1, TopicIdPartition(b"t" * 16, 0), TP, locked_until=100.0)
        batch.add_records({0: object()})  # type: ignore[dict-item]
        renewals = batch.take_renewals(70.0, 40.0)
        assert renewals is not None
        renewals.complete(error_for(code, "renewing"))
        batch.acknowledge(0, ACCEPT)
        assert [kind] == [each.kind for each in batch.take(71.0)]


def test_late_acknowledgements_go_apart() -> None:
    """Those of records whose locks may have expired are not sent with others."""
    batch = AcquiredBatch(1, TopicIdPartition(b"t" * 16, 0), TP, locked_until=100.0)
    batch.add_records({0: object()})  # type: ignore[dict-item]
    batch.acknowledge(0, ACCEPT)
    assert [RequestKind.LATE] == [each.kind for each in batch.take(100.0)]


def test_a_late_renewal() -> None:
    """A record whose lock may have expired before its renewal is lost: another member may have accepted it."""
    batch = AcquiredBatch(1, TopicIdPartition(b"t" * 16, 0), TP, locked_until=100.0)
    for offset, sent_at in ((0, 99.0), (1, 100.0)):
        batch.renewing[offset] = object()  # type: ignore[assignment]
        batch.renewals_done([offset], None, LockTime(sent_at, sent_at + 50.0))
    assert [0] == list(batch.renewed)


def test_a_commit_waits_for_all_partitions() -> None:
    """The promise is done with the last result, and the first error of a partition counts."""
    commit, error = Commit(0.0), KafkaError("no")
    other = TopicPartition("t", 1)
    for tp in (TP, TP, other):
        commit.add(tp)
    commit.complete(TP, error)
    commit.complete(TP, None)
    assert (False, frozenset({other})) == (commit.promise.done, commit.unfinished())
    commit.complete(other, None)
    assert {TP: error, other: None} == commit.promise.result()


def test_acknowledgements_of_several_polls() -> None:
    """Those of disjoint ranges are not taken apart. Of two acknowledgements of one offset, the later one counts."""
    first, second = UniformOffsets(range(3), 1), UniformOffsets(range(5, 8), 2)
    assert [(0, 2, [1]), (5, 7, [2])] == merged_batches([second, first])
    assert [(0, 2, [1, 1, 3])] == merged_batches([first, {2: 3}])
    assert [(0, 2, [2])] == merged_batches([first, UniformOffsets(range(3), 2)])
