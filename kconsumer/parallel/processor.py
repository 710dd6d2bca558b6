"""Processor: one run, with its checked arguments. The thread that calls `run` polls; handlers run elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from kconsumer.errors import StateError
from kconsumer.parallel.attempt import Executor
from kconsumer.parallel.checks import check_consumer, check_handler
from kconsumer.parallel.concurrency import Concurrency
from kconsumer.parallel.dead_letters import DeadLetters
from kconsumer.parallel.flows import Flow, run_flow
from kconsumer.parallel.handover import Handover
from kconsumer.parallel.poll_loop import PollLoop
from kconsumer.parallel.retry_topics import RetryTopics
from kconsumer.parallel.run_state import RunState
from kconsumer.parallel.runs import is_running, registered
from kconsumer.parallel.settings import Handler, RunOptions, Settings, Summary
from kconsumer.parallel.threads import ThreadExecutor
from kconsumer.parallel.work_queue import WorkQueue
from kconsumer.types import MetricName

if TYPE_CHECKING:
    from kconsumer._internal.status import Health


SIGNALS = (signal.SIGTERM, signal.SIGINT)
DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


class StopSignals:
    """A context manager that replaces the default handlers of SIGTERM and SIGINT on the main thread.

    Handlers of the application stay. The first signal calls `stop` with its name. A second one does what it does by
    default, which ends the program at once. The handlers themselves are restored only at the end, because a call of a
    consumer that defers signals would bring back the one that it has found.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._replaced: dict[int, Any] = {}
        self._seen: set[int] = set()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in DEFAULTS:
                    self._replaced[number] = handler
                    signal.signal(number, self._on_signal)

    def __exit__(self, *error: object) -> None:
        for number, handler in self._replaced.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number not in self._seen:
            self._seen.add(number)
            self._stop(signal.Signals(number).name)
            return
        handler = self._replaced[number]
        if callable(handler):
            handler(number, frame)
        else:  # the default action of SIGTERM, which ends the process
            signal.signal(number, handler)
            signal.raise_signal(number)


def create_executor(queue: WorkQueue, settings: Settings, handler: Handler, concurrency: Concurrency) -> Executor:
    if settings.executor == "processes":
        from kconsumer.parallel.processes import ProcessExecutor  # imported when used, as `multiprocessing`

        return ProcessExecutor(queue, settings, handler, concurrency)
    if settings.executor == "asyncio":
        from kconsumer.parallel.event_loop_executor import EventLoopExecutor  # imported when used, as `asyncio`

        return EventLoopExecutor(queue, settings, handler, concurrency)
    return ThreadExecutor(queue, settings, handler, concurrency)


class ProcessorBase:
    """The part of a run that does not depend on how it waits."""

    def __init__(
        self,
        consumer: Any,
        handler: Handler,
        **options: Unpack[RunOptions],
    ) -> None:
        """Check the arguments, which are those of `process`. Starts nothing."""
        settings = Settings(**options)  # type: ignore[arg-type]  # `retry` may be None
        self._check(consumer)
        check_handler(handler, settings)
        concurrency = self._create_concurrency()
        if isinstance(settings.on_failure, DeadLetters):
            settings.on_failure.prepare(consumer, settings.retry, concurrency.clock)
        self._state = self._create_state(consumer, settings, concurrency)
        self._executor = self._create_executor(settings, handler, concurrency)
        self._handover = self._create_handover()
        self._started = False

    def _check(self, consumer: Any) -> None:
        check_consumer(consumer)

    def _create_state(self, consumer: Any, settings: Settings, concurrency: Concurrency) -> RunState:
        return RunState(consumer, settings, concurrency)

    def _create_executor(self, settings: Settings, handler: Handler, concurrency: Concurrency) -> Executor:
        return create_executor(self._state.queue, settings, handler, concurrency)

    def _create_handover(self) -> Handover:
        return Handover(self._state, self._executor)

    def _create_concurrency(self) -> Concurrency:
        """Returns what the run uses of the operating system. A test in virtual time returns another one."""
        return Concurrency()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._state.consumer!r}{' (started)' * self._started}>"

    def stop(self) -> None:
        """End the run: start no more records, wait for handlers, and commit. Returns at once.

        Any thread, handler or signal handler may call this.
        """
        self._state.request_stop("stop")

    def pause(self) -> None:
        """Start no more records until `resume`. Any thread may call this.

        Records that run may finish. The consumer remains a member of its group.
        """
        self._state.queue.pause()

    def resume(self) -> None:
        """Start records again, after `pause`. Any thread may call this."""
        self._state.queue.resume()

    def metrics(self) -> dict[MetricName, float]:
        """Returns the metrics of this run, which are among those of its consumer. Any thread may call this.

        There are none before the run begins.
        """
        metrics = self._state.metrics
        return {} if metrics is None else metrics.values()

    def health(self, max_lag: int | None = None, max_lag_seconds: float | None = None) -> Health:
        """Returns whether this run makes progress, and the reasons if it does not. Any thread may call this.

        The run must be in progress, its circuit breaker closed, and its consumer healthy (see `Consumer.health`). A run
        that is paused is healthy.
        """
        found: Health = self._state.consumer.health(max_lag, max_lag_seconds)
        reasons = (*self._obstacles(), *found.reasons)
        return replace(found, ok=not reasons, reasons=reasons)

    def _obstacles(self) -> Iterator[str]:
        """Yield why the run starts no records, except that it is paused."""
        state = self._state
        if not self._started:
            yield "the run has not begun"
        elif not is_running(self, state.consumer):
            yield "the run has ended"
        elif state.queue.error is not None:
            yield f"the run ends because of an error: {state.queue.error!r}"
        elif state.reason:
            yield f"the run ends: {state.reason}"
        elif not state.queue.workers:
            yield "the worker processes start"
        elif state.queue.suspended and not state.queue.gate.paused:
            yield "the circuit breaker is open: handlers have failed too often"

    def _on_closed(self, notify: Callable[[], object]) -> None:
        """Call `notify` when the consumer is closed."""
        self._state.consumer._on_closed(notify)

    def summary(self) -> Summary:
        """Returns the figures until now. Any thread may call this."""
        return self._state.summary()

    def _run(self) -> Flow[Summary]:
        """Process records until the run ends."""
        state = self._state
        with registered(self, state.consumer):
            if self._started:
                raise StateError("a Processor runs once: make a new one")
            self._started = True
            state.publish_metrics()
            try:
                with StopSignals(state.request_stop):
                    self._executor.start()
                    yield from self._process()
            except BaseException:  # also a second Ctrl-C, which does not wait for handlers
                yield from self._abort()
                raise
            finally:
                state.update_metrics()
                self._finish()
        if state.queue.error is not None:
            raise state.queue.error
        return state.summary()

    def _process(self) -> Flow[None]:
        """Poll until the run ends, and end it in order. Raises the error of the consumer that has ended it."""
        self._state.source.observe(self._handover)
        if isinstance(self._state.settings.on_failure, RetryTopics):
            self._state.source.subscribe(self._state.settings.on_failure.add_to)
        try:
            yield from PollLoop(self._state, self._handover.transactions).run()
        except Exception as error:
            yield from self._handover.end(error)
            raise
        yield from self._handover.end(None)

    def _abort(self) -> Flow[None]:
        """End without waiting for handlers."""
        return self._handover.abort()

    def _finish(self) -> None:
        """Undo what the run has changed."""
        self._state.source.end()


class Processor(ProcessorBase):
    """A run of `process` with a Consumer that can be stopped and watched from other threads."""

    def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        A Processor runs once: another call raises StateError.
        """
        return run_flow(self._run())
