"""close() in every state a consumer can be in, with every engine: in time, out of the group, nothing left behind.

A row of the table brings a consumer into a state and says what closing it must do: which callbacks it runs, what is
committed afterwards, whether the group still has the member. The columns are the engines. The group is looked at from
outside, by a `GroupClient`; threads and descriptors in this process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kconsumer import Consumer
from kconsumer.coordinator.classic_protocol.state import MemberState
from kconsumer.coordinator.consumer_protocol.state import MemberState as ConsumerMemberState
from kconsumer.errors import BrokerError, StateError, WakeupError
from kconsumer.groups import GroupClient
from support.brokers.kafka import Kafka, KafkaCluster, KafkaNode
from support.brokers.kafka_admin import wait_until
from support.harnesses.polling import Recorder, await_assignment, numbered, poll_until, read, tps
from support.members.remove_member import remove_static_member

ENGINES: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 200, "session_timeout_ms": 20_000},
    "threaded": {"heartbeat_interval_ms": 200, "session_timeout_ms": 20_000, "engine": "threaded"},
    "consumer": {"group_protocol": "consumer"},
}
IN_TIME_S = 1.5  # one fetch may be in flight at the broker for `fetch_max_wait_ms`, which is 500
RECORDS = 5  # in each of the two partitions
ALL_READ = {0: RECORDS, 1: RECORDS}


@dataclass
class Outcome:
    """What closing must have done."""

    kinds: list[str] = field(default_factory=list)  # the callbacks, from the consumer's beginning
    committed: dict[int, int] = field(default_factory=dict)
    members: int = 0  # of the group, once it is closed
    within_s: float = IN_TIME_S


JOINED = ["assigned", "revoked"]
LOST = ["assigned", "lost"]


class Scene:
    """A consumer in the making, its listener, and whoever else is in its group."""

    def __init__(self, kafka: Kafka, topic: str, engine: str, groups: GroupClient, stack: ExitStack) -> None:
        self.kafka, self.topic, self.engine, self.groups = kafka, topic, engine, groups
        self.group = f"close-{uuid.uuid4().hex[:12]}"
        self.both = tps(topic, 0, 1)
        self.listener = Recorder()
        self.close: Callable[[], object] = lambda: self.consumer.close(5)
        self._stack = stack
        self.consumer: Consumer

    @property
    def epochs(self) -> bool:
        """Whether the members speak the consumer protocol."""
        return self.engine == "consumer"

    def make(self, **options: Any) -> Consumer:
        """The consumer that will be closed."""
        self.consumer = self.other(**options)
        return self.consumer

    def other(self, **options: Any) -> Consumer:
        """One more consumer of the group."""
        chosen = {
            "bootstrap_servers": self.kafka.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            **ENGINES[self.engine],
            **options,
        }
        return self._stack.enter_context(Consumer(**chosen))

    def subscribed(self, **options: Any) -> Consumer:
        """The consumer, subscribed with the listener."""
        consumer = self.make(**options)
        consumer.subscribe([self.topic], listener=self.listener)
        return consumer

    def stable(self, **options: Any) -> Consumer:
        """The consumer as the only member, all records read, a fetch in flight, nothing committed."""
        consumer = self.subscribed(**options)
        read(consumer, 2 * RECORDS)
        consumer.poll(0)
        return consumer

    def state(self, consumer: Consumer) -> Any:
        """The member's state inside the client: some of them last too short to be met from outside."""
        group = consumer._engine.components.group
        assert group is not None
        return group.member.state

    def members(self) -> int:
        """How many members the coordinator counts."""
        with suppress(BrokerError):  # the group never was, or is gone
            return len(self.groups.describe(self.group).members)
        return 0

    def committed(self) -> dict[int, int]:
        """What the group committed."""
        try:
            found = self.groups.offsets(self.groups.describe(self.group))
        except BrokerError:
            return {}
        return {tp.partition: offset.committed for tp, offset in found.items() if offset.committed is not None}


Row = Callable[[Scene], Outcome]
ROWS: dict[str, tuple[Row, tuple[str, ...]]] = {}


def row(*engines: str) -> Callable[[Row], Row]:
    """A row of the table, for these engines or for all."""

    def keep(bring: Row) -> Row:
        ROWS[bring.__name__] = bring, engines or tuple(ENGINES)
        return bring

    return keep


# --- before there is a membership ------------------------------------------------------------------------------------


