"""Heartbeats and commits of a member whose polls run on the fast path."""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.dispatcher import Dispatcher
from kconsumer.engine.events import ApplicationEvent
from kconsumer.engine.fast_path import FastPathControl
from kconsumer.engine.threaded import ThreadedDriver
from kconsumer.managers import PollResult
from kconsumer.testing import FakeCluster
from support.harnesses.interruptions import Interruption, arrival, at_point, handler, points, raising
from support.harnesses.threads import eventually

pytestmark = pytest.mark.network_thread

TOPIC, PARTITIONS = "t", 2
HEARTBEAT_MS = 50
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic engine": {"heartbeat_interval_ms": HEARTBEAT_MS},
    "classic protocol": {"engine": "threaded", "heartbeat_interval_ms": HEARTBEAT_MS},
    "consumer protocol": {"group_protocol": "consumer"},  # the cluster of the test chooses the interval
}
LIMIT_S = 30.0
MAX_CALLS = 300  # of a poll that sends a heartbeat and returns a record


class Member:
    """A member of a group that reads a topic."""

    def __init__(self, cluster: FakeCluster, protocol: str, **options: Any) -> None:
        self.cluster = cluster
        defaults = {"auto_offset_reset": "earliest", "enable_metrics_push": False, "enable_auto_commit": False}
        servers = cluster.bootstrap_servers
        self.consumer = Consumer(
            TOPIC, bootstrap_servers=servers, group_id="g", **defaults | PROTOCOLS[protocol] | options
        )
        self.offsets: list[int] = []  # of the records of partition 0 that polls have returned

    @property
    def control(self) -> FastPathControl:
        """The fast path of the consumer."""
        control = self.consumer._engine._fast_path
        assert control is not None
        return control

    def read_one(self) -> None:
        """Write a record, and poll until it is returned."""
        count, end = len(self.offsets), time.monotonic() + LIMIT_S
        self.cluster.produce(TOPIC, [b"v"], partition=0)
        while len(self.offsets) == count:
            assert time.monotonic() < end, repr(self.consumer)
            self.offsets += [record.offset for record in self.consumer.poll(0.5)]

    def arm(self) -> None:
        """Read until the fast path has processed a response and is armed, and all managers were polled before."""
        end = time.monotonic() + LIMIT_S
        driver = self.consumer._engine.driver
        assert isinstance(driver, ClassicDriver | ThreadedDriver)
        iterations = driver._armed
        assert iterations is not None
        while not (self.control.path.responses and self.control.path.armed and iterations.current):
            assert time.monotonic() < end, repr(self.consumer)
            self.read_one()
            self.consumer.poll(0.01)


@contextmanager
def member(protocol: str, **options: Any) -> Iterator[Member]:
    """A member with all partitions of the topic. Its fast path is armed."""
    with FakeCluster(group_consumer_heartbeat_interval_ms=HEARTBEAT_MS) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        made = Member(cluster, protocol, **options)
        with made.consumer:
            made.arm()
            yield made


def settled(made: Member) -> list[str]:
    """Returns a list to which each settling of the fast path adds the calls that have led to it.

    The heartbeat thread of the classic engine is left out. Its steps are whole ones, if no call of poll() is running.
    """
    found: list[str] = []

    def settle() -> None:
        if not threading.current_thread().name.startswith("kconsumer-heartbeat"):
            found.append("".join(traceback.format_stack(limit=8)))
        made.control.settle()

    made.consumer._engine.components.lock.settle_with(made.control.path, settle)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_heartbeats_leave_the_fast_path_armed(protocol: str) -> None:
    """Heartbeats are sent and their responses handled without settling the fast path. It returns records meanwhile."""
    with member(protocol) as made:
        dispatcher = made.consumer._engine.components.dispatcher
        found, ended, responses = settled(made), dispatcher.ended, made.control.path.responses
        while dispatcher.ended < ended + 5:  # of heartbeats: a response to a fetch would settle the fast path
            made.read_one()
            assert not made.consumer.poll(2 * HEARTBEAT_MS / 1000)
        assert found == []
        assert made.control.path.responses > responses
        assert made.offsets == list(range(len(made.offsets)))


