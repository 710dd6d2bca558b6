"""Measures what simulated processes send, receive and compute: requests and bytes by API, and CPU time.

The CPU time of a process is that of its tasks: the client with its selectors and its part of the simulated network, but
not the model of the cluster, which runs in the scheduler.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import greenlet

from kconsumer.config.options import ConsumerConfig
from kconsumer.net.transport import Address
from kconsumer.testing.cluster.requests import Request, Response
from support.simulation.network import SimulatedNetwork, SimulatedSocket
from support.simulation.scheduler import Process
from support.simulation.simulation import Simulation

PREFIX_BYTES = 4  # the size before each request and response
HEARTBEATS = ("Heartbeat", "ConsumerGroupHeartbeat")


@dataclass
class Totals:
    """What was counted since the start of a measurement."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)  # by process and API, like the next two
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)  # bytes of requests
    received: Counter[tuple[str, str]] = field(default_factory=Counter)  # bytes of responses
    cpu_ns: Counter[str] = field(default_factory=Counter)  # by process
    model_ns: int = 0  # CPU time outside of all processes

    def by_api(self, members: int) -> dict[str, dict[str, float]]:
        """Return requests and bytes of each API per member."""
        apis = sorted({api for _, api in self.requests})
        return {
            api: {
                name: sum(count for (_, key), count in counter.items() if key == api) / members
                for name, counter in (("requests", self.requests), ("sent", self.sent), ("received", self.received))
            }
            for api in apis
        }


class MeteredSocket(SimulatedSocket):
    """A socket whose received bytes are counted for the API of the last request.

    A connection of the model processes one request at a time, so each response belongs to the last request.
    """

    def __init__(self, network: SimulatedNetwork, process: Process, broker_id: int, meter: Meter) -> None:
        super().__init__(network, process, broker_id)
        self.meter = meter
        self.api = ""

    def respond(self, data: bytes) -> None:
        """Count the bytes of a response, and send them to the client."""
        self.meter.totals.received[self.process.name, self.api] += len(data)
        super().respond(data)


class Meter:
    """Counts in one simulation, from its creation on."""

    def __init__(self, simulation: Simulation) -> None:
        self.totals = Totals()
        #: When each process had its last successful heartbeat (virtual ms).
        self.heartbeats: dict[str, float] = {}
        self._simulation = simulation
        self._handle = simulation.cluster.handle
        self._hub = greenlet.getcurrent()  # runs the scheduler and the model
        self._since = time.thread_time_ns()
        simulation.cluster.handle = self._count_request
        simulation.network.connect = self._connect
        greenlet.settrace(self._on_switch)

    def close(self) -> None:
        """Stop counting CPU time."""
        greenlet.settrace(None)

    def reset(self) -> Totals:
        """Begin a new measurement. Return the totals of the last one."""
        found, self.totals = self.totals, Totals()
        return found

    def _connect(self, process: Process, _host: str, address: Address, _config: ConsumerConfig) -> MeteredSocket:
        network = self._simulation.network
        return MeteredSocket(network, process, network._ports[address.sockaddr[1]], self)

    def _count_request(self, request: Request, now: float) -> Response:
        socket = self._simulation.network.by_connection.get(request.connection)
        if not isinstance(socket, MeteredSocket):  # the connection has been closed
            return self._handle(request, now)
        name, api = socket.process.name, request.api.name
        socket.api = api
        self.totals.requests[name, api] += 1
        self.totals.sent[name, api] += request.size + PREFIX_BYTES
        response = self._handle(request, now)
        if api in HEARTBEATS and response is not None and not response.error_code:
            self.heartbeats[name] = now
        return response

    def _on_switch(self, _event: str, switched: tuple[Any, Any]) -> None:
        """Add the time since the last switch to the process that has run. `switched`: the old and the new greenlet."""
        now = time.thread_time_ns()
        task = self._simulation.scheduler.current
        if switched[0] is self._hub or task is None:
            self.totals.model_ns += now - self._since
        else:
            self.totals.cpu_ns[task.process.name] += now - self._since
        self._since = now
