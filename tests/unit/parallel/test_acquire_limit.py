"""AcquireLimit: how many records a run with a share consumer acquires."""

from __future__ import annotations

from kconsumer.parallel.acquire_limit import AcquireLimit


def test_two_records_for_each_worker() -> None:
    """A run begins with two records for each worker, or with fewer if no more may be in flight."""
    limits = [AcquireLimit(8, 1000, careful=False), AcquireLimit(8, 5, careful=False), AcquireLimit(1, 1, careful=True)]
    assert [(16, 8), (5, 4), (1, 0)] == [(limit.value(0.0), limit.low(0.0)) for limit in limits]


def test_the_records_of_a_second() -> None:
    """Quick handlers get the records of a second, up to the maximum; slow ones two for each worker again."""
    limit = AcquireLimit(8, 1000, careful=False)
    limit.finished(0, 1000.0)
    limit.finished(10, 1050.0)
    assert 16 == limit.value(1050.0)
    limit.finished(30, 1100.0)
    assert 300 == limit.value(1100.0)
    limit.finished(1030, 1200.0)
    assert 1000 == limit.value(1200.0)
    limit.finished(1031, 1300.0)
    assert 16 == limit.value(1300.0)


def test_records_that_wait_for_a_retry() -> None:
    """If a failure ends the run, they count before the first record is finished, and half afterwards."""
    limit = AcquireLimit(8, 1000, careful=True)
    limit.received([1], 10.0)
    found = [limit.with_retries(10.0)]
    limit.finished(1, 20.0)
    found += [limit.with_retries(20.0), AcquireLimit(8, 1000, careful=False).with_retries(0.0)]
    assert [16, 32, 1000] == found


def test_a_group_without_renewals() -> None:
    """No records wait for workers, unless handlers are quick."""
    limit = AcquireLimit(8, 1000, careful=False)
    limit.without_renewals()
    assert 8 == limit.value(0.0)
    limit.finished(0, 1000.0)
    limit.finished(30, 1100.0)
    assert 300 == limit.value(1100.0)


def test_a_careful_run_begins_with_one_record() -> None:
    """If that is its first delivery, no other run has failed with it, and the run continues as others do."""
    limit = AcquireLimit(8, 1000, careful=True)
    assert 1 == limit.value(0.0)
    limit.received([], 5.0)
    assert 1 == limit.value(5.0)
    limit.received([1], 10.0)
    assert 16 == limit.value(10.0)


def test_a_record_that_was_delivered_before() -> None:
    """It must be finished before a careful run continues as others do. Until then, one more is acquired per second."""
    limit = AcquireLimit(8, 1000, careful=True)
    limit.received([2], 10.0)
    assert [1, 1, 2, 16] == [limit.value(now) for now in (10.0, 1009.0, 1010.0, 60_000.0)]
    limit.received([1], 2000.0)
    assert 2 == limit.value(2000.0)
    limit.finished(1, 2001.0)
    assert 16 == limit.value(2001.0)
