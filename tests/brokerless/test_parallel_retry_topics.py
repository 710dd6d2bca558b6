"""RetryTopics: where failed records go, when they are tried again, and what one transaction contains."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecord, ShareConsumer, TopicPartition
from kconsumer.aio import AsyncConsumer
from kconsumer.errors import ConfigError
from kconsumer.parallel import Batch, PartialBatchError, Processor, Retry, RetryTopics, Summary, process
from kconsumer.testing import FakeCluster
from support.harnesses.parallel_runs import options as run_options
from support.harnesses.parallel_runs import run_until_finished, run_with, until
from support.harnesses.polling import read_committed

DELAYS_S = (0.1, 0.3)
FIRST, SECOND, DEAD = "orders-retry-100", "orders-retry-300", "dead"
TOPICS = ("orders", FIRST, SECOND, DEAD)
TIMESTAMP = 1_700_000_000_000


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster with all topics, and three records of which the second one is bad."""
    with FakeCluster() as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, 1)
        cluster.produce("orders", ["a"], key="k")
        cluster.produce("orders", ["bad"], key="k", headers=[("h", b"x")], timestamp=TIMESTAMP)
        cluster.produce("orders", ["c"], key="k")
        yield cluster


def options(cluster: FakeCluster, **options: Any) -> dict[str, Any]:
    """Returns the options of a consumer that ends when nothing is left to do."""
    return run_options(cluster, **{"isolation_level": "read_committed", "consumer_timeout_ms": 2000, **options})


