"""MockConsumer: the surface of Consumer, and what a test controls."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import (
    Consumer,
    ConsumerRecord,
    ConsumerRecords,
    GroupMetadata,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
    errors,
)
from kconsumer.testing import MockConsumer

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))
OWN = {
    "add_records",
    "committed_offsets",
    "raise_next",
    "rebalance",
    "schedule",
    "update_beginning_offsets",
    "update_end_offsets",
}


class Log(RebalanceListener):
    """Notes the calls of the listener, and the positions that are committed when they run."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def on_partitions_assigned(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Note it."""
        self.calls.append(("assigned", tuple(tp.partition for tp in partitions)))

    def on_partitions_revoked(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Note it."""
        self.calls.append(("revoked", tuple(tp.partition for tp in partitions)))

    def on_partitions_lost(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Note it."""
        self.calls.append(("lost", tuple(tp.partition for tp in partitions)))


@pytest.fixture
def make() -> Iterator[Callable[..., MockConsumer]]:
    """Creates consumers, and closes them at the end."""
    made: list[MockConsumer] = []

    def create(*topics: str, **options: Any) -> MockConsumer:
        made.append(MockConsumer(*topics, **{"auto_offset_reset": "earliest", **options}))
        return made[-1]

    yield create
    for consumer in made:
        consumer.close()


def values(records: ConsumerRecords) -> list[Any]:
    """Returns the values of a batch."""
    return [record.value for record in records]


# --- the surface ---


@pytest.mark.parametrize("name", sorted(name for name in vars(Consumer) if not name.startswith("_")))
def test_every_public_method_has_the_same_signature(name: str) -> None:
    """A method of Consumer is one of MockConsumer, with the same parameters, defaults and annotations."""
    assert inspect.signature(getattr(Consumer, name)) == inspect.signature(getattr(MockConsumer, name))


def test_the_constructor_needs_no_address() -> None:
    """The constructor differs from that of Consumer in one default: the address. Its own methods are listed here."""
    of_mock = dict(inspect.signature(MockConsumer.__init__).parameters)
    address = of_mock.pop("bootstrap_servers")
    of_consumer = dict(inspect.signature(Consumer.__init__).parameters)
    assert of_consumer.pop("bootstrap_servers").annotation == address.annotation
    assert of_consumer.pop("options").kind == of_mock.pop("options").kind  # overloads of Consumer have their types
    assert of_consumer == of_mock
    assert {name for name in vars(MockConsumer) if not name.startswith("_")} == OWN


def test_no_socket_is_opened(make: Callable[..., MockConsumer], monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription, polls, commits, a wakeup and the end need no socket and no time."""
    import socket

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a socket was created")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "socketpair", refuse)
    began = time.monotonic()
    consumer = make("t", group_id="g", group_protocol="consumer")
    consumer.rebalance([T0])
    consumer.add_records(T0, [b"1"])
    assert [b"1"] == values(consumer.poll(60.0))
    assert not consumer.poll(3600.0)
    consumer.commit()
    consumer.wakeup()
    with pytest.raises(errors.WakeupError):
        consumer.poll(3600.0)
    consumer.close()
    assert time.monotonic() - began < 60


# --- reading ---


def test_records_are_kept_with_their_fields(make: Callable[..., MockConsumer]) -> None:
    """poll() returns the objects that were added; other objects become values at the next offset."""
    consumer = make()
    record = ConsumerRecord("t", 0, 7, 123, key="k", value={"v": 1}, headers=[("h", b"")], leader_epoch=3)
    consumer.assign([T0])
    consumer.add_records(T0, [record, None, b"raw"])
    found = consumer.poll()
    assert [record, None, b"raw"] == [next(iter(found)), *values(found)[1:]]
    assert [7, 8, 9] == [r.offset for r in found]
    assert {T0: OffsetAndMetadata(10)} == found.next_offsets()
    assert 10 == consumer.position(T0)
    consumer.seek(T0, 8)
    assert [8, 9] == [r.offset for r in consumer.poll()]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (ConsumerRecord("t", 1, 5), "a record of t-1 cannot be added to t-0"),
        (ConsumerRecord("t", 0, 0), "t-0 ends at offset 1, so no record with offset 0 can be added"),
    ],
)
def test_records_that_no_log_could_have_are_refused(
    make: Callable[..., MockConsumer], record: ConsumerRecord, message: str
) -> None:
    """A record of another partition, or with an offset that exists, raises ValueError."""
    consumer = make()
    consumer.add_records(T0, [b"0"])
    with pytest.raises(ValueError, match=re.escape(message)):
        consumer.add_records(T0, [record])


def test_a_loop_ends_after_consumer_timeout_ms(make: Callable[..., MockConsumer]) -> None:
    """The virtual clock advances while nothing arrives, so the loop ends at once. A stopped loop is rewound."""
    consumer = make(consumer_timeout_ms=60_000, group_id="g")
    consumer.assign([T0])
    consumer.add_records(T0, [b"1", b"2", b"3"])
    for record in consumer:
        if record.value == b"2":
            break
    consumer.commit()
    assert {T0: OffsetAndMetadata(2)} == consumer.committed_offsets()
    assert [b"3"] == [record.value for record in consumer]


def test_arrow_columns(make: Callable[..., MockConsumer]) -> None:
    """poll_arrow() returns the columns of records with bytes; other records are not consumed by the error."""
    consumer = make()
    consumer.assign([T0])
    consumer.add_records(T0, [b"12", b"34", b"5", "text"])
    assert [b"12", b"34"] == consumer.poll_arrow(max_bytes=3).to_pyarrow()["value"].to_pylist()
    assert [2] == consumer.poll_arrow(max_rows=1).to_pyarrow()["offset"].to_pylist()
    with pytest.raises(TypeError, match="offset 3 is str"):
        consumer.poll_arrow()
    assert ["text"] == values(consumer.poll())


def test_positions_begin_at_the_committed_offset_or_by_the_reset_policy(make: Callable[..., MockConsumer]) -> None:
    """The committed offset comes first; then `earliest`, `latest`, a duration, or an error with `none`."""
    added = [ConsumerRecord("t", 0, n, timestamp=n * 1000, value=n) for n in range(4)]
    for reset, offset in (("earliest", 1), ("latest", 4), ("by_duration:P1D", 4)):
        consumer = make(group_id="g", auto_offset_reset=reset)
        consumer.add_records(T0, added)
        consumer.update_beginning_offsets({T0: 1})
        consumer.assign([T0])
        assert offset == consumer.position(T0)
        consumer.commit({T1: 5})
        consumer.assign([T0, T1])
        assert 5 == consumer.position(T1)
    consumer = make(group_id="g", auto_offset_reset="none")
    consumer.assign([T0])
    for call in (consumer.poll, lambda: consumer.position(T0)):
        with pytest.raises(errors.NoOffsetForPartitionError, match="no committed offset for t-0"):
            call()
    consumer.seek(T0, 0)
    assert not consumer.poll()


def test_offsets_and_lag(make: Callable[..., MockConsumer]) -> None:
    """Beginning and end offsets, offsets for times and the lag follow the log, or what the test sets."""
    consumer = make()
    consumer.add_records(T0, [ConsumerRecord("t", 0, n, timestamp=n * 10, value=n, leader_epoch=1) for n in range(5)])
    consumer.assign([T0])
    assert {T0: 0, T1: 0} == consumer.beginning_offsets([T0, T1])
    assert {T0: 5, T1: 0} == consumer.end_offsets([T0, T1])
    found = consumer.offsets_for_times({T0: 25, T1: 0})
    assert (3, 30, None) == (found[T0].offset, found[T0].timestamp, found[T1]) if found[T0] else False
    assert consumer.current_lag(T0) is None
    consumer.poll(max_records=1)
    assert 4 == consumer.current_lag(T0)
    consumer.update_end_offsets({T0: 100})
    consumer.poll()
    assert 95 == consumer.current_lag(T0)
    assert ["t"] == list(consumer.list_topics())
    assert [0] == [info.partition for info in consumer.partitions_for("t")]
    assert () == consumer.partitions_for("unknown")


# --- groups ---


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        (
            {"assignors": ["range"]},
            [
                *[("assigned", (0, 1)), ("revoked", (0, 1)), ("assigned", (1, 2)), ("revoked", (1, 2))],
                *[("assigned", (1, 2)), ("lost", (1, 2)), ("assigned", ()), ("revoked", ()), ("assigned", (0,))],
                ("revoked", (0,)),
            ],
        ),
        (
            {"assignors": ["cooperative-sticky"]},
            [
                *[("assigned", (0, 1)), ("revoked", (0,)), ("assigned", (2,)), ("assigned", ()), ("lost", (1, 2))],
                *[("assigned", ()), ("assigned", (0,)), ("revoked", (0,))],
            ],
        ),
        (
            {"group_protocol": "consumer"},
            [
                *[("assigned", (0, 1)), ("revoked", (0,)), ("assigned", (2,)), ("lost", (1, 2)), ("assigned", ())],
                *[("assigned", (0,)), ("revoked", (0,))],
            ],
        ),
    ],
    ids=["eager", "cooperative", "consumer"],
)
def test_rebalance_calls_the_listener(
    make: Callable[..., MockConsumer], options: dict[str, Any], calls: list[tuple[str, tuple[int, ...]]]
) -> None:
    """The listener gets all partitions with the eager protocol, and the difference with the others."""
    log = Log()
    consumer = make(group_id="g", **options)
    consumer.subscribe(["t"], listener=log)
    consumer.rebalance([T0, T1])
    consumer.rebalance([T1, T2])
    consumer.rebalance([T2, T1])
    consumer.rebalance([], lost=True)
    consumer.rebalance([T0])
    assert {T0} == consumer.assignment()
    consumer.unsubscribe()
    assert calls == log.calls
    assert frozenset() == consumer.assignment()


def test_rebalance_commits_first(make: Callable[..., MockConsumer]) -> None:
    """Auto-commit commits before on_revoke runs, and not if the partitions are lost."""
    committed = []
    consumer = make(group_id="g")
    consumer.subscribe(["t"], on_revoke=lambda mock, _: committed.append(mock.committed([T0])[T0]))
    consumer.rebalance([T0])
    consumer.add_records(T0, [b"1", b"2", b"3"])
    consumer.poll(max_records=2)
    consumer.rebalance([T1])
    assert [OffsetAndMetadata(2)] == committed
    consumer.rebalance([T0])
    assert [b"3"] == values(consumer.poll())
    consumer.rebalance([], lost=True)
    assert OffsetAndMetadata(2) == consumer.committed_offsets()[T0]


def test_partitions_are_read_after_on_assign(make: Callable[..., MockConsumer]) -> None:
    """on_assign may seek. Its error does not stop the rebalance, and is raised at its end."""

    def seek(mock: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        for tp in partitions:
            mock.seek(tp, 1)
        raise LookupError("after the seek")

    consumer = make(group_id="g")
    consumer.subscribe(["t"], on_assign=seek)
    consumer.add_records(T0, ["a", "b"])
    consumer.schedule(lambda: consumer.rebalance([T0]))
    with pytest.raises(LookupError, match="after the seek"):
        consumer.poll()
    assert ["b"] == values(consumer.poll())


def test_what_rebalance_refuses(make: Callable[..., MockConsumer]) -> None:
    """A rebalance needs a subscription that contains the topics."""
    with pytest.raises(errors.StateError, match="needs a consumer group"):
        make().rebalance([T0])
    consumer = make(group_id="g")
    with pytest.raises(errors.StateError, match=re.escape("subscribe() before rebalance()")):
        consumer.rebalance([T0])
    consumer.subscribe(["other"])
    with pytest.raises(ValueError, match="cannot assign t-0: the consumer is not subscribed to t"):
        consumer.rebalance([T0])


def test_a_pattern_matches_known_topics(make: Callable[..., MockConsumer]) -> None:
    """The topics of a pattern are those that have records."""
    consumer = make(group_id="g")
    consumer.add_records(("logs-a", 0), [b"1"])
    consumer.subscribe(re.compile("logs-.*"))
    assert frozenset({"logs-a"}) == consumer.subscription()
    consumer.add_records(("logs-b", 0), [b"1"])
    consumer.add_records(("other", 0), [b"1"])
    assert frozenset({"logs-a", "logs-b"}) == consumer.subscription()
    consumer.rebalance([("logs-b", 0)])
    assert 1 == len(consumer.poll())


def test_group_metadata_and_enforce_rebalance(make: Callable[..., MockConsumer]) -> None:
    """The generation grows with each rebalance; enforce_rebalance() takes effect in the next poll."""
    log = Log()
    consumer = make(group_id="g", group_instance_id="i")
    consumer.subscribe(["t"], listener=log)
    assert GroupMetadata("g", -1, "", "i") == consumer.group_metadata()
    consumer.rebalance([T0])
    assert GroupMetadata("g", 1, "mock-member", "i") == consumer.group_metadata()
    consumer.enforce_rebalance()
    assert [("assigned", (0,))] == log.calls
    consumer.poll()
    assert [("assigned", (0,)), ("revoked", (0,)), ("assigned", (0,))] == log.calls
    assert 2 == consumer.group_metadata().generation_id
    consumer.unsubscribe()
    assert -1 == consumer.group_metadata().generation_id


# --- commits ---


def test_auto_commit(make: Callable[..., MockConsumer]) -> None:
    """The interval passes while polls find nothing. close() commits, and leaving the block with an error does not."""
    notified: list[object] = []
    consumer = make(group_id="g", on_commit=lambda offsets, error: notified.append(error))
    consumer.assign([T0])
    consumer.add_records(T0, [b"1", b"2", b"3"])
    consumer.poll(max_records=1)
    assert {} == consumer.committed_offsets()
    consumer.pause(T0)
    consumer.poll(5.0)
    consumer.poll(0)
    assert {T0: OffsetAndMetadata(1)} == consumer.committed_offsets()
    assert [None] == notified
    consumer.resume(T0)
    consumer.poll(max_records=1)
    with pytest.raises(RuntimeError), consumer:
        raise RuntimeError
    assert {T0: OffsetAndMetadata(1)} == consumer.committed_offsets()


def test_interceptors_see_records_and_commits(make: Callable[..., MockConsumer]) -> None:
    """on_consume may replace a batch, and on_commit gets the committed offsets."""
    commits = []

    class OddOnly:
        """Leaves out records with even offsets."""

        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            """Returns the other records."""
            return ConsumerRecords(record for record in records if record.offset % 2)

        def on_commit(self, offsets: object) -> None:
            """Note it."""
            commits.append(offsets)

    consumer = make(group_id="g", interceptors=[OddOnly()])
    consumer.assign([T0])
    consumer.add_records(T0, range(4))
    assert [1, 3] == values(consumer.poll())
    consumer.commit()
    assert [{T0: OffsetAndMetadata(4)}] == commits


# --- what happens to the consumer ---


def test_scheduled_calls_and_errors_take_one_poll_each(make: Callable[..., MockConsumer]) -> None:
    """Each poll makes one scheduled call and raises one error; a wakeup inside a scheduled call ends that poll."""
    consumer = make()
    consumer.assign([T0])
    consumer.schedule(lambda: consumer.add_records(T0, ["a"]))
    consumer.schedule(consumer.wakeup)
    consumer.schedule(lambda: consumer.add_records(T0, ["b"]))
    assert ["a"] == values(consumer.poll())
    with pytest.raises(errors.WakeupError):
        consumer.poll()
    consumer.raise_next(errors.TopicAuthorizationError("no"))
    consumer.raise_next(KeyboardInterrupt())
    with pytest.raises(errors.TopicAuthorizationError):
        consumer.poll()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert ["b"] == values(consumer.poll())
    for call in (lambda: consumer.schedule("x"), lambda: consumer.raise_next("x")):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call()


def test_a_scheduled_call_may_close_or_unsubscribe(make: Callable[..., MockConsumer]) -> None:
    """The poll then raises StateError, or returns nothing."""
    consumer = make("t", group_id="g")
    consumer.rebalance([T0])
    consumer.schedule(consumer.unsubscribe)
    assert not consumer.poll()
    with pytest.raises(errors.StateError, match="nothing to read from yet"):
        consumer.poll()
    consumer.assign([T0])
    consumer.schedule(consumer.close)
    with pytest.raises(errors.StateError, match="closed while the call was waiting"):
        consumer.poll()


def test_after_close(make: Callable[..., MockConsumer]) -> None:
    """close() runs on_revoke once and can be called again; other methods raise StateError."""
    log = Log()
    consumer = make(group_id="g")
    consumer.subscribe(["t"], listener=log)
    consumer.rebalance([T0])
    consumer.add_records(T0, [b"1"])
    consumer.poll()
    consumer.close()
    consumer.close()
    assert [("assigned", (0,)), ("revoked", (0,))] == log.calls
    assert {T0: OffsetAndMetadata(1)} == consumer.committed_offsets()
    for call in (consumer.poll, consumer.assignment, lambda: consumer.rebalance([T0])):
        with pytest.raises(errors.StateError, match="closed"):
            call()


def test_an_unclosed_consumer_warns() -> None:
    """As for Consumer, a consumer that is not closed is reported."""
    with pytest.warns(ResourceWarning, match="unclosed"):
        MockConsumer()


def test_client_instance_id() -> None:
    """All mock consumers have the same client instance id, unless telemetry is disabled."""
    with MockConsumer() as consumer:
        assert "AAAAAAAAAAAAAAAAAAAAAQ" == consumer.client_instance_id()
    with MockConsumer(enable_metrics_push=False) as consumer, pytest.raises(errors.StateError, match="metrics_push"):
        consumer.client_instance_id()
