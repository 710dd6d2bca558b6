"""ClientEngine: what the engines of consumers of all kinds share: the runner of operations, and the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.lock import Timer
from kconsumer.engine.callbacks import Callbacks
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.driver import Driver
from kconsumer.engine.waiting import Operation, run

if TYPE_CHECKING:
    from kconsumer._core.metrics import PollEvents

log = get_logger(__name__)

T = TypeVar("T")
DROPPED_LEAVE_MS = 1000.0  # how long a consumer that was not closed waits for the response to LeaveGroup
MIN_JOIN_S, MAX_JOIN_S = 1.0, 5.0  # the wait of close() for the end of the network thread


class ClientEngine(ABC):
    """The components of one consumer, and the driver that makes its operations wait."""

    components: ClientComponents
    callbacks: Callbacks
    driver: Driver
    polls: PollEvents
    _when_ended: tuple[Callable[[], object], ...] = ()

    def run(self, operation: Operation[T]) -> T:
        """Drive an operation on the calling thread until it ends. Returns its result."""
        return run(operation, self.driver.wait)

    def wakeup(self) -> None:
        """Make the running blocking call raise WakeupError. If none is running, the next blocking call raises it.

        Any thread or signal handler may call this.
        """
        self.driver.wakeup()

    def _release_interrupted(self) -> bool:
        """Returns True if an exception has interrupted an earlier change of the state. Releases its lock then."""
        interrupted = self.components.step.unfinished
        if interrupted:
            self.components.release_lock()
        return interrupted

    def _take_network(self, timer: Timer) -> bool:
        """Let the calling thread run the network from now on. Raises no WakeupError after that.

        Returns False if the network thread did not end in time.
        """
        driver = self.driver.release_to_caller(max(MIN_JOIN_S, min(timer.remaining_ms() / 1000, MAX_JOIN_S)))
        if driver is None:
            log.warning("closing the consumer: the network thread did not end in time; it closes the connections later")
            self.driver.stop()
            return False
        self.driver = driver
        driver.disable_wakeup()
        return True

    def ended(self) -> None:
        """Mark the consumer as closed, so that waiting calls raise StateError. Close the reporters of metrics."""
        self.components.mark_closed()
        self.components.metrics.close()
        for notify in self._when_ended:
            notify()

    def when_ended(self, notify: Callable[[], object]) -> None:
        """Call `notify` at the end of close()."""
        self._when_ended = (*self._when_ended, notify)

    # --- the end without close() -----------------------------------------------------------------------------------

    def drop(self) -> None:
        """Leave the group and close the connections, because the consumer was garbage-collected. Does not wait.

        The garbage collector may call this on any thread, in the middle of any code, which may hold any lock. So this
        method acquires none: the network thread or the heartbeat thread does the work, before it ends. Without such a
        thread, the consumer is not a member of its group.
        """
        if not self.driver.end_soon(self._end_dropped):
            self.components.mark_closed()
            self.components.client.abandon()

    def _end_dropped(self) -> None:
        """Leave the group, and close the connections. The last thread of the client calls this before it ends."""
        parts, driver = self.components, self.driver.inherited()
        driver.disable_wakeup()
        try:
            if not parts.step.unfinished:
                run(self._leave_dropped(driver, Timer(parts.clock, DROPPED_LEAVE_MS)), driver.wait)
        except Exception as error:  # of a broker, or because the process ends
            log.info("a consumer that was not closed could not leave its group: %s", error)
        finally:
            parts.mark_closed()
            parts.client.close()

    @abstractmethod
    def _leave_dropped(self, driver: Driver, limit: Timer) -> Operation[None]:
        """Leave the group without callbacks. Waits for the response until the limit at most."""

    def abandon(self) -> None:
        """End the threads and close the sockets without sending a request.

        In a forked child this does not close the connections of the parent.
        """
        self.driver.stop()
        self.components.mark_closed()
        self.components.client.abandon()
