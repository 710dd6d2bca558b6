"""close() in every state a consumer can be in, with every engine: it ends in time, leaves the group, and leaves no
threads or descriptors behind.

A row of the table brings a consumer into a state and returns what closing must do: which callbacks run, what is
committed afterwards, and whether the group still has the member. The columns are the engines. A `GroupClient` inspects
the group from outside; threads and descriptors are counted in this process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator
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
from support.brokers.fake_kafka import FakeKafka
from support.brokers.kafka import Kafka, KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import release_of
from support.harnesses.inside import engine_of, parts_of
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
    """The expected effects of close()."""

    kinds: list[str] = field(default_factory=list)  # the callbacks that were called since the consumer was made
    committed: dict[int, int] = field(default_factory=dict)
    members: int = 0  # of the group, after close()
    within_s: float = IN_TIME_S
    waits: bool = True  # False: close() waits for no response, and a broker reads no request after the end of TCP


JOINED = ["assigned", "revoked"]
LOST = ["assigned", "lost"]


class Scene:
    """A consumer in one state, its listener, and the other members of its group."""

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
        """Returns whether the members use the consumer protocol."""
        return self.engine == "consumer"

    def make(self, **options: Any) -> Consumer:
        """Make the consumer that the test will close."""
        self.consumer = self.other(**options)
        return self.consumer

    def other(self, **options: Any) -> Consumer:
        """Make another consumer of the group."""
        chosen = {
            "bootstrap_servers": self.kafka.bootstrap_servers,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            **ENGINES[self.engine],
            **options,
        }
        return self._stack.enter_context(Consumer(**chosen))

    def subscribed(self, **options: Any) -> Consumer:
        """Make the consumer and subscribe it with the listener."""
        consumer = self.make(**options)
        consumer.subscribe([self.topic], listener=self.listener)
        return consumer

    def stable(self, **options: Any) -> Consumer:
        """Bring the consumer to where it is the only member, has read all records and committed none, and has a fetch
        in flight.
        """
        consumer = self.subscribed(**options)
        read(consumer, 2 * RECORDS)
        consumer.poll(0)
        return consumer

    def state(self, consumer: Consumer) -> Any:
        """Returns the member's state from the client's internals: some states are too short to observe from outside."""
        group = parts_of(consumer).group
        assert group is not None
        return group.member.state

    def joins(self, consumer: Consumer) -> bool:
        """Returns True if the member has sent JoinGroup, and has not sent SyncGroup."""
        group = parts_of(consumer).group
        assert group is not None
        state = group.member.state
        return state is MemberState.SYNCING or (state is MemberState.JOINING and group.membership.in_flight)

    def members(self) -> int:
        """Returns the number of members, according to the coordinator."""
        with suppress(BrokerError):  # the group never existed, or has been removed
            return len(self.groups.describe(self.group).members)
        return 0

    def committed(self) -> dict[int, int]:
        """Returns the committed offsets of the group."""
        try:
            found = self.groups.offsets(self.groups.describe(self.group))
        except BrokerError:
            return {}
        return {tp.partition: offset.committed for tp, offset in found.items() if offset.committed is not None}


Row = Callable[[Scene], Outcome]
ROWS: dict[str, tuple[Row, tuple[str, ...]]] = {}


def row(*engines: str) -> Callable[[Row], Row]:
    """Decorator that adds a row to the table, for the given engines or for all."""

    def keep(bring: Row) -> Row:
        ROWS[bring.__name__] = bring, engines or tuple(ENGINES)
        return bring

    return keep


# --- before there is a membership ------------------------------------------------------------------------------------


@row()
def never_used(scene: Scene) -> Outcome:
    """The consumer was made and not used."""
    scene.make()
    return Outcome(within_s=0.5)


@row()
def never_polled(scene: Scene) -> Outcome:
    """The consumer subscribed but never polled, so it has no connection."""
    scene.subscribed()
    return Outcome(within_s=0.5)


@row()
def no_broker(scene: Scene) -> Outcome:
    """No process listens at the address, so the consumer has no metadata."""
    scene.subscribed(bootstrap_servers="127.0.0.1:1").poll(0.2)
    return Outcome()


@row()
def silent_broker(scene: Scene) -> Outcome:
    """A listener accepts connections and never sends a response."""
    server = scene._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    scene.subscribed(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}").poll(0.2)
    return Outcome()


@row()
def unknown_topic(scene: Scene) -> Outcome:
    """The consumer is a member of the group, but its topic does not exist."""
    consumer = scene.make(allow_auto_create_topics=False)
    consumer.subscribe([f"{scene.group}-none"], listener=scene.listener)
    poll_until(consumer, lambda: scene.members() == 1)
    return Outcome()


# --- on the way into the group ---------------------------------------------------------------------------------------


@row()
def first_request_in_flight(scene: Scene) -> Outcome:
    """After one poll(0), the first request is in flight and the consumer has no metadata."""
    scene.subscribed().poll(0)
    return Outcome()


@row()
def joining_while_another_holds_it_up(scene: Scene) -> Outcome:
    """The other member does not poll. In the classic protocol the join cannot complete; in the consumer protocol that
    member has not revoked its partitions.
    """
    held_up(scene)
    return Outcome(members=1)


@row()
def static_member_joining_while_another_holds_it_up(scene: Scene) -> Outcome:
    """A static member waits to join, as in the row above; close() does not remove it from the group."""
    held_up(scene, group_instance_id="i")
    return Outcome(members=2)


def held_up(scene: Scene, **options: Any) -> None:
    """Make a second member while the first one owns all partitions and does not poll."""
    busy = scene.other(enable_auto_commit=False)
    busy.subscribe([scene.topic])
    await_assignment(busy, *scene.both)
    waiting = scene.subscribed(**options)
    poll_until(waiting, lambda: scene.members() == 2)
    for _ in range(3):
        assert not waiting.poll(0.1)


@row("classic", "threaded")
def syncing_while_the_leader_is_away(scene: Scene) -> Outcome:
    """JoinGroup got its response, but the leader has not sent the assignment yet."""
    leader = scene.other(engine="classic", assignors=["range"], enable_auto_commit=False)
    leader.subscribe([scene.topic])
    await_assignment(leader, *scene.both)
    follower = scene.subscribed(assignors=["range"])
    deadline = time.monotonic() + 10
    while not (scene.state(leader) is scene.state(follower) is MemberState.SYNCING):
        assert time.monotonic() < deadline, (scene.state(leader), scene.state(follower))
        if not scene.joins(leader):  # its next poll would send the assignment
            leader.poll(0)
        follower.poll(0.01)
    return Outcome(members=1)


@row("consumer")
def assignment_that_the_caller_has_not_heard_of(scene: Scene) -> Outcome:
    """The coordinator has assigned partitions, but the caller has not polled since. on_assign has not run, so on_revoke
    must not run.
    """
    consumer = scene.subscribed()
    while scene.state(consumer) is ConsumerMemberState.UNSUBSCRIBED:
        consumer.poll(0)
    wait_until(lambda: scene.state(consumer) is ConsumerMemberState.RECONCILING, 10, "an assignment")
    return Outcome()


# --- a member --------------------------------------------------------------------------------------------------------


@row()
def fetch_in_flight(scene: Scene) -> Outcome:
    """The member has read all records and committed none, and a fetch is in flight. close() commits the positions."""
    scene.stable()
    return Outcome(JOINED, ALL_READ)


@row()
def without_auto_commit(scene: Scene) -> Outcome:
    """As above, but with enable_auto_commit=False: close() commits nothing."""
    scene.stable(enable_auto_commit=False)
    return Outcome(JOINED)


@row()
def records_not_returned_yet(scene: Scene) -> Outcome:
    """Some records were returned and others are buffered. close() commits only the offsets of the returned ones."""
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
    """Paused partitions are committed and revoked as others are."""
    consumer = scene.stable()
    consumer.pause(*scene.both)
    consumer.poll(0)
    return Outcome(JOINED, ALL_READ)


@row()
def commits_in_flight(scene: Scene) -> Outcome:
    """Asynchronous commits in flight complete in order, and their callbacks run before close() returns."""
    consumer = scene.stable(enable_auto_commit=False)
    errors: list[object] = []
    for offset in (1, 2, 3):
        consumer.commit_async(dict.fromkeys(scene.both, offset), lambda _offsets, error: errors.append(error))

    def close() -> None:
        consumer.close(5)
        assert [None] * 3 == errors

    scene.close = close
    return Outcome(JOINED, {0: 3, 1: 3})


@row()
def wakeup_pending(scene: Scene) -> Outcome:
    """A wakeup() that no call has raised yet does not interrupt close()."""
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
    """The body of a `with` block raises. Its records are not committed, the member leaves the group, and the error is
    propagated.
    """
    consumer = scene.stable()

    def close() -> None:
        with pytest.raises(ZeroDivisionError), consumer:
            raise ZeroDivisionError

    scene.close = close
    return Outcome(JOINED)


@row()
def coordinator_lost_just_now(scene: Scene) -> Outcome:
    """The coordinator was lost. close() looks it up again to leave the group, although there is nothing to commit."""
    consumer = scene.stable(enable_auto_commit=False)
    group = parts_of(consumer).group
    assert group is not None

    def close() -> None:
        with engine_of(consumer).changing():
            group.coordinator.mark_unknown("a test", parts_of(consumer).clock.now())
        consumer.close(5)

    scene.close = close
    return Outcome(JOINED)


@row()
def forked(scene: Scene) -> Outcome:
    """close() in a forked child raises at once. The parent, with which the child shares connections, continues."""
    consumer = scene.stable()

    def close() -> None:
        assert "ForkedConsumerError" == error_in_child(consumer.close)
        consumer.poll(0)
        consumer.commit()
        consumer.close(5)

    scene.close = close
    return Outcome(JOINED, ALL_READ)


def error_in_child(call: Callable[[], object]) -> str:
    """Returns the name of the error that a call raises in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this row forks a process with threads on purpose
        child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        name = pipe.read().decode()
    os.waitpid(child, 0)
    return name


