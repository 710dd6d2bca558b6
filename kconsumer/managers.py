"""The interface between managers and the engine: requests, replies and promises.

A manager does not send requests itself. Its `poll(now)` returns the requests to send and the time until the next poll
is due. The engine sends the requests, and calls the `handler` of each with a `Reply`. A blocking call of the public API
waits for a `Promise`, which a manager completes in its `poll` or in a handler.

The classes of requests and replies are not dataclasses, because `@dataclass` would generate their methods again in each
process, which makes the import slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kconsumer.errors import KafkaError
from kconsumer.errors import TimeoutError as KafkaTimeoutError
from kconsumer.schema.dsl import Api

if TYPE_CHECKING:
    from kconsumer.backoff import RetryTimer

T = TypeVar("T")
FOREVER = float("inf")


class Reply:
    """The result of a request: the response, or the error of the client if there is no response."""

    __slots__ = ("error", "message", "node", "now", "sent_at", "version")

    def __init__(
        self,
        message: Any,
        error: KafkaError | None,
        now: float,
        version: int = -1,
        node: str = "",
        sent_at: float = 0.0,
    ) -> None:
        self.message = message  # the response; it may contain error codes
        self.error = error  # an error of the client, such as a disconnect, a timeout or no common version
        self.now = now  # when the request ended (ms)
        self.version = version  # the version of the request
        self.node = node  # the connection id
        self.sent_at = sent_at  # when the request was sent (ms)

    def __repr__(self) -> str:
        return f"<Reply from {self.node or 'no node'}, v{self.version}: {self.error or self.message!r}>"


class UnsentRequest:
    """A request that a manager has created, for the engine to send."""

    __slots__ = ("api", "handler", "max_version", "message", "min_version", "needs", "node", "timeout_ms")

    def __init__(
        self,
        api: Api,
        message: Any,
        handler: Callable[[Reply], None],
        node: str | None = None,
        timeout_ms: float | None = None,
        min_version: int = 0,
        max_version: int = 32767,
        needs: str = "",
    ) -> None:
        self.api, self.message, self.handler = api, message, handler
        self.needs = needs  # what needs `min_version`, and what to change; for the error of a broker without it
        self.node = node  # the connection id: "3", or "+3" for the coordinator connection to broker 3; None: any broker
        self.timeout_ms = timeout_ms  # None: the option `request_timeout_ms` applies
        self.min_version, self.max_version = min_version, max_version

    def send_over(self, connection: str) -> None:
        """Choose another connection for this request, which was not sent yet."""
        self.node = connection

    def handle_with(self, handler: Callable[[Reply], None]) -> None:
        """Replace the handler of this request, which is in flight."""
        self.handler = handler

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` after the handler has returned. It is not called if the handler raises."""
        handler = self.handler

        def handle(reply: Reply) -> None:
            handler(reply)
            callback()

        self.handler = handle

    def __repr__(self) -> str:
        return f"<UnsentRequest to {self.node or 'any broker'}: {self.message!r}>"


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