@row()
def never_used(scene: Scene) -> Outcome:
    """Made, and nothing else."""
    scene.make()
    return Outcome(within_s=0.5)


@row()
def never_polled(scene: Scene) -> Outcome:
    """Subscribed, but never polled: it has not connected."""
    scene.subscribed()
    return Outcome(within_s=0.5)


@row()
def no_broker(scene: Scene) -> Outcome:
    """Nobody listens at the address: metadata is unknown."""
    scene.subscribed(bootstrap_servers="127.0.0.1:1").poll(0.2)
    return Outcome()


@row()
def silent_broker(scene: Scene) -> Outcome:
    """Somebody listens, and never answers."""
    server = scene._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    scene.subscribed(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}").poll(0.2)
    return Outcome()


@row()
def unknown_topic(scene: Scene) -> Outcome:
    """A member of the group, but of a topic that does not exist."""
    consumer = scene.make(allow_auto_create_topics=False)
    consumer.subscribe([f"{scene.group}-none"], listener=scene.listener)
    poll_until(consumer, lambda: scene.members() == 1)
    return Outcome()


# --- on the way into the group ---------------------------------------------------------------------------------------


@row()
def first_request_under_way(scene: Scene) -> Outcome:
    """One poll(0): something was asked of a broker, and nothing is known yet."""
    scene.subscribed().poll(0)
    return Outcome()


@row()
def joining_while_another_holds_it_up(scene: Scene) -> Outcome:
    """The other member does not poll, so the join cannot end (classic), or has not given up what is due (consumer)."""
    held_up(scene)
    return Outcome(members=1)


@row()
def static_member_joining_while_another_holds_it_up(scene: Scene) -> Outcome:
    """The same for a static member, which stays."""
    held_up(scene, group_instance_id="i")
    return Outcome(members=2)


def held_up(scene: Scene, **options: Any) -> None:
    """Two members, of which the first one has everything and does not poll."""
    busy = scene.other(enable_auto_commit=False)
    busy.subscribe([scene.topic])
    await_assignment(busy, *scene.both)
    waiting = scene.subscribed(**options)
    poll_until(waiting, lambda: scene.members() == 2)
    for _ in range(3):
        assert not waiting.poll(0.1)


@row("classic", "threaded")
def syncing_while_the_leader_is_away(scene: Scene) -> Outcome:
    """JoinGroup is answered; the leader has not said yet who gets what."""
    leader = scene.other(engine="classic", assignors=["range"], enable_auto_commit=False)
    leader.subscribe([scene.topic])
    await_assignment(leader, *scene.both)
    follower = scene.subscribed(assignors=["range"])
    deadline = time.monotonic() + 10
    while not (scene.state(leader) is scene.state(follower) is MemberState.SYNCING):
        assert time.monotonic() < deadline, (scene.state(leader), scene.state(follower))
        if scene.state(leader) is not MemberState.SYNCING:
            leader.poll(0)
        follower.poll(0.01)
    return Outcome(members=1)


@row("consumer")
def assignment_that_the_caller_has_not_heard_of(scene: Scene) -> Outcome:
    """The coordinator has given partitions; nobody polled since, so on_assign has not run and on_revoke must not."""
    consumer = scene.subscribed()
    while scene.state(consumer) is ConsumerMemberState.UNSUBSCRIBED:
        consumer.poll(0)
    wait_until(lambda: scene.state(consumer) is ConsumerMemberState.RECONCILING, 10, "an assignment")
    return Outcome()


# --- a member --------------------------------------------------------------------------------------------------------


@row()
def fetch_in_flight(scene: Scene) -> Outcome:
    """All is read and not committed; the brokers hold a fetch. Positions are committed."""
    scene.stable()
    return Outcome(JOINED, ALL_READ)


@row()
def without_auto_commit(scene: Scene) -> Outcome:
    """The same, and the caller wants to commit by himself: nothing is."""
    scene.stable(enable_auto_commit=False)
    return Outcome(JOINED)


@row()
def records_not_returned_yet(scene: Scene) -> Outcome:
    """Some records were returned and the others are buffered: only the former are committed."""
    consumer = scene.subscribed(max_poll_records=3)
    poll_until(consumer, lambda: consumer.assignment())
    records = poll_until(consumer, lambda: all(map(consumer.current_lag, scene.both)))  # both ends are known
    while len(records) < 3:
        records += consumer.poll(0.5)
    ends: dict[int, int] = {0: 0, 1: 0}
    for record in records:
        ends[record.partition] = record.offset + 1
    return Outcome(JOINED, ends)


