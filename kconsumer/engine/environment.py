"""Environment: what an engine uses of the operating system, namely time, random numbers, threads, locks and sockets.

An engine creates these only here. A test can replace the environment, and so run whole consumers in virtual time, with
its own scheduler and network.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, cast

from kconsumer._core.lock import Clock
from kconsumer._internal.managers import FOREVER
from kconsumer.net.client import NetworkClient

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.metrics import ConnectionMetrics


CHECK_INTERVAL_MS = 90.0  # what interrupts no system call is noticed within 100 ms


class Lock(Protocol):
    """The methods of `threading.Lock` that an engine uses."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock. Returns False if that was not possible at once, or within `timeout` seconds."""
        ...

    def release(self) -> None: ...

    def locked(self) -> bool:
        """Returns whether the lock is held."""
        ...


class ReentrantLock(Protocol):
    """The methods of `threading.RLock` that an engine uses."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock once more. Returns False if another thread holds it and `blocking` is False."""
        ...

    def release(self) -> None:
        """Undo one `acquire`."""
        ...

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _is_owned(self) -> bool:
        """Returns whether the calling thread holds the lock (also used by `threading.Condition`)."""
        ...


class Event(Protocol):
    """The methods of `threading.Event` that an engine uses."""

    def set(self) -> None:
        """Set the event, which ends all waits."""
        ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, at most `timeout` seconds. Returns whether it is set."""
        ...


class Thread(Protocol):
    """The methods of `threading.Thread` that an engine uses."""

    name: str

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread ends, at most `timeout` seconds."""
        ...

    def is_alive(self) -> bool:
        """Returns whether the thread has started and has not ended."""
        ...


class Environment:
    """The clock, random numbers, threads, locks and network clients of the operating system."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        #: The longest single wait of the calling thread (ms). Longer waits are divided: only between two system calls
        #: does the interpreter raise what `_thread.interrupt_main()`, another thread or a debugger has requested.
        self.max_wait_ms = CHECK_INTERVAL_MS if type(self.clock) is Clock else FOREVER

    def random_generator(self) -> random.Random:
        return random.Random()

    def client(self, config: ConsumerConfig, rng: random.Random, metrics: ConnectionMetrics) -> NetworkClient:
        """Returns the network client of one consumer. It opens no connection yet."""
        return NetworkClient(config, self.clock, rng=rng, metrics=metrics)

    def lock(self) -> Lock:
        return threading.Lock()

    def reentrant_lock(self) -> ReentrantLock:
        return cast("ReentrantLock", threading.RLock())

    def event(self) -> Event:
        """Returns a new event, which is not set."""
        return threading.Event()

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """Returns a daemon thread that calls `run`. It is not started."""
        return threading.Thread(target=run, name=name, daemon=True)

    def current_thread(self) -> Thread:
        """Returns the calling thread."""
        return threading.current_thread()
