"""The interface between managers and the engine: requests, replies and promises.

A manager does not send requests itself. Its `poll(now)` returns the requests to send and the time until the next poll
is due. The engine sends the requests, and calls the `handler` of each with a `Reply`. A blocking call of the public API
waits for a `Promise`, which a manager completes in its `poll` or in a handler.

`requests.py` has the classes of requests and replies, which the network uses, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kconsumer._internal.requests import Reply, UnsentRequest
from kconsumer.errors import AuthenticationError, KafkaError
from kconsumer.errors import TimeoutError as KafkaTimeoutError

if TYPE_CHECKING:
    from kconsumer._common.backoff import RetryTimer

__all__ = [
    "FOREVER",
    "ErrorSource",
    "KeepsErrors",
    "PendingCall",
    "PollResult",
    "Promise",
    "Reply",
    "RequestManager",
    "UnsentRequest",
    "timed_out",
]

T = TypeVar("T")
FOREVER = float("inf")


class PollResult:
    """The result of polling a manager: requests to send, the time to wait, and a connection to close."""

    __slots__ = ("disconnect", "requests", "wait_ms")

    def __init__(
        self, requests: list[UnsentRequest] | None = None, wait_ms: float = FOREVER, disconnect: str | None = None
    ) -> None:
        self.requests = [] if requests is None else requests
        self.wait_ms = wait_ms  # ms until the next poll; any activity may make it due earlier
        self.disconnect = disconnect  # a connection to close first; its waiting and in-flight requests fail

    def __repr__(self) -> str:
        return f"<PollResult: {self.requests}, wait {self.wait_ms} ms, disconnect {self.disconnect}>"


class RequestManager(Protocol):
    """Any manager that an engine polls."""

    def poll(self, now: float) -> PollResult:
        """Returns the requests to send at `now` (ms), and the time until the next poll."""
        ...


class KeepsErrors(Protocol):
    """A manager that keeps errors which calls of the user raise."""

    @property
    def has_error(self) -> bool:
        """True if a call must end its wait, because `take_error` returns an error. Any thread may read it."""
        ...

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None."""
        ...


class ErrorSource:
    """Keeps an error of a manager until a call raises it, or until what failed has succeeded: its cause is over."""

    _error: KafkaError | None = None

    @property
    def has_error(self) -> bool:
        """True if `take_error` returns an error."""
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Returns the error that the user's next call must raise, or None. Each error is returned once."""
        error, self._error = self._error, None
        return error

    def keep_error(self, error: KafkaError | None) -> None:
        """Keep an error for the user's next call, in place of an earlier one. None means that there is none."""
        self._error = error

    def on_response(self, *, success: bool) -> None:
        """Forget the error after a success, and the error of a login after any response: a later login succeeded."""
        if success or isinstance(self._error, AuthenticationError):
            self._error = None


class Promise(Generic[T]):
    """The future result of a call: a value or an error (Java `RequestFuture`). A manager completes the promise."""

    __slots__ = ("_callbacks", "done", "error", "last_error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T | None = None
        self.error: KafkaError | None = None
        self.last_error: BaseException | None = None  # of the last attempt that failed, and is made again
        self._callbacks: list[Callable[[Promise[T]], None]] = []

    def set_result(self, value: T) -> None:
        """Complete the promise with a value. Does nothing if it is completed already."""
        self._finish(value, None)

    def set_exception(self, error: KafkaError) -> None:
        """Complete the promise with an error. Does nothing if it is completed already."""
        self._finish(None, error)

    def attempt_failed(self, error: BaseException | None) -> None:
        """Store the error of an attempt that is made again. It is the cause if the call times out."""
        self.last_error = error or self.last_error

    @property
    def timeout_cause(self) -> BaseException | None:
        """The error because of which the call has timed out, or None if no attempt has failed."""
        return self.last_error or (None if self.error is None else self.error.__cause__)

    def add_done_callback(self, callback: Callable[[Promise[T]], None]) -> None:
        """Call `callback(self)` when the promise is completed, or now if it is completed already."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """Returns the value of a completed promise, or raises its error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # completed with a T, which may itself be None

    def _finish(self, value: T | None, error: KafkaError | None) -> None:
        if self.done:
            return
        self.done, self.value, self.error = True, value, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def __repr__(self) -> str:
        state = "pending" if not self.done else f"error={self.error!r}" if self.error else f"value={self.value!r}"
        return f"<Promise {state}>"


class PendingCall(Generic[T]):
    """A call of the public API whose requests are retried until its deadline (Java `TimedRequestState`)."""

    __slots__ = ("backoff", "deadline", "in_flight", "promise")

    def __init__(self, deadline: float, backoff: RetryTimer) -> None:
        self.promise: Promise[T] = Promise()
        self.deadline = deadline
        self.backoff = backoff
        self.in_flight = 0  # the number of requests without a response

    def wait_ms(self, now: float) -> float:
        """Returns the time (ms) until a request must be sent, or until the deadline if that is earlier."""
        pause_ms = FOREVER if self.in_flight else self.backoff.remaining_ms(now)
        return max(0.0, min(pause_ms, self.deadline - now))

    def on_sent(self) -> None:
        """Record that a request was created to be sent."""
        self.in_flight += 1

    def on_response(self) -> None:
        """Record that a request has ended, with a response or an error."""
        self.in_flight -= 1

    def retry(self, error: KafkaError, now: float) -> None:
        """Store the error of a failed attempt, and start the backoff."""
        self.promise.attempt_failed(error)
        self.backoff.failed(now)

    def time_out(self, message: str) -> None:
        """Complete the promise with a TimeoutError. Its cause is the error of the last attempt."""
        self.promise.set_exception(timed_out(message, [self.promise.last_error]))


def timed_out(message: str, causes: Iterable[BaseException | None]) -> KafkaTimeoutError:
    """Returns a TimeoutError. Its message contains the known causes, and its `__cause__` is the first of them."""
    known = [cause for cause in causes if cause is not None]
    texts = list(dict.fromkeys(map(str, known)))
    distinct = [text for text in texts if not any(text != other and text in other for other in texts)]
    error = KafkaTimeoutError(": ".join([message, *filter(None, ["; ".join(distinct)])]))
    error.__cause__ = known[0] if known else None
    return error
