"""Random operations on a log of the cluster model, compared with a list of the records that a consumer must read."""

from __future__ import annotations

import random

import pytest

from kconsumer.decode import decode_batches
from kconsumer.testing.batches import abort_marker, build_batch, commit_marker
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS

PRODUCERS = (1, 2, 3)


class Expected:
    """The records of a log: offset, value, and the number of their transaction or None."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, int | None]] = []
        self.transactions: list[tuple[int, int, int | None, bool]] = []  # producer, first offset, marker, committed
        self.end = 0

    def open_transaction(self, producer: int) -> int | None:
        """Returns the number of the open transaction of a producer, or None."""
        found = [
            number
            for number, (owner, _, marker, _) in enumerate(self.transactions)
            if owner == producer and marker is None
        ]
        return found[0] if found else None

    def append(self, values: list[bytes], producer: int | None) -> None:
        """Add records of a producer's transaction, or without a transaction."""
        number = None
        if producer is not None:
            number = self.open_transaction(producer)
            if number is None:
                number = len(self.transactions)
                self.transactions.append((producer, self.end, None, False))
        for value in values:
            self.records.append((self.end, value, number))
            self.end += 1

    def finish(self, producer: int, committed: bool) -> None:
        """Add a marker. Without an open transaction it has no effect."""
        number = self.open_transaction(producer)
        if number is not None:
            self.transactions[number] = (producer, self.transactions[number][1], self.end, committed)
        self.end += 1

    def truncate(self, end: int) -> None:
        """Remove what is at or after an offset. The offset is the start of a batch."""
        self.records = [record for record in self.records if record[0] < end]
        self.transactions = [
            (producer, first, marker, committed) if marker is None or marker < end else (producer, first, None, False)
            for producer, first, marker, committed in self.transactions
        ]
        for number, (producer, first, marker, _) in enumerate(self.transactions):
            if first >= end and marker is None:
                self.transactions[number] = (producer, first, first, True)  # it never began
        self.end = min(self.end, end)

    def stable_end(self, high_watermark: int, start: int) -> int:
        """Returns the last stable offset."""
        unstable = [
            first for _, first, marker, _ in self.transactions if marker is None or marker >= high_watermark > first
        ]
        return min([max(start, first) for first in unstable] + [high_watermark])

    def readable(self, start: int, end: int, *, committed: bool) -> list[tuple[int, bytes]]:
        """Returns offset and value of the records that a consumer reads."""
        return [
            (offset, value)
            for offset, value, number in self.records
            if start <= offset < end and (not committed or number is None or self.transactions[number][3])
        ]


def read_all(log: Log, draw: random.Random, *, committed: bool) -> list[tuple[int, bytes]]:
    """Returns offset and value of the records that fetches of random sizes return."""
    found: list[tuple[int, bytes]] = []
    offset = log.start
    end = log.last_stable_offset if committed else log.high_watermark
    while offset < end:
        read = log.read(offset, draw.choice((1, 100, 300, 10_000)), end)
        if not read.data:
            break
        aborted = [(ended.producer_id, ended.first_offset) for ended in log.aborted_between(offset, read.upper_bound)]
        level = "read_committed" if committed else "read_uncommitted"
        records = decode_batches(
            read.data, start_offset=offset, isolation_level=level, aborted_transactions=aborted if committed else ()
        )
        found += [(record.offset, record.value) for record in records]
        (position,) = records.next_offsets().values()
        offset = position.offset
    return found


@pytest.mark.parametrize("seed", range(40))
def test_random_operations(seed: int) -> None:
    """Whatever happens to a log, consumers of both isolation levels read what they must, and the offsets are right."""
    draw = random.Random(seed)
    log = Log({**TOPIC_DEFAULTS, "index.interval.bytes": "200", "segment.bytes": draw.choice(("400", "1000000"))})
    expected = Expected()
    epoch = 0
    for step in range(60):
        choice = draw.random()
        producer = draw.choice(PRODUCERS)
        if choice < 0.5:
            values = [b"%d-%d" % (step, number) for number in range(draw.randint(1, 4))]
            owner = producer if draw.random() < 0.7 else None
            fields = {} if owner is None else {"producer_id": owner, "producer_epoch": 0}
            log.append(build_batch(values, transactional=owner is not None, **fields), epoch, step)
            expected.append(values, owner)
        elif choice < 0.75:
            committed = draw.random() < 0.5
            log.append((commit_marker if committed else abort_marker)(0, producer), epoch, step)
            expected.finish(producer, committed)
        elif choice < 0.9:
            log.set_high_watermark(max(log.high_watermark, draw.choice([log.end, *_boundaries(log)])))
        elif choice < 0.95:
            end = draw.choice([offset for offset in [*_boundaries(log), log.end] if offset >= log.high_watermark])
            log.truncate(end)
            expected.truncate(end)
            epoch += 1
            log.epochs.assign(epoch, log.end)
        else:
            log.delete_before(draw.randint(log.start, log.high_watermark))
        assert expected.end == log.end
        assert expected.stable_end(log.high_watermark, log.start) == log.last_stable_offset
        assert epoch == 0 or (epoch, log.end) == log.end_offset_for(epoch)
    for committed in (False, True):
        end = log.last_stable_offset if committed else log.high_watermark
        assert expected.readable(log.start, end, committed=committed) == read_all(log, draw, committed=committed)


def _boundaries(log: Log) -> list[int]:
    """Returns the offsets at which batches begin."""
    return [batch.base_offset for batch in log.batches(log.start)]