@row()
def paused(scene: Scene) -> Outcome:
    """Paused partitions are committed and given up as the others."""
    consumer = scene.stable()
    consumer.pause(*scene.both)
    consumer.poll(0)
    return Outcome(JOINED, ALL_READ)


@row()
def commits_in_flight(scene: Scene) -> Outcome:
    """Asynchronous commits in flight end, in order, and their callbacks run before close() returns."""
    consumer = scene.stable(enable_auto_commit=False)
    told: list[object] = []
    for offset in (1, 2, 3):
        consumer.commit_async(dict.fromkeys(scene.both, offset), lambda _offsets, error: told.append(error))

    def close() -> None:
        consumer.close(5)
        assert [None] * 3 == told

    scene.close = close
    return Outcome(JOINED, {0: 3, 1: 3})


@row()
def wakeup_pending(scene: Scene) -> Outcome:
    """A wakeup() that no call has heard does not disturb close()."""
    scene.stable().wakeup()
    return Outcome(JOINED, ALL_READ)


@row()
def after_a_wakeup(scene: Scene) -> Outcome:
    """A poll was ended by wakeup()."""
    consumer = scene.stable()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(5)
    return Outcome(JOINED, ALL_READ)


@row()
def exception_in_a_with_block(scene: Scene) -> Outcome:
    """What was being processed is not committed; the group is left all the same, and the error comes through."""
    consumer = scene.stable()

    def close() -> None:
        with pytest.raises(ZeroDivisionError), consumer:
            raise ZeroDivisionError

    scene.close = close
    return Outcome(JOINED)


@row()
def coordinator_lost_just_now(scene: Scene) -> Outcome:
    """It is looked for again, so that the group can be left, although there is nothing to commit."""
    consumer = scene.stable(enable_auto_commit=False)
    group = consumer._engine.components.group
    assert group is not None

    def close() -> None:
        with consumer._engine.changing():
            group.coordinator.mark_unknown("a test", consumer._engine.components.clock.now())
        consumer.close(5)

    scene.close = close
    return Outcome(JOINED)


@row()
def forked(scene: Scene) -> Outcome:
    """close() in a forked child refuses at once; the parent, whose connections it had in its hands, continues."""
    consumer = scene.stable()

    def close() -> None:
        assert "ForkedConsumerError" == trouble_in_child(consumer.close)
        consumer.poll(0)
        consumer.commit()
        consumer.close(5)

    scene.close = close
    return Outcome(JOINED, ALL_READ)


def trouble_in_child(call: Callable[[], object]) -> str:
    """The name of the error that a call raises in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what this is about
        child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        name = answer.read().decode()
    os.waitpid(child, 0)
    return name


@row()
def listener_that_raises(scene: Scene) -> Outcome:
    """What on_revoke raises comes out of close(), after everything else was done."""
    scene.listener.during["revoked"] = _fail
    consumer = scene.stable()

    def close() -> None:
        with pytest.raises(ZeroDivisionError):
            consumer.close(5)

    scene.close = close
    return Outcome(JOINED, ALL_READ)


def _fail(*_: object) -> None:
    raise ZeroDivisionError


@row()
def second_close(scene: Scene) -> Outcome:
    """Closing again does nothing, at once; any other call says that the consumer is closed."""
    consumer = scene.stable()

    def close() -> None:
        consumer.close(5)
        consumer.close()
        with pytest.raises(StateError, match="closed"):
            consumer.poll(0)

    scene.close = close
    return Outcome(JOINED, ALL_READ)


@row()
def no_time_at_all(scene: Scene) -> Outcome:
    """close(timeout=0) waits for nobody, but says goodbye: callbacks run, and the commit and the leave are sent."""
    consumer = scene.stable()
    scene.close = lambda: consumer.close(timeout=0)
    return Outcome(JOINED, ALL_READ, within_s=0.5)


# --- a member that stays ---------------------------------------------------------------------------------------------


@row()
def static_member(scene: Scene) -> Outcome:
    """A static member keeps its place."""
    scene.stable(group_instance_id="i")
    return Outcome(JOINED, ALL_READ, members=1)


@row()
def static_member_told_to_leave(scene: Scene) -> Outcome:
    """close(leave_group=True) gives it up."""
    consumer = scene.stable(group_instance_id="i")
    scene.close = lambda: consumer.close(5, leave_group=True)
    return Outcome(JOINED, ALL_READ)


@row()
def dynamic_member_told_to_stay(scene: Scene) -> Outcome:
    """close(leave_group=False) keeps a dynamic member's place until its session ends."""
    consumer = scene.stable()
    scene.close = lambda: consumer.close(5, leave_group=False)
    return Outcome(JOINED, ALL_READ, members=1)


