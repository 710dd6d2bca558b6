"""BlockingConsumer: an AsyncConsumer with the blocking methods of `Consumer`, so that the same tests run on both.

Each call runs the event loop until the call has ended. Between two calls the loop does not run, like an event loop that
other code blocks. Callbacks are plain functions that may call blocking methods: each callback runs in a greenlet, and a
blocking call in it suspends the greenlet until the coroutine that has started it has awaited the method.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from greenlet import getcurrent, greenlet

from kconsumer import RebalanceListener
from kconsumer.aio import AsyncConsumer
from kconsumer.parallel import AsyncProcessor, Summary
from support.harnesses.cancellation import CancelledAt, Moment

T = TypeVar("T")


class Runner(Protocol):
    """The method of `asyncio.Runner` that runs an event loop until a coroutine has ended."""

    def run(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Returns the result of the coroutine."""
        ...


class ThreadRunners:
    """Runs coroutines in an event loop of the calling thread. Each thread has one."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._runners: list[asyncio.Runner] = []

    def run(self, coroutine: Coroutine[Any, Any, T], /) -> T:
        """Returns the result of the coroutine."""
        runner: asyncio.Runner | None = getattr(self._local, "runner", None)
        if runner is None:
            runner = self._local.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            self._runners.append(runner)
        return runner.run(coroutine)

    def close(self) -> None:
        """Close the event loops of all threads."""
        for runner in self._runners:
            runner.close()


class CallbackGreenlet(greenlet):
    """Runs a callback. Its parent is the greenlet of the event loop."""


class _Callbacks(threading.local):
    """The callbacks of the calling thread that have not ended."""

    def __init__(self) -> None:
        self.running: set[CallbackGreenlet] = set()


_callbacks = _Callbacks()


def end_callbacks() -> None:
    """End the callbacks that this thread has started, and that wait for a coroutine which will not end any more.

    Must be called before the thread ends. A greenlet that is freed by another thread cannot run its `finally` blocks,
    and frees the frames that other objects still refer to.
    """
    for callback in list(_callbacks.running):
        callback.throw()
    _callbacks.running.clear()


async def in_greenlet(function: Callable[..., T], *arguments: Any) -> T:
    """Call a plain function that may call methods of a BlockingConsumer. Returns its result."""
    callback = CallbackGreenlet(function)
    callback.gr_context = contextvars.copy_context()
    running = _callbacks.running
    running.add(callback)
    try:
        result = callback.switch(*arguments)
        while not callback.dead:  # the callback waits for the coroutine `result`
            try:
                value = await result
            except BaseException as error:
                if callback.dead:  # because of `end_callbacks`
                    raise
                result = callback.throw(error)
            else:
                result = callback.switch(value)
    finally:
        if callback.dead:
            running.discard(callback)
    returned: T = result
    return returned


def _as_coroutine_function(callback: Callable[..., object]) -> Callable[..., Any]:
    async def call(*arguments: Any) -> None:
        await in_greenlet(callback, *arguments)

    return call


class GreenletListener(RebalanceListener):
    """Calls the methods of another listener in greenlets, with the BlockingConsumer."""

    def __init__(self, consumer: BlockingConsumer, listener: RebalanceListener) -> None:
        self._consumer = consumer
        self._listener = listener

    async def on_partitions_assigned(self, _: Any, partitions: Any) -> None:
        """Call `on_partitions_assigned`."""
        await in_greenlet(self._listener.on_partitions_assigned, self._consumer, partitions)

    async def on_partitions_revoked(self, _: Any, partitions: Any) -> None:
        """Call `on_partitions_revoked`."""
        await in_greenlet(self._listener.on_partitions_revoked, self._consumer, partitions)

    async def on_partitions_lost(self, _: Any, partitions: Any) -> None:
        """Call `on_partitions_lost`."""
        await in_greenlet(self._listener.on_partitions_lost, self._consumer, partitions)


class BlockingRun:
    """A run of `kconsumer.parallel` with an AsyncConsumer, with the interface of `Processor`."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Summary]], Summary], processor: AsyncProcessor) -> None:
        self._run = run
        self._processor = processor
        self.stop = processor.stop

    def run(self) -> Summary:
        """Process records until the run ends."""
        return self._run(self._processor.run())


