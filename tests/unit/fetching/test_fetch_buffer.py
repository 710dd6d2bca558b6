"""The fetch buffer: its order, parked and dropped fetches, and its byte count."""

from __future__ import annotations

from kconsumer.fetching.buffer import CompletedFetch, FetchBuffer, FetchChain
from kconsumer.state.cluster import LeaderAndEpoch
from kconsumer.state.partition import FetchPosition, PartitionState
from kconsumer.types import Node, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def chain(buffer: FetchBuffer, tp: TopicPartition, offset: int = 0) -> FetchChain:
    state = PartitionState()
    state.seek(FetchPosition(offset))
    assert state.position is not None
    return buffer.chain(tp, state, state.position)


def add(buffer: FetchBuffer, to: FetchChain, start: int, end: int, size: int = 10) -> CompletedFetch:
    fetch = CompletedFetch(to, start, size=size)
    buffer.append(fetch, end)
    return fetch


def drain(buffer: FetchBuffer) -> list[CompletedFetch]:
    out = []
    while (fetch := buffer.peek()) is not None:
        out.append(fetch)
        fetch.chain.position = fetch.chain.next_offset or 0
        buffer.pop(fetch)
    return out


def test_order_of_arrival() -> None:
    """Fetches are read in the order of their arrival, across partitions."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    fetches = [add(buffer, a, 0, 5), add(buffer, b, 0, 5), add(buffer, a, 5, 9), add(buffer, b, 5, 9)]
    assert fetches == drain(buffer)
    assert not buffer.has_data()


def test_head_stays_until_finished() -> None:
    """The fetch that is being read stays first until its end, whatever arrives."""
    buffer = FetchBuffer(1000)
    first = add(buffer, chain(buffer, A), 0, 5)
    assert first is buffer.peek()
    add(buffer, chain(buffer, B), 0, 5)
    assert first is buffer.peek()


def test_bytes_are_counted_until_read_or_dropped() -> None:
    """Waiting bytes increase with each arrival and decrease when data is read or dropped."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    first = add(buffer, a, 0, 5, size=100)
    add(buffer, a, 5, 9, size=50)
    add(buffer, b, 0, 5, size=7)
    assert (157, 150, 7) == (buffer.waiting_bytes, buffer.buffered_bytes(A), buffer.buffered_bytes(B))
    assert first is buffer.peek()
    buffer.pop(first)
    assert (57, 50) == (buffer.waiting_bytes, buffer.buffered_bytes(A))
    buffer.drop(a)
    assert (7, 0) == (buffer.waiting_bytes, buffer.buffered_bytes(A))
    buffer.clear()
    assert 0 == buffer.waiting_bytes


def test_same_position_continues_the_chain() -> None:
    """A chain of fetches is kept while assignment and position match it."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    assert a is buffer.chain(A, a.state, FetchPosition(0))


def test_other_position_drops_the_chain() -> None:
    """After a seek the chain and its data are dropped, and a new chain starts at the position."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    add(buffer, a, 0, 5)
    new = buffer.chain(A, a.state, FetchPosition(77))
    assert new is not a
    assert (77, 77) == (new.position, new.next_offset)
    assert (None, 0) == (buffer.peek(), buffer.waiting_bytes)
    assert not buffer.accepts(a, 5, a.leader)


def test_new_assignment_drops_the_chain() -> None:
    """Under a new assignment the same partition and offset begin another chain."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    add(buffer, a, 0, 5)
    assert chain(buffer, A) is not a
    assert buffer.peek() is None


def test_expects_only_the_end_of_a_live_chain() -> None:
    """Only a fetch that starts at the end of the chain is accepted."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    assert buffer.accepts(a, 0, a.leader)
    add(buffer, a, 0, 5)
    assert [False, True, False] == [buffer.accepts(a, offset, a.leader) for offset in (0, 5, 9)]


