"""Requests as a broker receives them, and responses that are completed later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isfunction
from typing import Any, TypeVar

from kconsumer._common.error_codes import CODES
from kconsumer.schema.dsl import Api, Message
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.connection import Connection


@dataclass(slots=True, eq=False)
class Request:
    """A decoded request."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: Any
    connection: Connection
    size: int  # bytes of the request

    @property
    def broker(self) -> Broker:
        return self.connection.broker

    def __repr__(self) -> str:
        return f"<Request {self.api.name} v{self.version} #{self.correlation_id} to {self.broker!r}: {self.message!r}>"


class Pending:
    """The response to a request that has to wait, such as a Fetch without data or a JoinGroup during a rebalance.

    A handler returns a `Pending` in place of a response. `complete` may be called before the handler returns.
    """

    __slots__ = ("_on_complete", "request", "response")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.response: Message | None = None  # None until it is complete
        self._on_complete: Callable[[Message, float], None] | None = None

    @property
    def done(self) -> bool:
        """True if the request has its response, or the connection that waits for it was closed."""
        return self.response is not None or self.request.connection.closed

    def complete(self, response: Message, now: float) -> None:
        """Set the response, and pass it to the callback. Does nothing if the request has a response already."""
        if self.response is not None:
            return
        self.response = response
        if self._on_complete is not None:
            self._on_complete(response, now)

    def on_complete(self, callback: Callable[[Message, float], None], now: float) -> None:
        """Call `callback(response, now)` when the response is complete, or at once if it is complete already."""
        self._on_complete = callback
        if self.response is not None:
            callback(self.response, now)


class GroupError(Exception):
    """A request was rejected with an error code. The response has the message if the API has a field for it."""

    def __init__(self, error: int, message: str | None = None) -> None:
        super().__init__(message or CODES[error].name)
        self.error = error
        self.message = message


#: What a handler returns: a response, a response that comes later, or None if the request has no response.
Response = Message | Pending | None
Handler = Callable[[Request, float], Response]
Method = TypeVar("Method", bound=Callable[..., Response])
_APIS: dict[object, tuple[Api, ...]] = {}  # the APIs of each method that is a handler


def handles(*apis: Api) -> Callable[[Method], Method]:
    """Make a method the handler of APIs."""

    def register(method: Method) -> Method:
        _APIS[method] = apis
        return method

    return register


def handlers_of(*components: object) -> dict[Api, Handler]:
    """Returns the handlers among the methods of components, by API."""
    return {
        api: getattr(component, name)
        for component in components
        for name, method in vars(type(component)).items()
        if isfunction(method)
        for api in _APIS.get(method, ())
    }