@row()
def listener_that_raises(scene: Scene) -> Outcome:
    """close() raises the error of on_revoke after it has done everything else."""
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
    """A second close() returns at once. Any other call raises an error that says the consumer is closed."""
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
    """close(timeout=0) waits for no response, but runs the callbacks and sends the commit and LeaveGroup."""
    consumer = scene.stable()
    scene.close = lambda: consumer.close(timeout=0)
    return Outcome(JOINED, ALL_READ, within_s=0.5, waits=False)


# --- a member that stays ---------------------------------------------------------------------------------------------


@row()
def static_member(scene: Scene) -> Outcome:
    """close() keeps a static member in the group."""
    scene.stable(group_instance_id="i")
    return Outcome(JOINED, ALL_READ, members=1)


@row()
def static_member_with_leave_group(scene: Scene) -> Outcome:
    """close(leave_group=True) removes a static member from the group."""
    consumer = scene.stable(group_instance_id="i")
    scene.close = lambda: consumer.close(5, leave_group=True)
    return Outcome(JOINED, ALL_READ)


@row()
def dynamic_member_without_leave_group(scene: Scene) -> Outcome:
    """close(leave_group=False) keeps a dynamic member in the group until its session times out."""
    consumer = scene.stable()
    scene.close = lambda: consumer.close(5, leave_group=False)
    return Outcome(JOINED, ALL_READ, members=1)


