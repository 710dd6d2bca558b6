"""User code that polls or raises inside a poll, and changes of a log meanwhile: no record is lost or repeated."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer import Consumer, ConsumerRecords, ShareConsumer, TopicPartition
from kconsumer.testing import FakeCluster

TP = TopicPartition("t", 0)
LIMIT_S = 20.0


class Stop(Exception):
    """What a signal handler raises."""


@pytest.fixture
def stopping() -> Iterator[Callable[[str, str, str], None]]:
    """Returns a function that lets a handler raise Stop at the next profiling event in a function of a module."""

    def raise_stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, raise_stop)

    def stop_at(event: str, module: str, function: str) -> None:
        def profile(frame: Any, kind: str, result: Any) -> None:
            code = frame.f_code
            found = kind == event and code.co_name == function and code.co_filename.endswith(module)
            if found and (kind == "call" or result):
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGUSR1)

        sys.setprofile(profile)

    yield stop_at
    sys.setprofile(None)
    signal.signal(signal.SIGUSR1, before)


def test_a_share_consumer_polls_in_a_callback() -> None:
    """on_acknowledge polls while the outer poll waits: the records that the outer poll receives then are returned."""
    returned: list[bytes] = []

    def on_acknowledge(*_: object) -> None:
        if not nested:
            nested.append(True)
            returned.extend(record.value for record in consumer.poll(0))

    nested: list[bool] = []
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.configure_group("s", **{"share.auto.offset.reset": "earliest"})
        with ShareConsumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, group_id="s", on_acknowledge=on_acknowledge
        ) as consumer:
            cluster.produce("t", [b"0"])
            _poll_until(consumer, returned, 1)
            later = threading.Timer(0.5, lambda: cluster.produce("t", [b"a", b"b"]))
            later.start()
            _poll_until(consumer, returned, 3)
            later.join()
    assert nested
    assert [b"0", b"a", b"b"] == returned


def test_a_handler_raises_while_the_lock_is_taken_again(stopping: Callable[[str, str, str], None]) -> None:
    """After a handler has raised at the end of a deserializer, the next poll returns the records."""
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0", b"1"])
        for module, function in (("deferred_signals.py", "__exit__"), ("engine/section.py", "__exit__")):
            with Consumer(bootstrap_servers=cluster.bootstrap_servers, value_deserializer=bytes) as consumer:
                consumer.assign([TP])
                consumer.seek(TP, 0)
                stopping("call", module, function)
                with pytest.raises(Stop):
                    consumer.poll(LIMIT_S)
                assert [0, 1] == [record.offset for record in consumer.poll(LIMIT_S)]


def test_a_seek_after_an_interrupted_poll(stopping: Callable[[str, str, str], None]) -> None:
    """A handler raises when a poll has taken records and not returned them. A later seek holds, and polls that do not
    wait find all records.
    """
    with FakeCluster() as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"0", b"1"])
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            stopping("return", "consumer.py", "_poll")
            with pytest.raises(Stop):
                consumer.poll(LIMIT_S)
            assert 0 == consumer.position(TP)
            consumer.seek_to_end(TP)
            assert 2 == consumer.position(TP)
            cluster.produce("t", [b"2"])
            assert [2] == [record.offset for record in consumer.poll(LIMIT_S)]


class Truncation:
    """An interceptor. While it first runs, an unclean election truncates the log below the records it has seen."""

    def __init__(self, truncate: Callable[[], None]) -> None:
        self._truncate: Callable[[], None] | None = truncate

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Truncate the log, and wait until the consumer has noticed it."""
        if self._truncate is not None:
            truncate, self._truncate = self._truncate, None
            truncate()
        return records


def test_a_log_is_truncated_while_an_interceptor_runs() -> None:
    """The records before the truncation are returned once."""
    with FakeCluster(brokers=3) as cluster:
        unclean: dict[str, Any] = {"unclean.leader.election.enable": "true"}
        cluster.create_topic("t", replication_factor=2, **unclean)
        cluster.move_leader("t", 0, 1)
        cluster.produce("t", [b"0", b"1", b"2"])
        cluster.kill(2)
        cluster.produce("t", [b"old0", b"old1"])

        def truncate() -> None:
            cluster.kill(1)
            cluster.start(2)
            cluster.produce("t", [b"new0", b"new1", b"new2"])
            began = time.monotonic()
            while time.monotonic() - began < LIMIT_S and consumer.partition_states()[TP].high_watermark != 6:
                time.sleep(0.02)

        with Consumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            group_protocol="consumer",
            auto_offset_reset="earliest",
            interceptors=[Truncation(truncate)],
            metadata_max_age_ms=300,
        ) as consumer:
            seen: list[tuple[int, bytes]] = []
            began = time.monotonic()
            while len(seen) < 6 and time.monotonic() - began < 2 * LIMIT_S:
                seen += [(record.offset, record.value) for record in consumer.poll(1)]
    new = [(3, b"new0"), (4, b"new1"), (5, b"new2")]
    assert [(0, b"0"), (1, b"1"), (2, b"2")] == [each for each in seen if each[0] < 3]
    assert new == [each for each in seen if each[1].startswith(b"new")]


def _poll_until(consumer: ShareConsumer, returned: list[bytes], count: int) -> None:
    began = time.monotonic()
    while len(returned) < count and time.monotonic() - began < LIMIT_S:
        returned += [record.value for record in consumer.poll(1.5)]