def test_unknown_end_is_learned_when_all_is_read() -> None:
    """A chain whose end could not be derived continues at the position once it is empty."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    fetch = CompletedFetch(a, 0, size=10)
    buffer.append(fetch, None)
    assert fetch is buffer.peek()
    a.position = 42
    buffer.pop(fetch)
    assert 42 == a.next_offset


def test_parked_chain_lets_others_pass_and_keeps_its_order() -> None:
    """The fetches of a paused partition are parked; after resume they are read first and in order."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    first, second = add(buffer, a, 0, 5), add(buffer, a, 5, 9)
    other = add(buffer, b, 0, 5)
    assert first is buffer.peek()
    a.state.pause()
    buffer.set_aside_paused(a)
    assert other is buffer.peek()
    buffer.restore_paused()
    assert buffer.has_paused
    late = add(buffer, a, 9, 12)
    a.state.resume()
    buffer.restore_paused()
    assert not buffer.has_paused
    assert [other, first, second, late] == drain(buffer)


def test_only_parked_data_is_no_data() -> None:
    """`has_data` is True if a collect can return anything."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    add(buffer, a, 0, 5)
    a.state.pause()
    buffer.peek()
    buffer.set_aside_paused(a)
    assert not buffer.has_data()
    assert 10 == buffer.waiting_bytes
    buffer.drop_paused()
    assert (False, 0) == (buffer.has_paused, buffer.waiting_bytes)


def test_retain() -> None:
    """Chains that are not retained are removed with their place in the order, also the one being read."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    add(buffer, a, 0, 5)
    kept = add(buffer, b, 0, 5)
    buffer.peek()
    buffer.retain(lambda chain: chain is b)
    assert [kept] == drain(buffer)


def test_settled_lists_read_and_dropped_once() -> None:
    """Each fetch that is read to its end or dropped is reported once, with its partition."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    buffer.account(None, 0.0)
    buffer.take_dirty()
    read, dropped = add(buffer, a, 0, 5), add(buffer, b, 0, 5)
    buffer.peek()
    buffer.pop(read)
    buffer.drop(b)
    assert [read, dropped] == buffer.finished
    buffer.account(None, 0.0)
    assert [] == buffer.finished
    assert [A, B] == list(buffer.take_dirty())
    assert {} == buffer.take_dirty()


def test_fetch_of_an_old_leader_is_not_expected() -> None:
    """A response of an earlier leader does not continue a chain that is read from another leader."""
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    assert not buffer.accepts(a, 0, LeaderAndEpoch(Node(1, "b1", 9092), 7))


def test_error_is_replaced_by_the_next_response() -> None:
    """An error stays at the end of its chain, without a byte count, until another response from that offset replaces
    it.
    """
    buffer = FetchBuffer(1000)
    a = chain(buffer, A)
    add(buffer, a, 0, 5)
    first, second = (CompletedFetch(a, 5, error_code=code) for code in (29, 2))
    buffer.append(first, 5)
    buffer.append(second, 5)
    assert (1, second, 5) == (a.pending_fetches, a.error, a.next_offset)
    good = add(buffer, a, 5, 9)
    assert (2, None) == (a.pending_fetches, a.error)
    assert [first, second] == buffer.finished
    assert good is drain(buffer)[-1]


def test_postponed_error_lets_others_pass() -> None:
    """An error that was raised is raised again after all other waiting fetches."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    error = CompletedFetch(a, 0, error_code=29)
    buffer.append(error, 0)
    other = add(buffer, b, 0, 5)
    assert error is buffer.peek()
    buffer.requeue(error)
    assert other is buffer.peek()
    buffer.pop(other)
    assert error is buffer.peek()


def test_pausing_again_and_again_leaves_no_turns_behind() -> None:
    """Queue entries of parked fetches are skipped and do not accumulate."""
    buffer = FetchBuffer(1000)
    a, b = chain(buffer, A), chain(buffer, B)
    add(buffer, b, 0, 5)
    buffer.peek()
    kept = [add(buffer, a, 0, 5), add(buffer, a, 5, 9)]
    for _ in range(1000):
        a.state.pause()
        buffer.set_aside_paused(a)
        a.state.resume()
        buffer.restore_paused()
    assert len(buffer.turns) < 200
    assert kept == drain(buffer)[1:]