# --- inside callbacks ------------------------------------------------------------------------------------------------


def close_it(consumer: Consumer, _partitions: object) -> None:
    """A callback that closes its consumer."""
    consumer.close(5)


@row()
def inside_on_assign(scene: Scene) -> Outcome:
    """on_assign closes: on_revoke takes back what was just given, and poll returns."""
    scene.listener.during["assigned"] = close_it
    consumer = scene.subscribed()
    scene.close = lambda: consumer.poll(10)
    return Outcome(JOINED, within_s=5)


@row()
def inside_on_revoke(scene: Scene) -> Outcome:
    """on_revoke of unsubscribe() closes: nobody is told a second time."""
    scene.listener.during["revoked"] = close_it
    consumer = scene.stable(enable_auto_commit=False)
    scene.close = consumer.unsubscribe
    return Outcome(JOINED)


@row()
def inside_on_lost(scene: Scene) -> Outcome:
    """on_lost after max_poll_interval_ms closes: nobody is told a second time."""
    scene.listener.during["lost"] = close_it
    consumer = scene.stable(max_poll_interval_ms=400)
    wait_until(lambda: scene.members() == 0, 10, "the idle member to leave")
    scene.close = lambda: consumer.poll(10)
    return Outcome(LOST, within_s=5)


# --- no member any more ----------------------------------------------------------------------------------------------


@row()
def poll_interval_exceeded(scene: Scene) -> Outcome:
    """The member has left by itself: on_lost, and no commit, which could undo another member's."""
    scene.stable(max_poll_interval_ms=400)
    wait_until(lambda: scene.members() == 0, 10, "the idle member to leave")
    return Outcome(LOST)


@row()
def fenced(scene: Scene) -> Outcome:
    """An administrator has removed the member, and it has heard of it."""
    consumer = scene.stable(group_instance_id="i")
    before = scene.state(consumer)
    remove_static_member(scene.kafka, scene.group, "i")
    wait_until(lambda: scene.state(consumer) is not before, 10, "the member to hear of it")
    return Outcome(LOST)


@row()
def fenced_and_not_aware_of_it(scene: Scene) -> Outcome:
    """An administrator has just removed the member. The commit of close() is refused, which tells a classic member that
    it is none; in the consumer protocol only heartbeats do, as in Java."""
    scene.stable(group_instance_id="i")
    remove_static_member(scene.kafka, scene.group, "i")
    return Outcome(JOINED if scene.epochs else LOST)


@row()
def unsubscribed(scene: Scene) -> Outcome:
    """unsubscribe() has left the group; it does not commit, and close() has nothing more to say."""
    scene.stable().unsubscribe()
    return Outcome(JOINED)


# --- without group management ----------------------------------------------------------------------------------------


@row()
def assigned_by_hand(scene: Scene) -> Outcome:
    """No membership and no callbacks, but positions are committed for the group."""
    consumer = scene.make()
    consumer.assign(scene.both)
    read(consumer, 2 * RECORDS)
    return Outcome([], ALL_READ)


@row()
def assigned_by_hand_without_a_group(scene: Scene) -> Outcome:
    """There is nothing to tell anybody."""
    options = {"group_id": None, "group_protocol": "classic"}
    consumer = scene.make(**{**options, **({"engine": "threaded"} if scene.epochs else {})})
    consumer.assign(scene.both)
    read(consumer, 2 * RECORDS)
    return Outcome()


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Two partitions with five records each, for all rows."""
    return filled(kafka)


@pytest.fixture(scope="module")
def groups(kafka: Kafka) -> Iterator[GroupClient]:
    """Looks at groups from outside."""
    with GroupClient(kafka.bootstrap_servers) as client:
        client.list()
        yield client


def our_threads() -> set[str]:
    """The names of kconsumer's threads in this process."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("kconsumer-")}