def test_the_response_to_an_auto_commit_leaves_the_fast_path_armed() -> None:
    """An auto-commit settles the fast path once, when it takes the positions, and not when its response arrives."""
    with member("classic protocol", enable_auto_commit=True, auto_commit_interval_ms=200) as made:
        commits = made.consumer._engine.components.group
        assert commits is not None
        found = settled(made)
        for _ in range(5):
            before, count = made.cluster.committed("g"), len(found)
            while made.cluster.committed("g") == before:
                made.read_one()
            made.arm()
            eventually(lambda: not commits.commits.pending_commits(), "the response to the commit")
            made.read_one()
            new = found[count:]
            assert all("_deliver_responses" not in calls for calls in new), new


def test_an_auto_commit_is_sent_before_the_fast_path_is_armed() -> None:
    """An auto-commit that a poll starts is sent, even if the poll then arms the fast path and queues no event."""
    with member("classic protocol", enable_auto_commit=True, auto_commit_interval_ms=300) as made:
        driver, parts = made.consumer._engine.driver, made.consumer._engine.components
        assert isinstance(driver, ThreadedDriver)
        assert parts.group is not None
        commits = parts.group.commits
        eventually(lambda: commits.auto_commit_due <= parts.clock.now(), "the auto-commit to be due")
        with parts.changing():  # ends the iterations that leave it armed
            pass
        eventually(driver.can_lease, "the network thread to wait")
        driver._poll_began(ApplicationEvent(joining=True, fetching=True), parts.clock.now())
        with parts.changing():
            made.control.arm(parts.clock.now())
        eventually(lambda: not commits.pending_commits(), "the response to the commit")