class BlockingConsumer:
    """An AsyncConsumer with the interface of `Consumer`."""

    def __init__(
        self,
        runner: Runner,
        *topics: str,
        create: Callable[..., AsyncConsumer] = AsyncConsumer,
        on_commit: Callable[..., object] | None = None,
        **options: Any,
    ) -> None:
        self._runner = runner
        self.cancel_after_s: float | None = None  # calls that take longer are cancelled
        self.cancel_at: tuple[int, Moment] | None = None  # calls are cancelled at this suspension
        if on_commit is not None:
            options["on_commit"] = _as_coroutine_function(on_commit)
        self._consumer = create(*topics, **options)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        current = getcurrent()
        if isinstance(current, CallbackGreenlet):
            assert current.parent is not None
            result: T = current.parent.switch(coroutine)
            return result
        cancelled = self._cancelled(coroutine)
        try:
            return self._runner.run(cancelled)
        finally:  # one that never began, because its task was cancelled first, would give a warning
            cancelled.close()
            coroutine.close()

    async def _cancelled(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine, and cancel the task when it is time. Returns the result of the coroutine."""
        if self.cancel_at is not None:
            return await CancelledAt(coroutine, *self.cancel_at)
        if self.cancel_after_s is None:
            return await coroutine
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(self.cancel_after_s, task.cancel)
        try:
            return await coroutine
        finally:
            timer.cancel()

    def processor(self, create: Callable[..., AsyncProcessor], handler: Any, **options: Any) -> BlockingRun:
        """Returns a run of `kconsumer.parallel`, whose `run` blocks."""
        return BlockingRun(self._run, create(self._consumer, handler, **options))

    def sleep(self, seconds: float) -> None:
        """Sleep in the event loop. A callback that sleeps lets other tasks run."""
        self._run(asyncio.sleep(seconds))

    def _call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method in the event loop. Returns its result, which is awaited if the method is a coroutine."""

        async def call() -> Any:
            result = method(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

        return self._run(call())

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._consumer, name)
        return partial(self._call, found) if callable(found) and not name.startswith("_") else found

    def __repr__(self) -> str:
        return repr(self._consumer)

    def wakeup(self) -> None:
        """Call `wakeup` on the calling thread, which may be any."""
        self._consumer.wakeup()

    def subscribe(
        self,
        topics: Any,
        *,
        listener: RebalanceListener | None = None,
        on_assign: Callable[..., object] | None = None,
        on_revoke: Callable[..., object] | None = None,
        on_lost: Callable[..., object] | None = None,
    ) -> None:
        """Subscribe, with callbacks that run in greenlets. An empty list unsubscribes, as in `Consumer`."""
        callbacks = {
            name: callback and self._with_consumer(callback)
            for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost))
        }
        chosen = None if listener is None else GreenletListener(self, listener)
        if topics == [] and self._consumer.subscription():
            self.unsubscribe()
        else:
            self._call(self._consumer.subscribe, topics, listener=chosen, **callbacks)

    def assign(self, partitions: Any) -> None:
        """Assign partitions. An empty list unsubscribes, as in `Consumer`."""
        chosen = list(partitions)
        if chosen:
            self._call(self._consumer.assign, chosen)
        else:
            self.unsubscribe()

    def _with_consumer(self, callback: Callable[..., object]) -> Callable[..., Any]:
        """Returns a callback that is called with this consumer."""
        return _as_coroutine_function(lambda _, partitions: callback(self, partitions))

    def commit_async(self, offsets: Any = None, callback: Any = None) -> None:
        """Commit, with a callback that runs in a greenlet."""
        chosen = _as_coroutine_function(callback) if callable(callback) else callback
        self._call(self._consumer.commit_async, offsets, chosen)

    def __iter__(self) -> Iterator[Any]:
        records: Any = aiter(self._consumer)
        try:
            while True:
                try:
                    yield self._call(anext, records)
                except StopAsyncIteration:
                    return
        finally:
            self._call(records.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._consumer.__aexit__, kind, error, trace)
