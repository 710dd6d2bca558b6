"""How a consumer stops: wakeup, Ctrl-C, fork and garbage collection. The effects of close() in each state are in
test_close_states.py.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest

from kconsumer import Consumer, TopicPartition
from kconsumer.errors import ConcurrentAccessError, ForkedConsumerError, WakeupError
from support.brokers.kafka import Kafka
from support.harnesses.stopwatch import Stopwatch

Options = dict[str, Any]


def member(kafka: Kafka, topic: str, engine: Options) -> Consumer:
    """Make a member of the group that has the name of its topic."""
    return Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic, **engine)


def after(delay_s: float, action: object) -> threading.Timer:
    """Call a function from another thread after a short delay."""
    timer = threading.Timer(delay_s, action)  # type: ignore[arg-type]
    timer.start()
    return timer


def test_constructor_connects_nothing_and_starts_nothing() -> None:
    """The constructor opens no descriptor and starts no thread, even if no process listens at the address."""
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    assert (descriptors, threads) == (len(os.listdir("/proc/self/fd")), threading.active_count())
    consumer.close()


def test_close_does_not_wait_for_a_fetch(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """close() commits and leaves the group at once, although the broker delays the response to a fetch for 20 s."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"value"])
    options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20_000}
    with member(kafka, topic_name, engine | options) as consumer:
        while not consumer.poll(1.0):
            pass
        assert not consumer.poll(0.5)
        watch = Stopwatch()
        consumer.close()
        assert watch.seconds() < 10.0
    with member(kafka, topic_name, engine) as consumer:
        committed = consumer.committed([TopicPartition(topic_name, 0)])
        assert [1] == [offset and offset.offset for offset in committed.values()]


def test_wakeup_ends_a_blocked_poll(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """wakeup() from another thread ends one blocked poll within a second; the next poll works."""
    kafka.create_topic(topic_name)
    with member(kafka, topic_name, engine) as consumer:
        after(0.5, consumer.wakeup)
        watch = Stopwatch()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        assert watch.seconds() < 1.5
        assert not consumer.poll(0.1)


def test_wakeup_without_a_running_call_ends_the_next_one(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """A wakeup between calls ends the next blocking call, and only that one."""
    kafka.create_topic(topic_name)
    with member(kafka, topic_name, engine) as consumer:
        consumer.wakeup()
        consumer.pause()  # pause() does not block, so it does not consume the wakeup
        with pytest.raises(WakeupError):
            consumer.poll(60)
        assert not consumer.poll(0.1)


CTRL_C = """
import json, sys, time, kconsumer
servers, topic, engine = sys.argv[1:]
consumer = kconsumer.Consumer(topic, bootstrap_servers=servers, group_id=topic, **json.loads(engine))
print("ready", flush=True)
try:
    with consumer:
        while True:
            consumer.poll(60)
            print("polled", flush=True)
except KeyboardInterrupt:
    print("closed", flush=True)
"""


def test_ctrl_c_ends_a_blocked_poll_and_leaves_the_group(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """SIGINT during a long poll raises KeyboardInterrupt within a second, and `with` still leaves the group."""
    kafka.create_topic(topic_name)
    command = [sys.executable, "-c", CTRL_C, kafka.bootstrap_servers, topic_name, json.dumps(engine)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        deadline = time.monotonic() + 20
        while kafka.group_state(topic_name) != "STABLE":
            assert time.monotonic() < deadline, "the member never joined"
            time.sleep(0.1)
        watch = Stopwatch()
        process.send_signal(signal.SIGINT)
        output = process.stdout.read()
        assert 0 == process.wait()
        assert watch.clock() < 1.5
    assert output.endswith("closed\n")
    assert "EMPTY" == kafka.group_state(topic_name)


def test_a_listener_that_never_responds(engine: Options) -> None:
    """If a listener never sends a response, poll() and close() return in time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        consumer = Consumer("t", bootstrap_servers=f"127.0.0.1:{port}", group_id="g", **engine)
        watch = Stopwatch()
        assert not consumer.poll(0.5)
        consumer.close(timeout=1)
        assert watch.seconds() < 2


@pytest.mark.classic_protocol
def test_forked_child_gets_an_error_and_the_parent_continues(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """In a forked child every call raises ForkedConsumerError; the parent's connections are not affected."""
    kafka.create_topic(topic_name)
    kafka.produce(topic_name, [b"one"])
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", **engine) as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        while not consumer.poll(5):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # this test forks a process with threads on purpose
            child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.poll(1)
            except ForkedConsumerError:
                try:
                    consumer.close()
                except ForkedConsumerError:
                    code = 0
            finally:
                del consumer
                gc.collect()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert 0 == os.waitstatus_to_exitcode(status)
        kafka.produce(topic_name, [b"two"])
        (record,) = consumer.poll(10)
        assert b"two" == record.value


def test_second_thread_is_refused_at_once(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """While one thread polls, another thread's call raises ConcurrentAccessError without waiting."""
    kafka.create_topic(topic_name)
    with member(kafka, topic_name, engine) as consumer:
        thread = threading.Thread(target=consumer.poll, args=(1.5,))
        thread.start()
        time.sleep(0.3)
        watch = Stopwatch()
        with pytest.raises(ConcurrentAccessError, match="another thread"):
            consumer.poll(5)
        assert watch.seconds() < 0.2
        thread.join()


def test_unclosed_consumer_warns() -> None:
    """A consumer that is garbage-collected without close() causes a ResourceWarning that contains its name."""
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", client_id="forgotten", group_id="g")
    with pytest.warns(ResourceWarning, match=r"^unclosed <Consumer 'forgotten' group='g'>; use "):
        del consumer  # the last reference: CPython collects it here


def test_the_thread_ends_with_the_consumer(kafka: Kafka, topic_name: str, engine: Options) -> None:
    """The consumer's only thread, for heartbeats or the network, is a daemon whose name contains the group, and has
    ended after close().
    """
    kafka.create_topic(topic_name)
    classic = "heartbeat_interval_ms" in engine and "engine" not in engine
    name = f"kconsumer-{'heartbeat' if classic else 'network'}-{topic_name}"
    with member(kafka, topic_name, engine) as consumer:
        consumer.poll(1)
        (thread,) = [t for t in threading.enumerate() if t.name == name]
        assert thread.daemon
    assert name not in [t.name for t in threading.enumerate()]
