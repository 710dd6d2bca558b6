"""A simulation: a cluster, processes with consumers, and the history of what happened.

`Simulation.run` must be called on a thread that is not the main thread, because a consumer on the main thread replaces
signal handlers during each call, and the calls of several simulated consumers overlap. `simulate` does that.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
from asyncio import Runner
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from kconsumer import Consumer, ShareConsumer, TopicPartition
from kconsumer._core.lock import Clock
from kconsumer.aio import AsyncConsumer
from kconsumer.aio.engine import AsyncEngine
from kconsumer.assignors import Assignor
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.choice import create_engine
from kconsumer.engine.environment import Environment, Event, Lock, ReentrantLock, Thread
from kconsumer.net.client import NetworkClient
from kconsumer.net.connector import Connector
from kconsumer.net.metrics import ConnectionMetrics
from kconsumer.parallel import AsyncProcessor, Processor, ShareProcessor
from kconsumer.parallel.async_processor import LoopConcurrency
from kconsumer.parallel.concurrency import Concurrency, Condition
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.engine import ShareEngine
from kconsumer.testing.cluster.cluster import WALL_MS, Cluster
from kconsumer.testing.cluster.share.in_flight import RecordState
from support.aio.blocking import BlockingConsumer, BlockingRun, end_callbacks
from support.simulation.event_loop import SimulatedEventLoop
from support.simulation.network import SimulatedNetwork, SimulatedSelector, SimulatedWaker
from support.simulation.scheduler import Process, Scheduler, Task
from support.simulation.signals import SimulatedSignals
from support.simulation.threads import (
    SimulatedCondition,
    SimulatedEvent,
    SimulatedLock,
    SimulatedReentrantLock,
    SimulatedThread,
)

T = TypeVar("T")


class SimulatedClock(Clock):
    """The virtual time of a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        """Returns the virtual time in ms."""
        return self._scheduler.now

    def wall_ms(self) -> int:
        """Returns the virtual wall-clock time in ms since the Unix epoch."""
        return int(WALL_MS + self._scheduler.now)


class SimulatedEnvironment(Environment):
    """The environment of the consumers of one process."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        super().__init__(simulation.clock)
        self._scheduler = simulation.scheduler
        self._network = simulation.network
        self._process = process
        self._threads: list[SimulatedThread] = []
        self._caller = SimulatedThread(self._scheduler, process, "caller", bool)

    def random_generator(self) -> random.Random:
        """Returns a generator that is seeded from the simulation's."""
        return random.Random(self._scheduler.random.getrandbits(64))

    def client(self, config: ConsumerConfig, rng: random.Random, metrics: ConnectionMetrics) -> NetworkClient:
        """Returns a client of the simulated network."""
        network, process = self._network, self._process
        return NetworkClient(
            config,
            self.clock,
            selector_factory=lambda: SimulatedSelector(network),
            connector=Connector(lambda host, address, options: network.connect(process, host, address, options)),
            connect_plain=lambda _host, address, _options: network.connect_plain(process, address),
            resolve=network.resolve,
            start_thread=lambda work: SimulatedThread(self._scheduler, process, "background", work).start(),
            make_waker=lambda: SimulatedWaker(network),
            rng=rng,
            metrics=metrics,
        )

    def lock(self) -> Lock:
        """Returns a lock of the simulation."""
        return SimulatedLock(self._scheduler)

    def reentrant_lock(self) -> ReentrantLock:
        """Returns a reentrant lock of the simulation."""
        return SimulatedReentrantLock(self._scheduler)

    def event(self) -> Event:
        """Returns an event of the simulation."""
        return SimulatedEvent(self._scheduler)

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """Returns a thread of the simulation."""
        thread = SimulatedThread(self._scheduler, self._process, name, run)
        self._threads.append(thread)
        return thread

    def current_thread(self) -> Thread:
        """Returns the thread that runs, or the caller's thread if that is none of those that `thread` has returned."""
        current = self._scheduler.current
        return next((thread for thread in self._threads if thread.task is current), self._caller)


class SimulatedConsumer(Consumer):
    """A consumer of a simulated process. All its code above the sockets is that of the library."""

    def __init__(self, simulation: Simulation, process: Process, *topics: str, **options: Any) -> None:
        self._environment = SimulatedEnvironment(simulation, process)
        super().__init__(*topics, bootstrap_servers=simulation.network.bootstrap_servers, **options)

    def __del__(self) -> None:
        # A consumer is not closed if its process crashes. To abandon it would change the history whenever the garbage
        # collector finds it, which is at another time in each run.
        pass

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> Engine:
        return create_engine(config, self._environment, loaded)


class SimulatedShareConsumer(ShareConsumer):
    """A ShareConsumer of a simulated process."""

    def __init__(self, simulation: Simulation, process: Process, *topics: str, group_id: str, **options: Any) -> None:
        self._environment = SimulatedEnvironment(simulation, process)
        servers = simulation.network.bootstrap_servers
        super().__init__(*topics, bootstrap_servers=servers, group_id=group_id, **options)

    def __del__(self) -> None:
        pass  # see `SimulatedConsumer`

    def _create_engine(self, config: ShareConsumerConfig, group_id: str) -> ShareEngine:
        return ShareEngine(config, self._environment, group_id, config.on_acknowledge)


class SimulatedAsyncConsumer(AsyncConsumer):
    """An AsyncConsumer of a simulated process."""

    def __init__(self, simulation: Simulation, process: Process, *topics: str, **options: Any) -> None:
        self._environment = SimulatedEnvironment(simulation, process)
        super().__init__(*topics, bootstrap_servers=simulation.network.bootstrap_servers, **options)

    def __del__(self) -> None:
        pass  # see `SimulatedConsumer`

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> AsyncEngine:
        return AsyncEngine(config, self._environment, loaded)


