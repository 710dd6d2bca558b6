"""The metrics of the fetches of a share consumer: which events are recorded, in which units."""

from __future__ import annotations

from math import isnan

import pytest

from kconsumer.schema.share_group import AcquiredRecords
from kconsumer.share.acknowledgements import AcquiredBatch
from kconsumer.share.metrics import GROUP
from support.harnesses.share_harness import LOCK_MS, ShareHarness

RECORD_BYTES = 8  # of each record of the harness

# All of Java's `ShareFetchMetricsRegistry`.
NAMES = {
    "acknowledgements-error-rate",
    "acknowledgements-error-total",
    "acknowledgements-send-rate",
    "acknowledgements-send-total",
    "bytes-consumed-rate",
    "bytes-consumed-total",
    "fetch-latency-avg",
    "fetch-latency-max",
    "fetch-rate",
    "fetch-size-avg",
    "fetch-size-max",
    "fetch-throttle-time-avg",
    "fetch-throttle-time-max",
    "fetch-total",
    "records-consumed-rate",
    "records-consumed-total",
    "records-per-request-avg",
    "records-per-request-max",
}


def values(share: ShareHarness, *names: str) -> list[float]:
    """Returns the values of these metrics now."""
    found = {m.name: v for m, v in share.metrics.snapshot(share.now).items() if m.group == GROUP}
    return [found[name] for name in names]


def test_names_are_kafkas() -> None:
    """The group has exactly the 18 metrics of Java."""
    assert NAMES == {m.name for m in ShareHarness().metrics.snapshot(0.0) if m.group == GROUP}


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_sums_of_a_response(mode: str) -> None:
    """Size and number of records are recorded once per response, over its partitions, when all was read. Only acquired
    records count; each poll adds what it takes to the totals."""
    share = ShareHarness(assigned=[0, 2], share_acknowledgement_mode=mode)
    share.manager.want_records()
    share.throttle_ms = 9
    share.acquire(share.request(), p0=[(0, 4)], p2=[(0, 1), (4, 6)])
    assert [9, 9] == values(share, "fetch-throttle-time-avg", "fetch-throttle-time-max")
    share.collect()
    assert [5, 5 * RECORD_BYTES] == values(share, "records-consumed-total", "bytes-consumed-total")
    assert isnan(*values(share, "fetch-size-max"))
    share.collect()
    assert [10, 10 * RECORD_BYTES] == values(share, "records-consumed-total", "bytes-consumed-total")
    assert [10, 10] == values(share, "records-per-request-avg", "records-per-request-max")
    assert [10 * RECORD_BYTES] * 2 == values(share, "fetch-size-avg", "fetch-size-max")


def test_dropped_data() -> None:
    """Data whose locks have expired counts as read, so that the sums of its response are recorded."""
    share = ShareHarness(assigned=[0, 2])
    share.manager.want_records()
    share.acquire(share.request(), p0=[(0, 4)], p2=[(0, 4)])
    share.collect()
    share.now += LOCK_MS
    share.buffer.drop_expired(share.now)
    assert [5, 5] == values(share, "records-consumed-total", "records-per-request-avg")


def test_divided_data() -> None:
    """The data of a response that several polls take is one response."""
    share = ShareHarness(assigned=[0])
    share.manager.want_records()
    share.acquire(share.request(), p0=[(0, 4), (5, 9)])
    fetch = share.buffer.pop(500)
    head = fetch.split(5)
    assert head is not None
    assert [AcquiredRecords(first_offset=5, last_offset=9, delivery_count=1)] == list(fetch.acquired)
    for part, total in ((head, 5), (fetch, 10)):
        share.collect_into(AcquiredBatch(1, part.partition, part.topic_partition), part)
        assert [total] == values(share, "records-consumed-total")
    assert [10] == values(share, "records-per-request-avg")


def test_a_record_that_cannot_be_deserialized() -> None:
    """The record is not counted; the data after it, which the next poll takes, belongs to the same response."""

    def deserialize(_data: bytes) -> object:
        calls.append(None)
        if len(calls) in (3, 4):  # the third record, which is tried twice
            raise ValueError("third")
        return 0

    calls: list[None] = []
    share = ShareHarness(assigned=[0], value_deserializer=deserialize)
    share.manager.want_records()
    share.acquire(share.request(), p0=[(0, 4)])
    share.collect()
    assert [2, 2 * RECORD_BYTES] == values(share, "records-consumed-total", "bytes-consumed-total")
    assert isnan(*values(share, "records-per-request-avg"))
    share.collector.take_error()
    share.collect()
    assert [4, 4, 4 * RECORD_BYTES] == values(
        share, "records-consumed-total", "records-per-request-avg", "fetch-size-max"
    )