# --- inside callbacks ------------------------------------------------------------------------------------------------


def close_it(consumer: Consumer, _partitions: object) -> None:
    """A callback that closes its consumer."""
    consumer.close(5)


@row()
def inside_on_assign(scene: Scene) -> Outcome:
    """on_assign closes the consumer: on_revoke gets the partitions that were just assigned, and poll returns."""
    scene.listener.during["assigned"] = close_it
    consumer = scene.subscribed()
    scene.close = lambda: consumer.poll(10)
    return Outcome(JOINED, within_s=5)


@row()
def inside_on_revoke(scene: Scene) -> Outcome:
    """unsubscribe() calls on_revoke, which closes the consumer. No callback is called again."""
    scene.listener.during["revoked"] = close_it
    consumer = scene.stable(enable_auto_commit=False)
    scene.close = consumer.unsubscribe
    return Outcome(JOINED)


@row()
def inside_on_lost(scene: Scene) -> Outcome:
    """on_lost after max_poll_interval_ms closes the consumer. No callback is called again."""
    scene.listener.during["lost"] = close_it
    consumer = scene.stable(max_poll_interval_ms=400)
    wait_until(lambda: scene.members() == 0, 10, "the idle member to leave")
    scene.close = lambda: consumer.poll(10)
    return Outcome(LOST, within_s=5)


