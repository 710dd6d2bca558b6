"""Scenarios of Java's ShareConsumerTest with a ShareConsumer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kconsumer import AcknowledgeType, ShareConsumer, ShareRecord, TopicPartition, groups
from kconsumer.errors import BrokerError, KafkaError, StateError, WakeupError
from support.brokers.kafka import Kafka
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import CHOSEN_VERSION, release_of
from support.members.share_groups import configure_group, poll_records, share_records

pytestmark = [pytest.mark.network_thread, pytest.mark.consumer_protocol]

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
#: Kafka 4.3 and later collect changes of a group for a second, unless this says otherwise.
AT_ONCE = {"share.assignment.interval.ms": "0"} if release_of(CHOSEN_VERSION) >= (4, 3) else {}
#: Quick assignments, and a group that begins at the first record.
CONFIG = {"share.auto.offset.reset": "earliest", "share.heartbeat.interval.ms": "200", **AT_ONCE}
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


class ShareGroup:
    """A topic, and a group with the same name."""

    def __init__(self, kafka: Kafka, name: str, stack: ExitStack) -> None:
        self.kafka, self.name, self._stack = kafka, name, stack
        self.done: list[tuple[dict[TopicPartition, frozenset[int]], KafkaError | None]] = []

    def topic(self, partitions: int = 1, suffix: str = "") -> str:
        """Create a topic. Returns its name."""
        return self.kafka.create_topic(self.name + suffix, partitions)

    def produce(self, *values: bytes, suffix: str = "", partition: int = 0) -> None:
        """Write records, in one batch."""
        self.kafka.produce(self.name + suffix, list(values), partition=partition)

    def configure(self, group: str = "", **config: str) -> None:
        """Set settings of a group. `config`: with underscores for dots."""
        chosen = {key.replace("_", "."): value for key, value in config.items()}
        configure_group(self.kafka.bootstrap_servers, self.name + group, chosen)

    def member(self, *topics: str, group: str = "", **options: Any) -> ShareConsumer:
        """Returns a new member, subscribed to the topic or to other topics."""
        consumer = ShareConsumer(
            *(topics or [self.name]),
            bootstrap_servers=self.kafka.bootstrap_servers,
            group_id=self.name + group,
            on_acknowledge=options.pop("on_acknowledge", lambda offsets, error: self.done.append((offsets, error))),
            **options,
        )
        self._stack.callback(consumer.close, 10.0)
        return consumer

    def acknowledged(self) -> set[int]:
        """Returns the offsets of the topic that `on_acknowledge` has reported as acknowledged."""
        return {offset for found, error in self.done if error is None for o in found.values() for offset in o}

    def lag(self) -> int | None:
        """Returns the lag of the group in the first partition."""
        described = groups.offsets(self.name, bootstrap_servers=self.kafka.bootstrap_servers)
        return described[TopicPartition(self.name, 0)].lag


@pytest.fixture
def share(kafka: Kafka, topic_name: str) -> Iterator[ShareGroup]:
    with ExitStack() as stack:
        configure_group(kafka.bootstrap_servers, topic_name, CONFIG)
        yield ShareGroup(kafka, topic_name, stack)


def values(count: int, first: int = 0) -> list[bytes]:
    """Returns different values of records."""
    return [b"%d" % number for number in range(first, first + count)]


def offsets(records: list[ShareRecord]) -> list[int]:
    """Returns the offsets of records."""
    return [record.offset for record in records]


def deliveries(records: list[ShareRecord]) -> list[tuple[int, int]]:
    """Returns the offset and the delivery count of each record."""
    return [(record.offset, record.delivery_count) for record in records]


def acknowledge(consumer: ShareConsumer, records: list[ShareRecord], kind: AcknowledgeType = ACCEPT) -> None:
    """Acknowledge records, and wait until the broker has done so."""
    for record in records:
        consumer.acknowledge(record, kind)
    assert {None} == set(consumer.commit().values())


# --- subscriptions ------------------------------------------------------------------------------------------


def test_poll_needs_a_subscription(share: ShareGroup) -> None:
    """poll() raises StateError without a subscription, after unsubscribe() and after an empty subscription."""
    topic = share.topic()
    consumer = share.member()
    assert frozenset({topic}) == consumer.subscription()
    assert not consumer.poll(0.3)
    consumer.subscribe([topic])
    assert not consumer.poll(0.3)
    for end in (consumer.unsubscribe, lambda: consumer.subscribe([])):
        end()
        assert frozenset() == consumer.subscription()
        with pytest.raises(StateError, match="subscribe"):
            consumer.poll(0.1)
        consumer.subscribe([topic])


def test_records_one_after_the_other(share: ShareGroup) -> None:
    """Each poll returns what was written after the one before. The lock timeout is known from the first response on."""
    share.topic()
    share.produce(b"0")
    consumer = share.member()
    assert consumer.acquisition_lock_timeout_ms() is None
    for number in range(3):
        assert [(number, 1)] == deliveries(poll_records(consumer, 1))
        share.produce(b"more")
    assert 30_000 == consumer.acquisition_lock_timeout_ms()


def test_another_subscription(share: ShareGroup) -> None:
    """Acknowledgements of the old topic are sent when the subscription changes."""
    topic, other = share.topic(), share.topic(suffix="-other")
    share.produce(b"0")
    share.produce(b"1", suffix="-other")
    consumer = share.member()
    assert [topic] == [record.topic for record in poll_records(consumer, 1)]
    consumer.subscribe([other])
    assert [other] == [record.topic for record in poll_records(consumer, 1)]
    consumer.commit()
    found = {tp.topic: error for partitions, error in share.done for tp in partitions}
    assert {topic: None, other: None} == found


def test_a_topic_that_is_created_later(share: ShareGroup) -> None:
    """A subscribed topic may be created after the first poll."""
    consumer = share.member()
    assert not consumer.poll(0.5)
    share.topic()
    share.produce(*values(2))
    assert [0, 1] == offsets(poll_records(consumer, 2))


def test_a_topic_that_is_deleted(share: ShareGroup) -> None:
    """Records of the other topics arrive when one is deleted."""
    topic, other = share.topic(), share.topic(suffix="-other")
    share.produce(b"0")
    consumer = share.member(topic, other)
    assert [topic] == [record.topic for record in poll_records(consumer, 1)]
    share.kafka.delete_topic(topic)
    for number in range(2):
        share.produce(b"%d" % number, suffix="-other")
        assert [(other, number)] == [(record.topic, record.offset) for record in poll_records(consumer, 1)]


# --- acknowledgements ---------------------------------------------------------------------------------------


def test_implicit_acknowledgements(share: ShareGroup) -> None:
    """The next poll, commit() or commit_async() accepts the records of a poll; each is acknowledged once."""
    share.topic()
    share.produce(*values(2))
    consumer = share.member()
    poll_records(consumer, 2)
    assert {TopicPartition(share.name, 0): None} == consumer.commit()
    assert {} == consumer.commit()
    share.produce(b"2")
    assert [2] == offsets(poll_records(consumer, 1))
    consumer.commit_async()
    wait_until(lambda: bool(consumer.poll(0.1)) or {0, 1, 2} == share.acknowledged(), 20, "acknowledgements")
    share.produce(b"3")
    assert [3] == offsets(poll_records(consumer, 1))
    wait_until(lambda: bool(consumer.poll(0.1)) or {0, 1, 2, 3} == share.acknowledged(), 20, "acknowledgements")


def test_close_waits_for_acknowledgements(share: ShareGroup) -> None:
    """`on_acknowledge` has received everything when close() returns."""
    share.topic()
    share.produce(*values(3))
    consumer = share.member()
    poll_records(consumer, 3)
    consumer.poll(0)
    consumer.close()
    assert {0, 1, 2} == share.acknowledged()


def test_release_then_accept(share: ShareGroup) -> None:
    """Before it is sent, an acknowledgement can be replaced; a record of an earlier poll cannot be acknowledged."""
    share.topic()
    share.produce(b"0")
    consumer = share.member(**EXPLICIT)
    (record,) = poll_records(consumer, 1)
    consumer.acknowledge(record, RELEASE)
    (record,) = poll_records(consumer, 1)
    assert 2 == record.delivery_count
    consumer.acknowledge(record, RELEASE)
    consumer.acknowledge(record, ACCEPT)
    assert not consumer.poll(0.5)
    with pytest.raises(StateError):
        consumer.acknowledge(record)


def test_a_released_record_and_close(share: ShareGroup) -> None:
    """Acknowledgements that were not sent are sent by close()."""
    share.topic()
    share.produce(*values(2))
    consumer = share.member(**EXPLICIT)
    first, second = poll_records(consumer, 2)
    consumer.acknowledge(first, RELEASE)
    consumer.acknowledge(second, ACCEPT)
    consumer.close()
    assert [(0, 2)] == deliveries(poll_records(share.member(), 1))


def test_deliveries_after_close(share: ShareGroup) -> None:
    """What a closed member has not acknowledged is delivered again, as often as the limit of the group allows."""
    share.topic()
    share.configure(share_delivery_count_limit="2")
    share.produce(b"0")
    for count in (1, 2):
        consumer = share.member(**EXPLICIT)
        assert [(0, count)] == deliveries(poll_records(consumer, 1))
        consumer.close()
    assert not share.member().poll(1.5)


# --- on_acknowledge -----------------------------------------------------------------------------------------


def test_a_late_acknowledgement(share: ShareGroup) -> None:
    """`on_acknowledge` receives INVALID_RECORD_STATE for a record whose lock has expired."""
    share.topic()
    share.configure(share_record_lock_duration_ms="1000")
    share.produce(b"0")
    consumer = share.member(max_poll_records=1)
    poll_records(consumer, 1)
    time.sleep(1.5)  # nothing that a member may call shows that its lock of one second has expired
    wait_until(lambda: bool(consumer.poll(0.2)) or bool(share.done), 20, "the error")
    (error,) = {found.name for _, found in share.done if isinstance(found, BrokerError)}
    assert "INVALID_RECORD_STATE" == error
    consumer.commit()


def test_on_acknowledge_calls_the_consumer(share: ShareGroup) -> None:
    """on_acknowledge may call wakeup(), whose effect is that of any other call; other calls cannot break anything."""
    share.topic()
    share.produce(b"0")
    woken = threading.Event()

    def wake(_: object, __: object) -> None:
        if not woken.is_set():
            woken.set()
            consumer.wakeup()

    consumer = share.member(on_acknowledge=wake)
    poll_records(consumer, 1)
    with pytest.raises(WakeupError):
        wait_until(lambda: bool(consumer.poll(0.2)), 20, "wakeup")
    share.produce(b"1")
    assert [1] == offsets(poll_records(consumer, 1))


def test_wakeup_before_records(share: ShareGroup) -> None:
    """A wakeup does not lose records: the next poll returns them."""
    share.topic()
    share.produce(b"0")
    consumer = share.member()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(0)
    assert [(0, 1)] == deliveries(poll_records(consumer, 1))


# --- what records are ---------------------------------------------------------------------------------------


def test_small_limits(share: ShareGroup) -> None:
    """A record that is larger than the limits arrives; max_poll_records divides what was fetched."""
    share.topic()
    share.produce(*values(300))
    share.produce(bytes(20_000))
    consumer = share.member(fetch_max_bytes=1, max_poll_records=2)
    found = poll_records(consumer, 301)
    assert list(range(301)) == offsets(found)
    assert [*values(300), bytes(20_000)] == [record.value for record in found]


def test_record_limit_one(share: ShareGroup) -> None:
    """With record_limit and max_poll_records=1, each poll returns one record, which is acknowledged before the next."""
    share.topic()
    share.produce(*values(6))
    consumer = share.member(share_acquire_mode="record_limit", max_poll_records=1, **EXPLICIT)
    for number in range(6):
        records = poll_records(consumer, 1)
        assert [(number, 1)] == deliveries(records)
        acknowledge(consumer, records, RELEASE if number == 5 else ACCEPT)
    assert [(5, 2)] == deliveries(poll_records(consumer, 1))


def test_isolation_level_changes(share: ShareGroup) -> None:
    """The isolation level of a group can change: aborted records arrive as long as it is read_uncommitted."""
    topic = share.topic()
    kafka = share.kafka
    consumer = share.member(**EXPLICIT)
    kafka.produce_transaction(topic, [b"1"])
    kafka.produce_transaction(topic, [b"2"], commit=False)
    records = poll_records(consumer, 2)
    assert [b"1", b"2"] == [record.value for record in records]
    acknowledge(consumer, records[:1])
    acknowledge(consumer, records[1:], RELEASE)
    share.configure(share_isolation_level="read_committed")
    kafka.produce_transaction(topic, [b"3"], commit=False)
    kafka.produce_transaction(topic, [b"4"])
    seen: list[bytes | None] = []
    while b"4" not in seen:
        records = poll_records(consumer, 1)
        seen += [record.value for record in records]
        acknowledge(consumer, records)
    share.configure(share_isolation_level="read_uncommitted")
    kafka.produce_transaction(topic, [b"5"], commit=False)
    records = poll_records(consumer, 1)
    acknowledge(consumer, records)
    assert ([b"4"], [b"5"]) == ([value for value in seen if value != b"2"], [record.value for record in records])


# --- where a group begins -----------------------------------------------------------------------------------


def test_two_groups(share: ShareGroup) -> None:
    """Groups are independent: one begins at the first record, another one at the end, and both get what follows."""
    share.topic()
    share.produce(*values(2))
    share.configure("-latest", share_auto_offset_reset="latest", **AT_ONCE)
    early, late = share.member(), share.member(group="-latest")
    assert [0, 1] == offsets(poll_records(early, 2))

    def begun() -> bool:
        """Returns whether the late group has received something. Writes another record."""
        share.produce(b"more")
        return bool(late.poll(0.5))

    wait_until(begun, 30, "records of the group that begins at the end")
    assert 0 not in offsets(poll_records(early, 1))


def test_by_duration(share: ShareGroup) -> None:
    """A group begins with the first record of the last hour."""
    topic = share.topic()
    now_ms = int(time.time() * 1000)
    for hours in (2, 0):
        share.kafka.produce(topic, [b"%d hours ago" % hours], timestamps=[now_ms - hours * 3_600_000])
    share.configure(share_auto_offset_reset="by_duration:PT1H")
    assert [b"0 hours ago"] == [record.value for record in poll_records(share.member(), 1)]


def test_deleted_records(share: ShareGroup) -> None:
    """Records that were deleted do not arrive, before and after the group has begun."""
    topic = share.topic()
    for value in values(6):
        share.produce(value)
    share.kafka.delete_records(topic, {0: 2})
    consumer = share.member(max_poll_records=1)
    assert [2] == offsets(poll_records(consumer, 1))
    consumer.commit()
    share.kafka.delete_records(topic, {0: 5})
    found = []
    while 5 not in found:
        found += offsets(poll_records(consumer, 1))
    consumer.commit()
    share.produce(b"6")
    assert [6] == offsets(poll_records(consumer, 1))


# --- several members ----------------------------------------------------------------------------------------


def test_members_at_the_same_time(share: ShareGroup) -> None:
    """Four members in threads of their own receive each record once, one of which closes early."""
    share.topic(2)
    for partition in range(2):
        for first in range(0, 1000, 50):
            share.produce(*values(50, first), partition=partition)
    received: Counter[tuple[int, int]] = Counter()
    lock = threading.Lock()
    everything = threading.Event()

    def consume(polls: int) -> None:
        with share.member(max_poll_records=50, on_acknowledge=None) as consumer:
            while polls and not everything.is_set():
                found = share_records(consumer.poll(0.5))
                consumer.commit()
                with lock:
                    received.update((record.partition, record.offset) for record in found)
                    if len(received) == 2000:
                        everything.set()
                polls -= 1

    threads = [threading.Thread(target=consume, args=(polls,)) for polls in (3, 10_000, 10_000, 10_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert everything.is_set()
    assert {1} == set(received.values())


def test_close_releases_the_last_poll(share: ShareGroup) -> None:
    """In implicit mode, the records of the last poll are delivered again if the member closes without a commit."""
    share.topic()
    share.produce(*values(3))
    first = share.member()
    poll_records(first, 3)
    first.close()
    assert [(0, 2), (1, 2), (2, 2)] == deliveries(poll_records(share.member(), 3))


# --- delivery counts and lag --------------------------------------------------------------------------------


def test_records_that_always_fail(share: ShareGroup) -> None:
    """The more often records were released, the fewer arrive together, and the last time each arrives alone."""
    share.topic()
    share.produce(*values(8))
    consumer = share.member(**EXPLICIT)
    counts: Counter[int] = Counter()
    sizes = []
    while sum(counts.values()) < 40:
        records = poll_records(consumer, 1)
        sizes.append(len(records))
        for record in records:
            counts[record.offset] += 1
            assert counts[record.offset] == record.delivery_count
        acknowledge(consumer, records, RELEASE)
    assert not consumer.poll(0.5)
    assert dict.fromkeys(range(8), 5) == counts
    assert [8, 8, 8, 4, 1, 1, 1, 1, 4, 1, 1, 1, 1] == sizes


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_lag(share: ShareGroup, kind: AcknowledgeType) -> None:
    """The lag counts records that are not accepted or rejected yet; what was released counts again."""
    share.topic()
    share.produce(*values(2))
    consumer = share.member(**EXPLICIT)
    first, second = poll_records(consumer, 2)
    acknowledge(consumer, [first], kind)
    acknowledge(consumer, [second], RELEASE)
    assert 1 == share.lag()
    acknowledge(consumer, poll_records(consumer, 1), kind)
    assert 0 == share.lag()
    share.produce(b"2")
    assert 1 == share.lag()


def test_no_lag_before_the_first_acknowledgement(share: ShareGroup) -> None:
    """A group that has acknowledged nothing has no start offset, and no lag."""
    share.topic()
    consumer = share.member()
    assert not consumer.poll(1.5)
    assert share.lag() is None


# --- full groups --------------------------------------------------------------------------------------------


def test_a_rejected_renewal(share: ShareGroup) -> None:
    """A record that was rejected cannot be renewed."""
    share.topic()
    share.produce(b"0")
    consumer = share.member(**EXPLICIT)
    records = poll_records(consumer, 1)
    acknowledge(consumer, records, REJECT)
    with pytest.raises(StateError):
        records[0].renew()


MakeCluster = Callable[..., Any]


def test_a_full_group(new_cluster: MakeCluster, topic_name: str) -> None:
    """A member beyond group.share.max.size gets an error; one beyond the sessions of a broker gets no records."""
    properties = {"group.share.max.size": "1", "group.share.max.share.sessions": "1"}
    with new_cluster(properties=properties) as kafka, ExitStack() as stack:
        share = ShareGroup(kafka, topic_name, stack)
        share.topic()
        share.produce(*values(2))
        for group in ("", "-other"):
            share.configure(group, share_auto_offset_reset="earliest")
        first = share.member()
        assert [0, 1] == offsets(poll_records(first, 2))
        with pytest.raises(BrokerError, match="GROUP_MAX_SIZE_REACHED"):
            wait_until(lambda: bool(share.member().poll(5.0)), 20, "the error")
        other = share.member(group="-other")
        assert not other.poll(1.5)
        first.close()
        assert [0, 1] == offsets(poll_records(other, 2))