def descriptors() -> set[str]:
    """Open sockets, selectors and event descriptors of this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith(("socket:", "anon_inode:")):
                found.add(f"{number} {target}")
    return found


KIP_848 = {"consumer": [pytest.mark.consumer_protocol]}
CELLS = [
    pytest.param(state, engine, marks=KIP_848.get(engine, ()))
    for state, (_, engines) in ROWS.items()
    for engine in engines
]


@pytest.mark.parametrize(("state", "column"), CELLS)
def test_close(kafka: Kafka, topic: str, groups: GroupClient, state: str, column: str) -> None:
    """Closing in this state does what the row says, in time, and leaves nothing behind."""
    kafka.group_state(topic)  # the admin client has its connections
    groups.list()
    before = descriptors()
    with ExitStack() as others:
        scene = Scene(kafka, topic, column, groups, others)
        bring, _ = ROWS[state]
        expected = bring(scene)
        began = time.monotonic()
        scene.close()
        took = time.monotonic() - began
        threads = {name for name in our_threads() if name.endswith(scene.group)}
        assert expected.kinds == [kind for kind, partitions in scene.listener.calls if partitions]
        if not expected.members:  # the other consumer's threads are still at work
            assert set() == threads
        assert took < expected.within_s
        wait_until(lambda: scene.members() == expected.members, 3, f"{expected.members} members; {scene.members()}")
        wait_until(lambda: scene.committed() == expected.committed, 1, f"a commit; there is {scene.committed()}")
    assert set() == our_threads()
    wait_until(lambda: not descriptors() - before, 3, "the end of all descriptors")


# --- brokers that are gone -------------------------------------------------------------------------------------------


def filled(kafka: Kafka, brokers: list[int] | None = None) -> str:
    """The topic of the rows, on these brokers."""
    name = f"close-{uuid.uuid4().hex[:8]}"
    if brokers is None:
        kafka.create_topic(name, 2)
    else:
        kafka.create(NewTopic(name, 2, replica_assignment=[brokers, brokers]))
    for partition in (0, 1):
        kafka.produce(name, numbered(RECORDS), partition=partition)
    return name


def closed_in(scene: Scene, timeout_s: float) -> float:
    """How long close(timeout) took, in seconds."""
    began = time.monotonic()
    scene.consumer.close(timeout_s)
    return time.monotonic() - began


def test_the_only_broker_is_gone() -> None:
    """A broker suspended, then killed: close() ends in its time, on_revoke runs, nothing is left."""
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster())
        topic = filled(cluster)
        groups = stack.enter_context(GroupClient(cluster.bootstrap_servers))
        fates = [(fate, engine) for fate in (cluster.nodes[0].pause, cluster.nodes[0].kill) for engine in ENGINES]
        scenes = [(fate, Scene(cluster, topic, engine, groups, stack)) for fate, engine in fates]
        for _, scene in scenes:
            scene.stable()
        for fate, scene in scenes:
            fate()
            assert closed_in(scene, 0.7) < IN_TIME_S, (fate, scene.engine)
            assert JOINED == scene.listener.kinds, (fate, scene.engine)
    assert set() == our_threads()


def test_the_coordinator_goes() -> None:
    """The coordinator hands its groups over, or is killed, just before close(): the positions are committed and the
    group is left at the broker that takes its place."""
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(nodes=3))
        groups = stack.enter_context(GroupClient(cluster.bootstrap_servers))
        for end in (KafkaNode.stop, KafkaNode.kill):
            coordinator = cluster.node(cluster.coordinator_of("any"))  # one that was started again leads nothing yet
            # The partitions stay where they are: what is being validated against a new leader is not committed.
            topic = filled(cluster, [node.node_id for node in cluster.nodes if node is not coordinator])
            scenes = [Scene(cluster, topic, engine, groups, stack) for engine in ENGINES]
            for scene in scenes:
                name, number = scene.group, 0
                # Numbers, not the same letter again: that may leave a hash at the same remainder for ever.
                while cluster.coordinator_of(scene.group) != coordinator.node_id:
                    scene.group, number = f"{name}-{number}", number + 1
                scene.stable(request_timeout_ms=5000)
            end(coordinator)
            for scene in scenes:
                assert closed_in(scene, 20) < 20, (end, scene.engine)
                assert JOINED == scene.listener.kinds, (end, scene.engine)
                assert ALL_READ == scene.committed(), (end, scene.engine)
                assert 0 == scene.members(), (end, scene.engine)
            coordinator.start()
    assert set() == our_threads()