# --- no member any more ----------------------------------------------------------------------------------------------


@row()
def poll_interval_exceeded(scene: Scene) -> Outcome:
    """The member has left the group by itself. on_lost is called, and no commit is sent, because it could override
    another member's.
    """
    scene.stable(max_poll_interval_ms=400)
    wait_until(lambda: scene.members() == 0, 10, "the idle member to leave")
    return Outcome(LOST)


@row()
def fenced(scene: Scene) -> Outcome:
    """An administrator has removed the member, and the member has received the error."""
    consumer = scene.stable(group_instance_id="i")
    before = scene.state(consumer)
    remove_static_member(scene.kafka, scene.group, "i")
    wait_until(lambda: scene.state(consumer) is not before, 10, "the member to hear of it")
    return Outcome(LOST)


@row()
def fenced_and_not_aware_of_it(scene: Scene) -> Outcome:
    """An administrator has removed the member, and the member has not received the error yet. The coordinator rejects
    the commit of close(). A classic member then knows that it was removed; in the consumer protocol only a heartbeat
    reports that, as in Java.
    """
    scene.stable(group_instance_id="i")
    remove_static_member(scene.kafka, scene.group, "i")
    return Outcome(JOINED if scene.epochs else LOST)


@row()
def unsubscribed(scene: Scene) -> Outcome:
    """unsubscribe() has left the group without a commit, and close() sends nothing more."""
    scene.stable().unsubscribe()
    return Outcome(JOINED)


# --- without group management ----------------------------------------------------------------------------------------


@row()
def assigned_by_hand(scene: Scene) -> Outcome:
    """A consumer with assign() and a group_id has no membership and no callbacks, but its positions are committed."""
    consumer = scene.make()
    consumer.assign(scene.both)
    read(consumer, 2 * RECORDS)
    return Outcome([], ALL_READ)


@row()
def assigned_by_hand_without_a_group(scene: Scene) -> Outcome:
    """A consumer with assign() and no group_id sends nothing to a coordinator."""
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
    """A GroupClient that inspects groups from outside."""
    with GroupClient(kafka.bootstrap_servers) as client:
        client.list()
        yield client


def our_threads(before: Collection[threading.Thread]) -> set[str]:
    """Returns the names of kconsumer's threads in this process, without those in `before` and of the cluster model.

    Another test may have left the idle timer of a RangeClient, which ends after a minute.
    """
    names = {thread.name for thread in threading.enumerate() if thread not in before}
    return {name for name in names if name.startswith("kconsumer-") and name != "kconsumer-fake-cluster"}


