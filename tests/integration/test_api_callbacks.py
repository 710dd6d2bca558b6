"""Rebalance callbacks: their order and arguments, what may be called inside them, and errors they raise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer import Consumer, RebalanceListener, TopicPartition
from kconsumer.errors import StateError, WakeupError
from support.brokers.kafka import Kafka
from support.harnesses.inside import engine_of
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, read, tps, values
from support.harnesses.stopwatch import Stopwatch

# A coordinator of KIP-848 may assign nothing at first and the topic later; test_consumer_protocol.py allows for that.
pytestmark = pytest.mark.classic_protocol

New = Callable[..., Consumer]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


@pytest.fixture
def member(topic_name: str, new_consumer: New, engine: dict[str, Any]) -> New:
    """Returns a function that makes members of one group. Classic members use the eager protocol by default."""
    eager = {} if "group_protocol" in engine else {"assignors": [EAGER]}

    def make(*topics: str, **options: Any) -> Consumer:
        chosen = {"group_id": topic_name, "enable_auto_commit": False, **eager, **options}
        return new_consumer(*topics, **chosen)

    return make


# --- order and arguments ---


def test_eager_callbacks_of_a_lone_member(topic: str, member: New) -> None:
    """The first join does not call on_revoke and calls on_assign once with all partitions, sorted. A rejoin revokes and
    assigns all of them; close() revokes them.
    """
    both = tps(topic, 0, 1)
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    assert [] == listener.calls
    await_assignment(consumer, *both)
    assert [("assigned", both)] == listener.calls
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert [("revoked", both), ("assigned", both)] == listener.calls[1:]
    consumer.close()
    assert [("revoked", both)] == listener.calls[3:]
    assert {threading.get_ident()} == listener.threads


def test_cooperative_callbacks_of_a_lone_member(kafka: Kafka, topic: str, member: New) -> None:
    """on_revoke gets only the partitions that were taken away, on_assign only the added ones. If nothing was added,
    on_assign is called with an empty list; on_revoke is never called with one.
    """
    other = kafka.create_topic(f"{topic}-other")
    both, third = tps(topic, 0, 1), tps(other, 0)
    listener = Recorder()
    consumer = member(assignors=[COOPERATIVE])
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *both)
    consumer.subscribe([topic, other], listener=listener)
    await_assignment(consumer, *both, *third)
    assert [("assigned", both), ("assigned", third)] == listener.calls
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: listener.count("assigned") == 3)
    consumer.subscribe([other], listener=listener)
    await_assignment(consumer, *third)
    poll_until(consumer, lambda: listener.count("assigned") == 4)
    assert [("assigned", ()), ("revoked", both), ("assigned", ())] == listener.calls[2:]


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_callbacks_when_a_second_member_joins(topic: str, member: New, assignor: str) -> None:
    """A partition that moves is revoked from its old owner before it is assigned to the new one. Under the eager
    protocol all partitions are revoked.
    """
    zero, one = tps(topic, 0, 1)
    listeners = Recorder(), Recorder()
    consumers = [member(assignors=[assignor]) for _ in listeners]
    consumers[0].subscribe([topic], listener=listeners[0])
    await_assignment(consumers[0], zero, one)
    consumers[1].subscribe([topic], listener=listeners[1])
    poll_until(consumers, lambda: [1, 1] == [len(consumer.assignment()) for consumer in consumers])
    poll_until(consumers, lambda: listeners[1].calls and listeners[1].calls[-1][1] and len(listeners[0].calls) >= 3)
    (kept,), (moved,) = (consumer.assignment() for consumer in consumers)
    assert ("assigned", (moved,)) == listeners[1].calls[-1]
    if assignor == EAGER:
        assert [("revoked", (zero, one)), ("assigned", (kept,))] == listeners[0].calls[1:3]
    else:
        assert [("revoked", (moved,)), ("assigned", ())] == listeners[0].calls[1:3]


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_commits_and_joins_around_the_callbacks(topic: str, member: New, assignor: str) -> None:
    """The eager protocol commits, calls on_revoke in the old generation, joins, and calls on_assign in the new
    generation.

    The cooperative protocol joins, commits, and calls on_revoke and on_assign in the new generation; after another join
    it calls on_assign in the generation after that.
    """
    both = tps(topic, 0, 1)
    story: list[tuple[str, tuple[TopicPartition, ...], int, list[int | None], bool]] = []

    def note(kind: str) -> Callable[[Consumer, tuple[TopicPartition, ...]], None]:
        def hook(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
            committed = [at and at.offset for at in consumer.committed(partitions).values()]
            owned = consumer.assignment().issuperset(partitions)
            story.append((kind, partitions, consumer.group_metadata().generation_id, committed, owned))

        return hook

    first = member(assignors=[assignor], enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    first.subscribe([topic], listener=Recorder(assigned=note("assigned"), revoked=note("revoked")))
    read(first, 20)
    second = member(topic, assignors=[assignor])
    steps = 3 if assignor == EAGER else 4
    poll_until([first, second], lambda: len(story) == steps and len(second.assignment()) == 1)
    (moved,) = second.assignment()
    (kept,) = first.assignment()
    g = story[0][2]
    expected = {
        EAGER: [("revoked", both, g, [10, 10], True), ("assigned", (kept,), g + 1, [10], True)],
        COOPERATIVE: [
            ("revoked", (moved,), g + 1, [10], True),
            ("assigned", (), g + 1, [], True),
            ("assigned", (), g + 2, [], True),
        ],
    }
    assert [("assigned", both, g, [None, None], True), *expected[assignor]] == story


def test_callables_in_place_of_a_listener(topic: str, member: New) -> None:
    """on_assign= and on_revoke= work without a listener. on_revoke= is also called with lost partitions."""
    calls: list[tuple[str, Consumer, tuple[TopicPartition, ...]]] = []
    consumer = member()
    consumer.subscribe(
        [topic],
        on_assign=lambda c, p: calls.append(("assigned", c, p)),
        on_revoke=lambda c, p: calls.append(("revoked", c, p)),
    )
    both = tps(topic, 0, 1)
    await_assignment(consumer, *both)
    consumer.unsubscribe()
    assert [("assigned", consumer, both), ("revoked", consumer, both)] == calls


def test_listener_belongs_to_its_subscription(topic: str, member: New) -> None:
    """subscribe() without a listener removes the listener of the earlier subscription (Java 4.0 to 4.4)."""
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    consumer.subscribe([topic])
    await_assignment(consumer, *tps(topic, 0, 1))
    assert [] == listener.calls


def test_no_callbacks_for_assign(topic: str, member: New) -> None:
    """assign(), reassigning and close() call no listener."""
    listener = Recorder()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    consumer.unsubscribe()
    consumer.assign(tps(topic, 0))
    read(consumer, 10)
    consumer.assign(tps(topic, 1))
    consumer.close()
    assert [] == listener.calls


# --- the consumer inside a callback ---


def inside(member: New, topic: str, kind: str, action: Callable[[Consumer, tuple[TopicPartition, ...]], Any]) -> Any:
    """Call a function in the first callback of a kind. Returns the function's result."""
    results: list[Any] = []
    listener = Recorder(**{kind: lambda consumer, partitions: results.append(action(consumer, partitions))})
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    poll_until(consumer, lambda: all(consumer.position(tp) is not None for tp in tps(topic, 0, 1)))
    consumer.close()
    (result,) = results
    return result


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_consumer_is_usable_inside_a_callback(topic: str, member: New, kind: str) -> None:
    """assignment(), subscription(), positions, offsets, metadata and commits all work inside a callback (Java
    PlaintextConsumerCallbackTest).
    """
    both = tps(topic, 0, 1)

    def use(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        assert both == partitions
        assert frozenset(both) == consumer.assignment()
        assert frozenset({topic}) == consumer.subscription()
        assert dict.fromkeys(both, 0) == consumer.beginning_offsets(both)
        assert dict.fromkeys(both, 10) == consumer.end_offsets(both)
        assert 2 == len(consumer.partitions_for(topic))
        assert consumer.position(both[0]) in (0, 10)
        consumer.commit({both[1]: 3})
        assert 3 == consumer.committed(both)[both[1]].offset  # type: ignore[union-attr]
        with pytest.raises(StateError, match=r"unsubscribe\(\) first"):
            consumer.assign(both)

    assert inside(member, topic, kind, use) is None


def test_seek_and_pause_in_on_assign(topic: str, member: New) -> None:
    """Reading starts at a position set in on_assign, and a partition paused there is not read (Java
    testSeekPositionAndPauseNewlyAssignedPartition…).
    """
    zero, one = tps(topic, 0, 1)

    def place(consumer: Consumer, _partitions: object) -> None:
        consumer.seek(zero, 7)
        consumer.seek(one, 8)
        consumer.pause(one)

    consumer = member()
    consumer.subscribe([topic], listener=Recorder(assigned=place))
    assert numbered(3, 7) == values(read(consumer, 3))
    assert not consumer.poll(0.3)
    consumer.resume(one)
    assert numbered(2, 8) == values(read(consumer, 2))


def test_seek_to_end_in_on_assign(topic: str, member: New) -> None:
    """A lazy seek in on_assign wins over committed offsets."""
    first = member()
    first.assign(tps(topic, 0, 1))
    first.commit(dict.fromkeys(tps(topic, 0, 1), 2))
    consumer = member()
    consumer.subscribe([topic], on_assign=lambda c, partitions: c.seek_to_end(*partitions))
    await_assignment(consumer, *tps(topic, 0, 1))
    assert [10, 10] == [consumer.position(tp) for tp in tps(topic, 0, 1)]
    assert not consumer.poll(0.2)


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_commit_in_on_revoke_is_where_the_next_owner_starts(topic: str, member: New, assignor: str) -> None:
    """commit() in on_revoke succeeds during a rebalance under both protocols, and no record is read twice."""
    first = member(assignors=[assignor], max_poll_records=3)
    first.subscribe([topic], on_revoke=lambda c, _partitions: c.commit())
    seen = read(first, 6, max_records=3)
    second = member(topic, assignors=[assignor])
    seen += poll_until([first, second], lambda: len(second.assignment()) == 1)
    while len(seen) < 20:
        seen += [*first.poll(0.1), *second.poll(0.1)]
    expected = [(partition, offset) for partition in (0, 1) for offset in range(10)]
    assert expected == sorted((record.partition, record.offset) for record in seen)
    first.subscribe([topic])  # close() may run in the middle of a rebalance, in which the group accepts no commits


def test_commit_in_on_assign_is_where_reading_begins(topic: str, member: New) -> None:
    """Reading begins at the offsets that on_assign commits, because committed offsets are looked up after on_assign has
    returned.
    """

    def commit(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        consumer.end_offsets(partitions)
        consumer.commit(dict.fromkeys(partitions, 7))

    consumer = member()
    consumer.subscribe([topic], on_assign=commit)
    assert [7, 8, 9, 7, 8, 9] == [r.offset for r in sorted(read(consumer, 6), key=lambda r: r.partition)]


def test_state_of_partitions_while_on_assign_runs(topic: str, member: New) -> None:
    """No record is fetched or returned before on_assign has returned, even if it is slow or calls the consumer."""

    def linger(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> list[int]:
        for tp in partitions:
            consumer.position(tp)
        for _ in range(3):
            consumer.end_offsets(partitions)
            time.sleep(0.05)
        return [state.buffered_bytes for state in consumer.partition_states().values()]

    assert [0, 0] == inside(member, topic, "assigned", linger)


def test_subscription_changed_inside_a_callback(kafka: Kafka, topic: str, member: New) -> None:
    """subscribe() in on_assign changes the assignment in the next polls."""
    other = kafka.create_topic(f"{topic}-other")
    kafka.produce(other, [b"other"])
    consumer = member()
    consumer.subscribe([topic], on_assign=lambda c, _partitions: c.subscribe([other]))
    assert [b"other"] == values(read(consumer, 1))
    assert {*tps(other, 0)} == consumer.assignment()


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_pausing_and_rebalances(topic: str, member: New, assignor: str) -> None:
    """An eager rebalance resumes paused partitions, because it revokes all of them. A cooperative rebalance leaves
    retained partitions paused (Java testPauseStateNotPreservedByRebalance).
    """
    zero, one = tps(topic, 0, 1)
    listener = Recorder()
    consumer = member(assignors=[assignor])
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, zero, one)
    consumer.pause(zero)
    consumer.enforce_rebalance()
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert (frozenset() if assignor == EAGER else frozenset({zero})) == consumer.paused()


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
@pytest.mark.parametrize("kind", ["assigned", "revoked", "revoked at close"])
def test_leaving_inside_a_callback(kafka: Kafka, topic: str, member: New, kind: str, how: str) -> None:
    """close() and unsubscribe() inside a callback leave the group for good. on_revoke runs once for each on_assign, the
    surrounding poll returns nothing, and the error of a further call names the reason.
    """
    kind, _, closing = kind.partition(" at ")
    listener = Recorder(**{kind: lambda consumer, _partitions: getattr(consumer, how)()})
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    if kind == "revoked":
        await_assignment(consumer, *tps(topic, 0, 1))
    if closing:
        consumer.close()
    else:
        if kind == "revoked":
            consumer.enforce_rebalance()
        watch = Stopwatch()
        assert not consumer.poll(30)
        assert watch.seconds() < 10
    assert ["assigned", "revoked"] == listener.kinds
    assert "EMPTY" == kafka.group_state(topic)
    with pytest.raises(StateError, match="closed" if closing or how == "close" else "subscribe"):
        consumer.poll(0)


@pytest.mark.parametrize("how", ["close", "unsubscribe"])
def test_leaving_inside_a_commit_callback(topic: str, member: New, how: str) -> None:
    """close() and unsubscribe() inside a commit callback leave the group, and the poll that ran the callback returns at
    once with no records.
    """
    consumer = member()
    consumer.assign(tps(topic, 0))
    consumer.commit_async({TopicPartition(topic, 0): 1}, lambda *_: getattr(consumer, how)())
    consumer.pause(*tps(topic, 0))
    watch = Stopwatch()
    assert not consumer.poll(30)
    assert watch.seconds() < 10
    with pytest.raises(StateError, match="closed" if how == "close" else "subscribe"):
        consumer.poll(0)


# --- errors ---


class CallbackError(Exception):
    """The error that the callbacks of these tests raise."""


def raising(*kinds: str) -> Recorder:
    """Returns a listener whose callbacks of the given kinds raise when they are called for the first time."""
    left = list(kinds)

    def fail(kind: str) -> Callable[[Consumer, tuple[TopicPartition, ...]], None]:
        def hook(_consumer: Consumer, _partitions: tuple[TopicPartition, ...]) -> None:
            if kind in left:
                left.remove(kind)
                raise CallbackError(kind)

        return hook

    return Recorder(**{kind: fail(kind) for kind in kinds})


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_error_of_a_callback_is_raised_and_the_member_continues(
    kafka: Kafka, topic: str, member: New, kind: str, assignor: str
) -> None:
    """poll() raises the error of a callback once and unchanged. The rebalance completes, and reading and committing
    continue.
    """
    other = kafka.create_topic(f"{topic}-other")
    consumer = member(assignors=[assignor])
    listener = raising(kind)
    consumer.subscribe([topic, other], listener=listener)
    if kind == "revoked":
        await_assignment(consumer, *tps(topic, 0, 1), *tps(other, 0))
        consumer.subscribe([topic], listener=listener)
    with pytest.raises(CallbackError, match=kind):
        poll_until(consumer, lambda: False)
    poll_until(consumer, lambda: len(consumer.assignment()) == (3 if kind == "assigned" else 2))
    poll_until(consumer, engine_of(consumer)._group_idle)  # a cooperative member joins again after revoking
    consumer.seek_to_beginning()
    read(consumer, 20)
    consumer.commit()
    assert 1 == len([call for call in listener.calls if call[0] == kind])


def test_first_of_several_errors_is_raised(topic: str, member: New) -> None:
    """If on_revoke and on_assign of one rebalance both raise, both have run and the first error is raised."""
    listener = raising("revoked", "assigned")
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    with pytest.raises(CallbackError, match="assigned"):
        poll_until(consumer, lambda: False)
    consumer.enforce_rebalance()
    with pytest.raises(CallbackError, match="revoked"):
        poll_until(consumer, lambda: False)
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    consumer.seek_to_beginning()
    assert 20 == len(read(consumer, 20))


def test_error_of_on_revoke_at_unsubscribe(kafka: Kafka, topic: str, member: New) -> None:
    """If on_revoke raises, unsubscribe() leaves the group before it raises the error; the consumer can
    subscribe again.
    """
    consumer = member()
    consumer.subscribe([topic], listener=raising("revoked"))
    await_assignment(consumer, *tps(topic, 0, 1))
    with pytest.raises(CallbackError, match="revoked"):
        consumer.unsubscribe()
    assert (frozenset(), frozenset()) == (consumer.assignment(), consumer.subscription())
    consumer.subscribe([topic])
    assert 20 == len(read(consumer, 20))


def test_wakeup_inside_a_callback(topic: str, member: New) -> None:
    """A wakeup during on_assign ends the first blocking call in it. poll() raises the WakeupError, and the member
    continues.
    """

    def use(consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        if listener.count("assigned") == 1:
            consumer.wakeup()
            consumer.position(partitions[0])

    listener = Recorder(assigned=use)
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    with pytest.raises(WakeupError):
        poll_until(consumer, lambda: False)
    assert 20 == len(read(consumer, 20))


def test_other_threads_are_kept_out_of_callbacks(topic: str, member: New) -> None:
    """While a callback runs, a call from another thread raises ConcurrentAccessError if it is not a shared method."""
    errors: list[str] = []

    def try_elsewhere(consumer: Consumer, _partitions: object) -> None:
        def use() -> None:
            try:
                consumer.enforce_rebalance()
            except Exception as error:
                errors.append(type(error).__name__)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

    inside(member, topic, "assigned", try_elsewhere)
    assert ["ConcurrentAccessError"] == errors


def test_listener_that_overrides_one_method(topic: str, member: New) -> None:
    """A subclass of RebalanceListener may override a single method."""

    class OnlyAssigned(RebalanceListener):
        seen: tuple[TopicPartition, ...] = ()

        def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
            self.seen = partitions

    listener = OnlyAssigned()
    consumer = member()
    consumer.subscribe([topic], listener=listener)
    await_assignment(consumer, *tps(topic, 0, 1))
    consumer.close()
    assert tps(topic, 0, 1) == listener.seen