class Witness:
    """A manager that stores the number of requests that have ended whenever it is polled."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.found: list[int] = []
        self._dispatcher = dispatcher

    def poll(self, _now: float) -> PollResult:
        """Store the number. Nothing is sent."""
        self.found.append(self._dispatcher.ended)
        return PollResult()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_managers_are_polled_after_the_end_of_another_request(protocol: str) -> None:
    """The handler of a request may change when its manager is due. If the fast path is armed after it, the next
    iteration polls all managers, and not only that of heartbeats.
    """
    with member(protocol) as made:
        parts = made.consumer._engine.components
        witness = Witness(parts.dispatcher)
        with parts.changing():  # also ends the iteration in which the fast path was armed
            parts.managers.append(witness)
            made.consumer._engine.driver.request_manager_poll()
        eventually_polled(made, witness)
        made.arm()
        with parts.lock.inner:  # as if the fast path had been armed after this request
            parts.dispatcher.ended += 1
            ended = parts.dispatcher.ended
            witness.found.clear()
        eventually_polled(made, witness)
        assert witness.found[0] <= ended + 1, "more than one heartbeat was sent before"


def eventually_polled(made: Member, witness: Witness) -> None:
    """Poll, without settling the fast path, until the witness was polled."""
    end = time.monotonic() + LIMIT_S
    while not witness.found:
        assert time.monotonic() < end, repr(made.consumer)
        made.consumer.poll(HEARTBEAT_MS / 1000)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rebalance_reaches_a_member_on_the_fast_path(protocol: str) -> None:
    """The response to a heartbeat that starts a rebalance settles the fast path, and the next poll takes part in it."""
    with member(protocol) as made:
        other = Member(made.cluster, protocol)
        with other.consumer:
            end = time.monotonic() + LIMIT_S
            while not (len(made.consumer.assignment()) == len(other.consumer.assignment()) == 1):
                assert time.monotonic() < end
                made.consumer.poll(0.05)
                other.consumer.poll(0.05)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_on_the_fast_path_leaves_when_it_does_not_poll(protocol: str) -> None:
    """Polls on the fast path restart the poll interval, and the heartbeats meanwhile do not."""
    with member(protocol, max_poll_interval_ms=1500) as made:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            made.read_one()
        assert made.cluster.group("g").members
        eventually(lambda: not made.cluster.group("g").members, "the member to leave")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_heartbeat_to_a_lost_coordinator_settles_the_fast_path(protocol: str) -> None:
    """If the coordinator is lost while the fast path is armed, the member finds it again, and stays in the group."""
    with member(protocol) as made:
        client = made.consumer._engine.components.client
        before = made.consumer.group_metadata().member_id
        made.arm()
        for node in [node for name, node in client.loop.nodes.items() if name.startswith("+")]:
            assert node.transport is not None
            node.transport.raw.shutdown(2)
        dispatcher = made.consumer._engine.components.dispatcher
        ended = dispatcher.ended
        while dispatcher.ended < ended + 5:
            made.read_one()
        assert made.consumer.group_metadata().member_id == before
        assert made.offsets == list(range(len(made.offsets)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_log_calls_of_heartbeats_are_made(protocol: str) -> None:
    """A log handler is called for what a heartbeat logs while the fast path is armed, without the engine's lock."""
    with member(protocol) as made:
        parts = made.consumer._engine.components
        assert parts.group is not None
        heartbeat, owned = parts.group.heartbeat, []
        poll = heartbeat.poll

        def log_and_poll(now: float) -> PollResult:
            parts.user_calls.call(lambda: owned.append(parts.lock._is_owned()))
            return poll(now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(heartbeat, "poll", log_and_poll)
            found = settled(made)
            while not owned:
                made.read_one()
            assert found == []
        assert not any(owned)


class Intervals:
    """Takes the place of the sensor of the time between two iterations."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def record(self, value: float, _now: float) -> None:
        """Store a value."""
        self.found.append(value)


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "classic engine"])
def test_intervals_of_the_network_thread_are_measured(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metric of the time between two iterations of the network thread includes those that only send heartbeats."""
    with member(protocol) as made:
        intervals = Intervals()
        found = settled(made)
        monkeypatch.setattr(made.consumer._engine.driver, "_between", intervals)
        while len(intervals.found) < 5:
            made.read_one()
        assert found == []
        assert min(intervals.found) >= 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_long_poll_on_the_fast_path_is_not_idle(protocol: str) -> None:
    """A poll that waits on the fast path for longer than the poll interval does not exceed it, and the next call finds
    the member in its group.
    """
    with member(protocol, max_poll_interval_ms=500, fetch_max_wait_ms=5000) as made:
        generation = made.consumer.group_metadata().generation_id
        made.arm()
        assert not made.consumer.poll(1.2)
        made.consumer.commit()
        assert made.consumer.group_metadata().generation_id == generation


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "polls"])
def test_a_signal_between_a_heartbeat_and_a_record(raises: bool) -> None:
    """A signal handler runs at any point of a poll that sends a heartbeat and then returns a record. Whether it raises
    or polls itself, each record is returned once.
    """
    with member("classic engine") as made:

        def poll(_number: int, _frame: object) -> None:
            made.offsets += [record.offset for record in made.consumer.poll(0)]

        def poll_once() -> None:
            made.offsets += [record.offset for record in made.consumer.poll(4 * HEARTBEAT_MS / 1000)]

        for point in takewhile(lambda point: point < MAX_CALLS, points(5)):
            made.arm()
            written = len(made.offsets) + 1
            writer = threading.Timer(HEARTBEAT_MS / 1000, lambda: made.cluster.produce(TOPIC, [b"v"], partition=0))
            writer.start()
            with handler(signal.SIGUSR1, raising if raises else poll), suppress(Interruption):
                at_point(poll_once, point, arrival(signal.SIGUSR1))
            writer.join()
            end = time.monotonic() + LIMIT_S
            while len(made.offsets) < written:
                assert time.monotonic() < end, repr(made.consumer)
                poll_once()
            assert made.offsets == list(range(written)), point