def descriptors() -> set[str]:
    """Returns the open sockets, selectors and event descriptors of this process."""
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
    """close() in this state has the row's effects in time and leaves no threads or descriptors behind."""
    kafka.group_state(topic)  # so that the admin client already has its connections
    groups.list()
    before, running = descriptors(), threading.enumerate()
    with ExitStack() as others:
        scene = Scene(kafka, topic, column, groups, others)
        bring, _ = ROWS[state]
        expected = bring(scene)
        began = time.monotonic()
        scene.close()
        took = time.monotonic() - began
        threads = {name for name in our_threads(running) if name.endswith(scene.group)}
        assert expected.kinds == [kind for kind, partitions in scene.listener.calls if partitions]
        if not expected.members:  # the other consumer's threads still run
            assert set() == threads
        assert took < expected.within_s
        if expected.waits or isinstance(kafka, FakeKafka):  # the model reads all that it has received
            wait_until(lambda: scene.members() == expected.members, 3, f"{expected.members} members; {scene.members()}")
            wait_until(lambda: scene.committed() == expected.committed, 1, f"a commit; there is {scene.committed()}")
    assert set() == our_threads(running)
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
    """Returns how long close(timeout) took (s)."""
    began = time.monotonic()
    scene.consumer.close(timeout_s)
    return time.monotonic() - began


def engines_of(kafka: Kafka) -> list[str]:
    """Returns the engines whose group protocol this version of Kafka has."""
    return [name for name in ENGINES if name not in KIP_848 or release_of(kafka.version) >= (4, 0)]


def test_the_only_broker_is_gone(new_cluster: type[KafkaCluster]) -> None:
    """When the only broker is suspended or killed, close() ends in time, on_revoke runs, and no threads or descriptors
    are left.
    """
    running = threading.enumerate()
    with ExitStack() as stack:
        cluster = stack.enter_context(new_cluster())
        engines = engines_of(cluster)
        topic = filled(cluster)
        groups = stack.enter_context(GroupClient(cluster.bootstrap_servers))
        fates = [(fate, engine) for fate in (cluster.nodes[0].pause, cluster.nodes[0].kill) for engine in engines]
        scenes = [(fate, Scene(cluster, topic, engine, groups, stack)) for fate, engine in fates]
        for _, scene in scenes:
            scene.stable()
        for fate, scene in scenes:
            fate()
            assert closed_in(scene, 0.7) < IN_TIME_S, (fate, scene.engine)
            assert JOINED == scene.listener.kinds, (fate, scene.engine)
    assert set() == our_threads(running)


def test_the_coordinator_goes(new_cluster: type[KafkaCluster]) -> None:
    """The coordinator shuts down or is killed just before close(). The positions are committed and the member leaves
    the group at the new coordinator.
    """
    running = threading.enumerate()
    with ExitStack() as stack:
        cluster = stack.enter_context(new_cluster(nodes=3))
        groups = stack.enter_context(GroupClient(cluster.bootstrap_servers))
        for end in ("stop", "kill"):
            coordinator = cluster.node(cluster.coordinator_of("any"))  # a restarted node coordinates no group yet
            # The partitions stay where they are: what is being validated against a new leader is not committed.
            topic = filled(cluster, [node.node_id for node in cluster.nodes if node is not coordinator])
            scenes = [Scene(cluster, topic, engine, groups, stack) for engine in engines_of(cluster)]
            for scene in scenes:
                name, number = scene.group, 0
                # Numbers, not the same letter again: that may leave a hash at the same remainder for ever.
                while cluster.coordinator_of(scene.group) != coordinator.node_id:
                    scene.group, number = f"{name}-{number}", number + 1
                scene.stable(request_timeout_ms=5000)
            getattr(coordinator, end)()
            for scene in scenes:
                assert closed_in(scene, 20) < 20, (end, scene.engine)
                assert JOINED == scene.listener.kinds, (end, scene.engine)
                assert ALL_READ == scene.committed(), (end, scene.engine)
                assert 0 == scene.members(), (end, scene.engine)
            coordinator.start()
    assert set() == our_threads(running)
