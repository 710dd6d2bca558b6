"""An error that a user callable, an encoder or a response handler raises once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.engine.dispatcher import Dispatcher
from kconsumer.errors import KafkaError, ProtocolError
from kconsumer.net import connection

# Each partition of a response may raise one error. A connection in backoff after an error fails other requests.
MAX_ERRORS = 5


class HookError(Exception):
    """The error that user callables raise."""


class Fault:
    """Raises at one of many calls."""

    def __init__(self, name: str, number: int, error: type[Exception] = HookError) -> None:
        self.name, self.left, self.error = name, number, error

    @property
    def raised(self) -> bool:
        """True if it has raised."""
        return self.left <= 0

    def __call__(self, name: str) -> None:
        """Count a call of a user callable, and raise if it is the chosen one."""
        if name == self.name:
            self.left -= 1
            if self.left == 0:
                raise self.error(name)


def fail_in_encoder(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Call the fault with the name of each API for which a request is encoded."""
    encode = vars(connection)["encode_request"]

    def faulty(api: Any, *rest: Any) -> Any:
        fault(api.name)
        return encode(api, *rest)

    monkeypatch.setattr(connection, "encode_request", faulty)


def fail_in_decoder(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Call the fault with the name of each API whose response is decoded."""
    decode = vars(connection)["decode_response"]

    def faulty(api: Any, *rest: Any) -> Any:
        fault(api.name)
        return decode(api, *rest)

    monkeypatch.setattr(connection, "decode_response", faulty)


def fail_in_handler(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Call the fault with the name of each API before a response without an error is handled."""
    hand = Dispatcher._hand

    def faulty(self: Dispatcher, request: UnsentRequest, reply: Reply) -> None:
        handler = request.handler

        def handle(reply: Reply) -> None:
            if reply.error is None:
                fault(request.api.name)
            handler(reply)

        if reply.error is None:
            request.handler = handle
        hand(self, request, reply)

    monkeypatch.setattr(Dispatcher, "_hand", faulty)


#: The places in which the request of an API may fail once: how to let it fail, with which error, and the class of the
#: errors that calls may raise then.
PLACES: dict[str, tuple[Callable[[pytest.MonkeyPatch, Fault], None], type[Exception], type[KafkaError]]] = {
    "encoder": (fail_in_encoder, TypeError, ProtocolError),
    "decoder": (fail_in_decoder, ProtocolError, KafkaError),
    "handler": (fail_in_handler, HookError, KafkaError),
}


def failing_request(
    monkeypatch: pytest.MonkeyPatch, place: str, api: str, number: int
) -> tuple[Fault, type[KafkaError]]:
    """Let the n-th request of an API fail at a place. Returns the fault, and the class of the errors of calls."""
    fail, error, raised = PLACES[place]
    fault = Fault(api, number, error)
    fail(monkeypatch, fault)
    return fault, raised
