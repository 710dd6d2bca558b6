"""Which share consumers fetch ahead, and what the manager sends for them."""

from __future__ import annotations

from kconsumer.share.fetch_ahead import MIN_QUICK_BATCHES, POLLS_AHEAD, FetchAhead
from support.harnesses.share_harness import LOCK_MS, ShareHarness

QUICK_MS = LOCK_MS / 100


def polls(ahead: FetchAhead, *busy_ms: float) -> list[bool]:
    """Returns, for polls that follow batches of these durations, whether the consumer may fetch ahead."""
    now, found = 0.0, []
    for ms in busy_ms:
        ahead.records_returned(250, 500, now)
        now += ms
        found.append(ahead.poll_began(now, LOCK_MS))
    return found


def test_quick_batches_in_a_row() -> None:
    """A consumer fetches ahead after some quick batches in a row. One slow batch ends that."""
    quick = [QUICK_MS] * (MIN_QUICK_BATCHES - 1)
    assert [*[False] * len(quick), True, True, False] == polls(FetchAhead(), *quick, QUICK_MS, QUICK_MS, QUICK_MS + 1)


def test_small_batches() -> None:
    """After a small batch there may be no more records, so nothing is fetched ahead."""
    ahead = FetchAhead()
    polls(ahead, *[0.0] * MIN_QUICK_BATCHES)
    ahead.records_returned(249, 500, 0.0)
    assert not ahead.poll_began(0.0, LOCK_MS)


def test_polls_without_records() -> None:
    """A poll without records says nothing about the caller."""
    ahead = FetchAhead()
    assert not any(ahead.poll_began(now, LOCK_MS) for now in range(20))
    polls(ahead, *[0.0] * MIN_QUICK_BATCHES)
    assert ahead.poll_began(1e9, LOCK_MS)
    ahead.reset()
    assert not ahead.poll_began(1e9, LOCK_MS)


def test_one_fetch_ahead() -> None:
    """When the poll has its records, one more fetch is sent, for which the broker does not wait."""
    share = ShareHarness(assigned=[0], fetch_max_wait_ms=300)
    share.manager.fetch_ahead()
    share.manager.want_records()
    request = share.request()
    assert 300 == request.message.max_wait_ms
    share.acquire(request, p0=[(0, 2)])
    request = share.request()
    assert 0 == request.message.max_wait_ms
    share.acquire(request, p0=[(3, 5)])
    assert ({}, False) == (share.requests(), share.manager.needs_poll)


def test_a_fetch_ahead_is_for_several_polls() -> None:
    """A fetch ahead requests the records of several polls. Polls return its ranges one after the other, undivided."""
    share = ShareHarness(assigned=[0], max_poll_records=10)
    share.fetched(p0=[(90, 99)])
    share.manager.fetch_ahead()
    request = share.request()
    assert (10 * POLLS_AHEAD, 10) == (request.message.max_records, request.message.batch_size)
    share.acquire(request, p0=[(0, 9), (10, 12), (13, 19), (20, 29), (30, 39)])
    ranges = []
    while share.buffer.has_data():
        ranges.append([(row.first_offset, row.last_offset) for row in share.buffer.pop(10).acquired])
    assert [[(0, 9)], [(10, 12), (13, 19)], [(20, 29)], [(30, 39)]] == ranges


def test_a_fetch_for_one_poll_is_not_divided() -> None:
    """A poll that waits for records returns all that its own fetch has acquired from a partition."""
    share = ShareHarness(assigned=[0], max_poll_records=10)
    share.manager.want_records()
    request = share.request()
    assert (10, 10) == (request.message.max_records, request.message.batch_size)
    share.acquire(request, p0=[(0, 9), (10, 19)])
    assert (2, False) == (len(share.buffer.pop(10).acquired), share.buffer.has_data())