def confluent(cluster: FakeCluster, **options: Any) -> Any:
    """Returns a producer of confluent-kafka."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", **options})
    if options:
        producer.init_transactions()
    return producer


def confluent_transactional(cluster: FakeCluster) -> Any:
    """Returns one with transactions."""
    return confluent(cluster, **{"transactional.id": "g"})


def kafka_python(cluster: FakeCluster) -> Any:
    """Returns a producer of kafka-python."""
    from kafka import KafkaProducer

    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=False)


def read(cluster: FakeCluster, topic: str) -> list[ConsumerRecord]:
    """Returns the records of a topic."""
    return read_committed(cluster.bootstrap_servers, topic)


def offsets(cluster: FakeCluster) -> dict[str, int]:
    """Returns the committed offset of each topic."""
    return {tp.topic: committed.offset for tp, committed in cluster.committed("g").items()}


class Handler:
    """Fails for some records, and notes the time (ms) and topic of each call."""

    def __init__(self, *, recovers_in: str = "") -> None:
        self.calls: dict[bytes, list[tuple[float, str]]] = defaultdict(list)
        self._recovers_in = recovers_in

    def __call__(self, record: ConsumerRecord) -> None:
        """Fail for bad records."""
        self.calls[record.value].append((time.time() * 1000, record.topic))
        if record.value.startswith(b"bad") and record.topic != self._recovers_in:
            raise ValueError("no such customer")

    async def handle(self, record: ConsumerRecord) -> None:
        """The same for coroutines."""
        self(record)

    def topics(self, value: bytes = b"bad") -> list[str]:
        """Returns the topics in which a record was tried."""
        return [topic for _, topic in self.calls[value]]


def check_dead(cluster: FakeCluster, handler: Handler, null: bytes | None = b"x") -> None:
    """Check what the topics and the group contain after the bad record has failed everywhere."""
    assert ["orders", FIRST, SECOND] == handler.topics()
    for topic, attempts in ((FIRST, 2), (SECOND, 3), (DEAD, 4)):
        [record] = read(cluster, topic)
        headers = dict(record.headers)
        assert (b"k", b"bad", b"x") == (record.key, record.value, headers["h"])
        assert (b"orders", b"g") == (headers["kafka_original-topic"], headers["kafka_dlt-original-consumer-group"])
        assert b"no such customer" == headers["kafka_exception-message"]
        number = {
            name: int.from_bytes(headers[f"{prefix}{name}"] or b"", "big")
            for prefix, names in (
                ("kafka_original-", ("partition", "offset", "timestamp")),
                ("retry_topic-", ("attempts", "original-timestamp")),
            )
            for name in names
        }
        assert [0, 1, TIMESTAMP, attempts, TIMESTAMP] == list(number.values())
        assert len(headers) == len(record.headers)
        if topic == DEAD:
            assert TIMESTAMP == record.timestamp
            assert "retry_topic-backoff-timestamp" not in headers
        else:  # brokers could delete a record that is old
            assert record.timestamp > TIMESTAMP
            due = int.from_bytes(headers["retry_topic-backoff-timestamp"] or b"", "big")
            assert due - 1 <= next(at for at, name in handler.calls[b"bad"] if name == topic)
    assert 3 == offsets(cluster)["orders"]
    assert {FIRST, SECOND} < set(offsets(cluster))


# The import of kafka-python uses what Python 3.11 and later deprecate.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("create", [confluent, confluent_transactional, kafka_python])
def test_a_record_that_fails_always(cluster: FakeCluster, create: Callable[[FakeCluster], Any]) -> None:
    """It goes through the delay topics, is tried there when it is due, and then is dead.

    The run reads the delay topics, and afterwards the subscription is as before, with its listener.
    """
    handler, producer, assigned = Handler(), create(cluster), set[TopicPartition]()
    with Consumer(**options(cluster)) as consumer:
        consumer.subscribe(["orders"], on_assign=lambda _, partitions: assigned.update(partitions))
        topics = RetryTopics(producer, DELAYS_S, DEAD)
        summary = run_until_finished(Processor(consumer, handler, retry=None, on_failure=topics), 5)
        assert {"orders"} == consumer.subscription()
    if hasattr(producer, "close"):
        producer.close()
    assert {TopicPartition(topic, 0) for topic in ("orders", FIRST, SECOND)} == assigned
    assert (2, 3) == (summary.processed, summary.failed)
    check_dead(cluster, handler)


@pytest.mark.parametrize("transactions", [False, True])
def test_coroutines(cluster: FakeCluster, transactions: bool) -> None:
    """The same holds with an AsyncConsumer and aiokafka."""
    from aiokafka import AIOKafkaProducer

    handler = Handler()
    chosen = {"transactional_id": "g"} if transactions else {}

    async def run() -> Summary:
        async with (
            AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", **chosen) as producer,
            AsyncConsumer("orders", **options(cluster)) as consumer,
        ):
            topics = RetryTopics(producer, DELAYS_S, DEAD)
            if transactions:
                with Consumer("orders", **options(cluster)) as other, pytest.raises(TypeError, match="AsyncConsumer"):
                    process(other, handler.handle, executor="asyncio", on_failure=topics)
            return await process(consumer, handler.handle, executor="asyncio", retry=None, on_failure=topics)

    summary = asyncio.run(run())
    assert (2, 3) == (summary.processed, summary.failed)
    check_dead(cluster, handler)


def test_batches(cluster: FakeCluster) -> None:
    """A record of a batch that fails is handed over, and the others are finished."""
    handler = Handler()

    def handle(records: list[ConsumerRecord]) -> None:
        failed = {}
        for at, record in enumerate(records):
            try:
                handler(record)
            except ValueError as error:
                failed[at] = error
        if failed:
            raise PartialBatchError(failed)

    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(confluent_transactional(cluster), DELAYS_S, DEAD)
        processor = Processor(consumer, handle, batch=Batch(10), retry=None, on_failure=topics)
        summary = run_until_finished(processor, 5)
    assert (2, 3) == (summary.processed, summary.failed)
    check_dead(cluster, handler)


def test_a_record_that_recovers(cluster: FakeCluster) -> None:
    """A record that a later attempt processes goes no further."""
    handler = Handler(recovers_in=FIRST)
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(confluent(cluster), DELAYS_S, DEAD)
        summary = run_until_finished(Processor(consumer, handler, retry=None, on_failure=topics), 4)
    assert (3, 1, ["orders", FIRST]) == (summary.processed, summary.failed, handler.topics())
    assert [] == read(cluster, SECOND)


@pytest.mark.parametrize("how", ["never", "deserializer"])
def test_records_that_no_delay_helps(cluster: FakeCluster, how: str) -> None:
    """An error that is not tried again, and a record that a deserializer refuses, are dead at once."""

    def refuse(data: bytes) -> bytes:
        if how == "deserializer" and data == b"bad":
            raise ValueError("refused")
        return data

    handler = Handler()
    with Consumer("orders", **options(cluster, value_deserializer=refuse)) as consumer:
        topics = RetryTopics(confluent(cluster), DELAYS_S, DEAD)
        processor = Processor(consumer, handler, retry=Retry(never=(ValueError,)), on_failure=topics)
        summary = run_until_finished(processor, 3)
    assert (2, 1, [b"bad"]) == (summary.processed, summary.failed, [record.value for record in read(cluster, DEAD)])


def test_records_of_delay_topics_that_others_wrote(cluster: FakeCluster) -> None:
    """Those of another group are skipped. Without headers, or with a due time far ahead, the delay counts."""
    header, due = "kafka_dlt-original-consumer-group", "retry_topic-backoff-timestamp"
    cluster.produce(FIRST, ["other"], headers=[(header, b"other")])
    cluster.produce(FIRST, ["plain"])
    cluster.produce(FIRST, ["far"], headers=[(header, b"g"), (due, (2**62).to_bytes(8, "big"))])
    handler, began = Handler(), time.time() * 1000
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(confluent(cluster), DELAYS_S, DEAD)
        run_until_finished(Processor(consumer, handler, order="none", retry=None, on_failure=topics), 7)
    assert ([], [FIRST], [FIRST]) == tuple(handler.topics(value) for value in (b"other", b"plain", b"far"))
    assert began + 1000 * DELAYS_S[0] <= handler.calls[b"far"][0][0]
    assert len(read(cluster, FIRST)) == offsets(cluster)[FIRST]


@pytest.mark.parametrize("data", [b"\x7f" * 20, b"", None])
def test_headers_may_have_any_bytes(cluster: FakeCluster, data: bytes | None) -> None:
    """A record whose headers another program has written ends no run."""
    names = ("retry_topic-attempts", "retry_topic-backoff-timestamp", "kafka_original-timestamp")
    cluster.produce(FIRST, ["bad"], headers=[(name, data) for name in names])
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(confluent(cluster), DELAYS_S, DEAD)
        Processor(consumer, Handler(), order="none", retry=None, on_failure=topics).run()
    assert [b"bad", b"bad"] == [record.value for record in read(cluster, DEAD)]


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_records_that_are_not_due_hold_back_nothing(cluster: FakeCluster, order: Any) -> None:
    """However many wait in a delay topic, the other topics are read. No more of them are taken than may wait."""
    group = [("kafka_dlt-original-consumer-group", b"g")]
    due = (int(time.time() * 1000) + 60_000).to_bytes(8, "big")
    name = "orders-retry-60000"
    cluster.create_topic(name, 1)
    for n in range(10):
        cluster.produce(name, [f"{n}-{i}" for i in range(50)], headers=[*group, ("retry_topic-backoff-timestamp", due)])
    with Consumer("orders", **options(cluster, max_poll_records=20)) as consumer:
        topics = RetryTopics(confluent(cluster), [60], DEAD)
        processor = Processor(consumer, lambda record: None, order=order, max_in_flight=5, on_failure=topics)
        values = [str(n) for n in range(200)]

        def produce_and_stop() -> None:
            until(lambda: processor._state.queue.delayed)
            cluster.produce("orders", values)
            until(lambda: processor.summary().processed == 3 + len(values))
            processor.stop()

        summary = run_with(processor, produce_and_stop)
        assert 500 > len(processor._state.trackers[TopicPartition(name, 0)].unfinished)
    assert (203, 0) == (summary.processed, summary.failed)
    assert 0 == offsets(cluster).get(name, 0)


class Recorder:
    """A transactional producer like that of confluent-kafka, which notes committed transactions, and fails at first."""

    def __init__(self, failures: int = 0, *, aborts: bool = True, at: Callable[[], None] = lambda: None) -> None:
        self.written: list[tuple[list[bytes], dict[tuple[str, int], int]]] = []
        self.aborted = 0
        self._failures, self._aborts, self._at = failures, aborts, at
        self._values: list[bytes] = []
        self._offsets: dict[tuple[str, int], int] = {}

    def begin_transaction(self) -> None:
        """Begin."""
        self._at()
        self._values, self._offsets = [], {}

    def produce(self, topic: str, value: bytes, **record: Any) -> None:
        """Write a record."""
        self._values.append(value)

    def send_offsets_to_transaction(self, rows: Any, group: object, timeout: float) -> None:
        """Add offsets."""
        self._offsets = {(row.topic, row.partition): row.offset for row in rows}

    def commit_transaction(self, timeout: float) -> None:
        """Commit, or fail."""
        if self._failures:
            self._failures -= 1
            raise RuntimeError("cannot commit")
        self.written.append((self._values, self._offsets))

    def abort_transaction(self, timeout: float = 0) -> None:
        """Abort."""
        if timeout and not self._aborts:
            raise RuntimeError("cannot abort")
        self.aborted += bool(timeout)


def process_with(cluster: FakeCluster, producer: Recorder, **arguments: Any) -> Summary:
    """Run until all records have been processed or handed over."""
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(producer, DELAYS_S, DEAD, timeout_s=0.1)
        processor = Processor(consumer, Handler(), retry=None, on_failure=topics, **arguments)
        return run_until_finished(processor, 3)


def test_an_aborted_transaction_is_tried_again(cluster: FakeCluster) -> None:
    """Record and offset are in one transaction, which follows those that were aborted."""
    producer = Recorder(failures=2)
    assert 1 == process_with(cluster, producer).failed
    [(values, committed)] = producer.written
    assert ([b"bad"], 2) == (values, producer.aborted)
    assert committed[("orders", 0)] >= 2  # the next record has not waited


@pytest.mark.parametrize("aborts", [True, False])
def test_transactions_that_fail_end_the_run(cluster: FakeCluster, aborts: bool) -> None:
    """If all fail for `timeout_s`, or one cannot be aborted, the error ends the run. The record is not finished."""
    producer = Recorder(failures=10**9, aborts=aborts)
    with pytest.raises(RuntimeError, match="cannot commit"):
        process_with(cluster, producer)
    assert ([], 1) == (producer.written, offsets(cluster)["orders"])


def test_no_commit_is_in_flight_during_a_transaction(cluster: FakeCluster) -> None:
    """It would be stored later than the offsets of the transaction, without the record that this hands over."""
    cluster.produce("orders", [f"{'bad' if n % 10 == 0 else n}" for n in range(100)])
    cluster.delay("OffsetCommit", 0.05)
    in_flight: list[bool] = []
    processors: list[Processor] = []
    producer = Recorder(at=lambda: in_flight.extend(each._state.commits.in_flight for each in processors))
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(producer, DELAYS_S, DEAD)
        processors.append(Processor(consumer, Handler(), retry=None, on_failure=topics, commit_interval_s=0.001))
        assert 11 == processors[0].run().failed
    assert {False} == set(in_flight)


def test_a_stopped_run_hands_over_what_has_failed(cluster: FakeCluster) -> None:
    """A record whose last attempt failed before the stop is handed over before the last commit."""
    producer = Recorder()
    with Consumer("orders", **options(cluster)) as consumer:
        topics = RetryTopics(producer, DELAYS_S, DEAD)

        def handle(record: ConsumerRecord) -> None:
            if record.value == b"bad":
                processor._state.reason = "test"  # the loop makes no further step
                raise ValueError

        processor = Processor(consumer, handle, order="none", retry=None, on_failure=topics)
        assert 1 == processor.run().failed
    assert [([b"bad"], {("orders", 0): 3})] == producer.written


def test_wrong_arguments(cluster: FakeCluster) -> None:
    """Producers, delays and consumers that are not possible are refused."""
    producer = confluent(cluster)
    with pytest.raises(ConfigError, match="RetryTopics takes a producer of"):
        RetryTopics(object(), DELAYS_S, DEAD)
    for delays in ([], [0], [1, 1]):
        with pytest.raises(ConfigError, match="delays must be different"):
            RetryTopics(producer, delays, DEAD)
    topics = RetryTopics(producer, DELAYS_S, DEAD)
    with (
        Consumer("orders", **options(cluster, auto_offset_reset="latest")) as consumer,
        pytest.raises(ConfigError, match="auto_offset_reset='earliest'"),
    ):
        process(consumer, Handler(), on_failure=topics)
    with (
        Consumer("orders", **options(cluster, isolation_level="read_uncommitted")) as consumer,
        pytest.raises(ConfigError, match="isolation_level='read_committed'"),
    ):
        process(consumer, Handler(), on_failure=RetryTopics(Recorder(), DELAYS_S, DEAD))
    with Consumer(**options(cluster)) as consumer:
        consumer.assign([("orders", 0)])
        with pytest.raises(ConfigError, match="subscribed to topics by their names"):
            process(consumer, Handler(), on_failure=topics)
    share = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "s", "share_acknowledgement_mode": "explicit"}
    with ShareConsumer("orders", **share) as consumer, pytest.raises(ConfigError, match="not for share groups"):
        process(consumer, Handler(), order="none", on_failure=topics)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # as above
def test_transactional_producers_that_cannot_be_used(cluster: FakeCluster) -> None:
    """One that was not initialized is refused, and that of kafka-python."""
    from confluent_kafka import Producer
    from kafka import KafkaProducer

    producers: list[tuple[Any, str]] = [
        (Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "x"}), "init_transactions"),
        (KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"), "confluent-kafka or aio"),
    ]
    with Consumer("orders", **options(cluster)) as consumer:
        for producer, message in producers:
            with pytest.raises(ConfigError, match=message):
                process(consumer, Handler(), on_failure=RetryTopics(producer, DELAYS_S, DEAD))
    producers[1][0].close()
