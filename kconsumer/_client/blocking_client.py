"""BlockingClient: how a consumer ends whose methods block the calling thread."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from kconsumer._client.client_base import ClientBase, Timeout
from kconsumer._core.lock import Timer
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer.errors import KafkaError


class BlockingClient(ClientBase):
    """The part of `Consumer` and `ShareConsumer` that closes them."""

    @abstractmethod
    def close(self, timeout: Timeout = 30.0) -> None:
        """Close the consumer."""

    def _close_after_error(self) -> None:
        """Close the consumer, because the body of a `with` statement raised."""
        self.close()

    def _close_once(self, timeout: Timeout, close: Callable[[Timer], None]) -> None:
        """Call `close` with the timer, unless this was done before. Signal handlers wait for its end."""
        if self._guard.closed:
            return
        timer = self._timer(timeout)
        outer = self._guard.enter(closing=True)
        if self._closing:  # called by a callback or a signal handler that runs inside close()
            self._guard.holder = outer
            return
        self._closing = True
        try:
            holds = SIGNALS.hold(self._guard.end_wait)
            try:
                self._drop_unreached()
                close(timer)
            finally:
                self._guard.closed = True
                if holds:
                    SIGNALS.release()
        finally:
            self._guard.holder = outer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumer. If the body raised, the records of the body are not committed, and are read again.

        An error of `close` is then added to the error of the body as a note.
        """
        if kind is None:
            self.close()
            return
        try:
            self._close_after_error()
        except KafkaError as close_error:
            if error is not None:
                error.add_note(f"closing the consumer failed, too: {close_error}")
