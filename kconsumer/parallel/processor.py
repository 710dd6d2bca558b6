"""Processor: one run, with its checked arguments. The thread that calls `run` polls; handlers run elsewhere."""

from __future__ import annotations

from typing import Literal

from kconsumer.consumer import Consumer
from kconsumer.errors import StateError
from kconsumer.parallel.checks import check_consumer, check_handler
from kconsumer.parallel.executors import create_executor
from kconsumer.parallel.handover import Handover
from kconsumer.parallel.poll_loop import PollLoop
from kconsumer.parallel.run_state import RunState
from kconsumer.parallel.runs import registered
from kconsumer.parallel.settings import (
    DEFAULT_RETRY,
    DeadLetters,
    ExecutorName,
    Handler,
    Order,
    Retry,
    Revocation,
    Settings,
    Summary,
)
from kconsumer.parallel.stop_signals import StopSignals


class Processor:
    """A run of `process` that can be stopped and watched from other threads."""

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        *,
        workers: int = 8,
        order: Order = "partition",
        executor: ExecutorName = "threads",
        max_in_flight: int = 1000,
        retry: Retry | None = DEFAULT_RETRY,
        on_failure: Literal["stop", "skip"] | DeadLetters = "stop",
        on_revoke: Revocation = "drain",
        drain_timeout_s: float = 30.0,
        commit_interval_s: float = 1.0,
    ) -> None:
        """Check the arguments, which are those of `process`. Starts nothing."""
        settings = Settings(
            workers=workers,
            order=order,
            executor=executor,
            max_in_flight=max_in_flight,
            retry=Retry(attempts=1) if retry is None else retry,
            on_failure=on_failure,
            on_revoke=on_revoke,
            drain_timeout_s=drain_timeout_s,
            commit_interval_s=commit_interval_s,
        )
        check_consumer(consumer)
        check_handler(handler, settings)
        self._state = RunState(consumer, settings)
        self._executor = create_executor(self._state.queue, settings, handler, self._state.clock)
        self._handover = Handover(self._state, self._executor)
        self._started = False

    def stop(self) -> None:
        """End the run: start no more records, wait for handlers, and commit. Returns at once.

        Any thread, handler or signal handler may call this.
        """
        self._state.request_stop("stop")

    def summary(self) -> Summary:
        """Returns the figures until now. Any thread may call this."""
        return self._state.summary()

    def run(self) -> Summary:
        """Process records until the run ends. Raises what `process` raises.

        A Processor runs once: another call raises StateError.
        """
        state = self._state
        with registered(self, state.consumer):
            if self._started:
                raise StateError("a Processor runs once: make a new one")
            self._started = True
            try:
                with StopSignals(state.request_stop):
                    self._executor.start()
                    state.source.observe(self._handover)
                    self._process()
            except BaseException:  # also a second Ctrl-C, which does not wait for handlers
                self._handover.abort()
                raise
            finally:
                state.source.end()
        if state.queue.error is not None:
            raise state.queue.error
        return state.summary()

    def _process(self) -> None:
        """Poll until the run ends, and end it in order. Raises the error of the consumer that has ended it."""
        try:
            PollLoop(self._state).run()
        except Exception as error:
            self._handover.end(error)
            raise
        self._handover.end(None)
