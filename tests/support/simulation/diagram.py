"""Records requests and responses in the history of a run, and draws a part of the history as a sequence diagram."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from kconsumer._common.error_codes import CODES
from kconsumer.schema.dsl import Message
from kconsumer.testing.cluster.cluster import ClientConnection
from kconsumer.testing.cluster.faults import Fault
from kconsumer.testing.cluster.requests import Request
from support.simulation.run import Run
from support.simulation.scenario import Scenario
from support.simulation.simulation import Simulation, off_main_thread

ENTRY = re.compile(r" *(\d+\.\d+) (?:(\S+) -> (\S+)|([^:]+)): (.*)")
ARROW = " -> "


class RequestRecorder:
    """A context manager that adds each request and each response to the history of a simulation.

    The driver of the model is not changed. So the members do the same as without a recorder.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._decode = ClientConnection._decode
        self._respond = ClientConnection._respond

    def __enter__(self) -> RequestRecorder:
        simulation, original_decode, original_respond = self._simulation, self._decode, self._respond

        def decode(connection: ClientConnection, frame: bytes, now: float) -> Request | None:
            request = original_decode(connection, frame, now)
            if request is not None:
                broker = f"b{connection.broker.id}"
                text = f"{request.api.name} v{request.version} #{request.correlation_id}"
                simulation.record(f"{request.client_id}{ARROW}{broker}", text)
            return request

        def respond(
            connection: ClientConnection, request: Request, fault: Fault | None, response: Any, now: float
        ) -> None:
            if not connection.closed:
                errors = "".join(f" {name}" for name in error_names(response))
                text = f"{request.api.name} response #{request.correlation_id}{errors}"
                simulation.record(f"b{connection.broker.id}{ARROW}{request.client_id}", text)
            original_respond(connection, request, fault, response, now)

        self._set(decode, respond)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self._decode, self._respond)

    @staticmethod
    def _set(decode: Any, respond: Any) -> None:
        for name, function in (("_decode", decode), ("_respond", respond)):
            setattr(ClientConnection, name, function)


class Replay(Run):
    """A run that stops at a time. The rules for the end of a run are not checked if it stops before."""

    def __init__(self, scenario: Scenario, until_ms: float) -> None:
        super().__init__(scenario)
        self._until_ms = until_ms
        scheduler = self.simulation.scheduler
        run = scheduler.run

        def run_until(until: float, *, finished: Callable[[], bool] = bool) -> None:
            run(min(until, until_ms), finished=finished)

        vars(scheduler)["run"] = run_until

    @property
    def _stopped(self) -> bool:
        return self.simulation.now >= self._until_ms

    def _check_stable(self) -> None:
        if not self._stopped:
            super()._check_stable()

    def _check_processed(self) -> None:
        if not self._stopped:
            super()._check_processed()

    def _check_closed(self) -> None:
        if not self._stopped:
            super()._check_closed()


def history_of(scenario: Scenario, until_ms: float | None = None, *, requests: bool = False) -> list[str]:
    """Run a scenario, at most until a time (ms). Returns the history, and the violations at its end.

    `requests`: the history contains requests and responses, too.
    """

    def replay() -> list[str]:
        run = Replay(scenario, math.inf if until_ms is None else until_ms)
        with ExitStack() as stack:
            if requests:
                stack.enter_context(RequestRecorder(run.simulation))
            outcome = run.run()
        return [*outcome.history, *(f"violation: {text}" for text in outcome.violations)]

    return off_main_thread(replay)


def error_names(message: object) -> list[str]:
    """Returns the names of the error codes in a response, without repetitions."""
    names: dict[str, None] = {}
    _collect(message, names)
    return list(names)


def _collect(value: object, names: dict[str, None]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, names)
    elif isinstance(value, Message):
        for field in value.FIELDS:
            entry = getattr(value, field.name)
            if field.name == "error_code":
                if entry:
                    names[CODES[entry].name] = None
            else:
                _collect(entry, names)


def window(history: Iterable[str], from_ms: float, to_ms: float) -> list[str]:
    """Returns the entries of a history in a range of times (ms)."""
    entries = []
    for entry in history:
        match = ENTRY.fullmatch(entry)
        if match is not None and from_ms <= float(match[1]) <= to_ms:
            entries.append(entry)
    return entries


def sequence_diagram(history: Iterable[str]) -> str:
    """Returns a Mermaid sequence diagram of the entries of a history."""
    participants: dict[str, None] = {}
    lines = []
    for entry in history:
        match = ENTRY.fullmatch(entry)
        if match is None:
            continue
        time, sender, receiver, who, text = match.groups()
        text = text.replace(";", ",").replace("#", "no. ")  # both would end a message of Mermaid
        if sender is None:
            name = who.replace(" ", "_")
            participants[name] = None
            lines.append(f"    Note over {name}: {time} {text}")
        else:
            participants[sender] = participants[receiver] = None
            arrow = "-->>" if sender.startswith("b") else "->>"
            lines.append(f"    {sender}{arrow}{receiver}: {time} {text}")
    return "\n".join(["sequenceDiagram", *(f"    participant {name}" for name in sorted(participants)), *lines])