class SimulatedConcurrency(Concurrency):
    """The threads, locks and event loops of `kconsumer.parallel` in one process."""

    def __init__(self, simulation: Simulation, process: Process) -> None:
        super().__init__(simulation.clock)
        self._scheduler = simulation.scheduler
        self._process = process

    def lock(self) -> ReentrantLock:
        """Returns a lock of the simulation."""
        return SimulatedReentrantLock(self._scheduler)

    def condition(self, lock: Any) -> Condition:
        """Returns a condition of the simulation."""
        return SimulatedCondition(self._scheduler, lock)

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """Returns a thread of the simulation."""
        return SimulatedThread(self._scheduler, self._process, name, run)

    def sleep(self, seconds: float) -> None:
        """Let the running task wait."""
        self._scheduler.sleep(seconds * 1000)

    def event_loop(self) -> SimulatedEventLoop:
        """Returns an event loop in virtual time."""
        return SimulatedEventLoop(self._scheduler)


class SimulatedRun:
    """The part of a run of `kconsumer.parallel` that makes it run in a simulated process."""

    def __init__(self, simulation: Simulation, process: Process, consumer: Any, handler: Any, **options: Any) -> None:
        self._simulated = SimulatedConcurrency(simulation, process)
        super().__init__(consumer, handler, **options)  # type: ignore[call-arg]  # of the class it is mixed into

    def _create_concurrency(self) -> Concurrency:
        return self._simulated


class SimulatedProcessor(SimulatedRun, Processor):
    """A run with a Consumer."""


class SimulatedShareProcessor(SimulatedRun, ShareProcessor):
    """A run with a ShareConsumer."""


class SimulatedAsyncProcessor(AsyncProcessor):
    """A run of `kconsumer.parallel` with an AsyncConsumer in an event loop of the simulation."""

    def __init__(self, simulation: Simulation, consumer: AsyncConsumer, handler: Any, **options: Any) -> None:
        self._simulated = LoopConcurrency(simulation.clock)
        super().__init__(consumer, handler, **options)

    def _create_concurrency(self) -> Concurrency:
        return self._simulated


class Simulation:
    """One run: everything that happens in it follows from the seed."""

    def __init__(self, seed: int, cluster: Cluster | None = None) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.clock = SimulatedClock(self.scheduler)
        self.cluster = cluster or Cluster(3, seed=seed)
        self.network = SimulatedNetwork(self.scheduler, self.cluster)
        self.signals = SimulatedSignals(self.scheduler)
        self.history: list[str] = []

    @property
    def now(self) -> float:
        """The virtual time in ms."""
        return self.scheduler.now

    @property
    def random(self) -> random.Random:
        """The only source of random numbers of the simulation."""
        return self.scheduler.random

    def record(self, who: str, what: str) -> None:
        """Add an event to the history."""
        self.history.append(f"{self.now:14.3f} {who}: {what}")

    def digest(self) -> str:
        """Returns a hash of the history, to compare two runs."""
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()

    def spawn(self, process: Process, name: str, function: Callable[[], object]) -> Task:
        """Start a task of a process."""
        return self.scheduler.spawn(f"{process.name}/{name}", process, function)

    def consumer(self, process: Process, *topics: str, asyncio: bool = False, **options: Any) -> Consumer:
        """Returns a new consumer of a process. With `asyncio`, it is an AsyncConsumer with an event loop of its own."""
        if not asyncio:
            return SimulatedConsumer(self, process, *topics, **options)
        runner = Runner(loop_factory=partial(SimulatedEventLoop, self.scheduler))
        create = partial(SimulatedAsyncConsumer, self, process)
        return cast("Consumer", BlockingConsumer(runner, *topics, create=create, **options))

    def share_consumer(self, process: Process, *, group_id: str, **options: Any) -> ShareConsumer:
        """Returns a new share consumer of a process."""
        return SimulatedShareConsumer(self, process, group_id=group_id, **options)

    def share_state(self, group: str, tp: TopicPartition, offset: int) -> RecordState | None:
        """Returns what the leader of a partition knows about a record of a share group, or None."""
        share = self.cluster.shares.current(group, self.cluster.topics[tp.topic].id, tp.partition)
        leads = share is not None and share.leader_epoch == share.partition.leader_epoch
        return share.state_of(offset) if share is not None and leads else None

    def processor(self, process: Process, consumer: Consumer, handler: Any, **options: Any) -> Processor | BlockingRun:
        """Returns a run of `kconsumer.parallel` in a process."""
        if isinstance(consumer, BlockingConsumer):
            return consumer.processor(partial(SimulatedAsyncProcessor, self), handler, **options)
        return SimulatedProcessor(self, process, consumer, handler, **options)

    def share_processor(
        self, process: Process, consumer: ShareConsumer, handler: Any, **options: Any
    ) -> ShareProcessor:
        """Returns a run of `kconsumer.parallel` with a share consumer in a process."""
        return SimulatedShareProcessor(self, process, consumer, handler, **options)

    def sleep(self, ms: float) -> None:
        """Let the running task wait for `ms`."""
        self.scheduler.sleep(ms)


def run_coroutine(simulation: Simulation, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in an event loop in virtual time, in the running task. Returns its result."""
    with Runner(loop_factory=partial(SimulatedEventLoop, simulation.scheduler)) as runner:
        return runner.run(main())


def off_main_thread(function: Callable[[], T]) -> T:
    """Call a function on a thread that is not the main thread. Returns its result, or raises its exception."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)
        end_callbacks()

    thread = threading.Thread(target=run, name="simulation")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


logging.getLogger("kconsumer").addHandler(logging.NullHandler())
