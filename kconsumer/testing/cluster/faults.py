"""Faults that a test asks for: errors, delays, lost connections, damaged responses, and faults of the network.

Each API has a queue of `Fault` objects. A request takes the first fault in the queue of its API that applies to it, and
no other. Faults of a broker are in effect until the test ends them.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from dataclasses import dataclass

from kconsumer.schema.dsl import Api, Message
from kconsumer.schema.fetch import FETCH
from kconsumer.testing.cluster.error_responses import ROWS_BEFORE_TOP, error_response, reports_errors
from kconsumer.testing.cluster.fetch import FetchHandlers
from kconsumer.testing.cluster.log import Log
from kconsumer.testing.cluster.requests import Request
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.stored_batch import StoredBatch

CRC_AT = {0: 12, 1: 12, 2: 17}  # the position of the checksum in a batch, by format
MAGIC_AT = 16
HEADER_BYTES = 8  # the size and the correlation id of a response


class FaultKind(enum.Enum):
    """The effects that a fault can have on a request. The value of each member describes the effect."""

    ERROR = "the response has an error code, and the request has no effect"
    DISCONNECT_BEFORE = "the connection is closed, and the request has no effect"
    DISCONNECT_AFTER = "the connection is closed after the request has had its effect"
    HALF_RESPONSE = "the connection is closed after the first half of the response"
    CORRUPT_RESPONSE = "a byte of the response has another value"


@dataclass
class Fault:
    """A fault that affects the next `times` requests of an API."""

    kind: FaultKind
    times: int = 1
    error: int = 0  # of FaultKind.ERROR
    broker: int | None = None  # the broker to which the requests are sent; None: any


class Faults:
    """The faults of a cluster. `seed`: the seed of the random generator that selects the bytes to corrupt."""

    def __init__(self, cluster: ClusterState, fetch: FetchHandlers, seed: int = 0) -> None:
        self._cluster, self._fetch = cluster, fetch
        self._random = random.Random(seed)
        self._queues: dict[int, deque[Fault]] = {}  # by API key
        self._delays: dict[int, float] = {}  # ms, by API key

    # --- faults of requests ---

    def add(self, api: Api, fault: Fault) -> None:
        """Add a fault to the end of an API's queue."""
        self._queues.setdefault(api.key, deque()).append(fault)

    def remove(self, api: Api, fault: Fault) -> None:
        """Remove a fault from an API's queue. Does nothing if requests have taken all of it."""
        queue = self._queues.get(api.key, deque())
        self._queues[api.key] = deque(other for other in queue if other is not fault)

    def delay(self, api: Api, ms: float) -> None:
        """Delay the responses of an API by `ms` from now on. 0 ends the delay."""
        self._delays[api.key] = ms

    def take(self, request: Request) -> Fault | None:
        """Returns the fault that a request takes, or None if no fault in the queue of its API applies to it.

        Decrements `times` of the fault, and removes the fault from the queue if `times` is 0 then.
        """
        queue = self._queues.get(request.api.key)
        if not queue:
            return None
        for fault in queue:
            if fault.broker not in (None, request.broker.id):
                continue
            if fault.kind is FaultKind.ERROR and not reports_errors(request):
                continue
            fault.times -= 1
            if not fault.times:
                queue.remove(fault)
            return fault
        return None

    def error_response(self, request: Request, fault: Fault, now: float) -> Message:
        """Returns the response to a request, with the error code of a fault.

        In a Fetch response, each partition has the error code, and the fetch session continues. This does not apply to
        the errors that Kafka reports for a whole Fetch response: for them, the response itself has the error code.
        """
        if request.api is FETCH and fault.error not in ROWS_BEFORE_TOP["Fetch"]:
            return self._fetch.failed_response(request, fault.error, now)
        return error_response(self._cluster.topics, request, fault.error)

    def delay_of(self, request: Request) -> float:
        """Returns by how many ms the response to a request is delayed."""
        return self._delays.get(request.api.key, 0.0)

    def damaged(self, fault: Fault | None, data: bytes) -> tuple[bytes, bool]:
        """Returns the bytes to send in place of an encoded response, and whether to close the connection afterwards.

        Without a fault that affects the response, these are `data` and False.
        """
        match fault.kind if fault is not None else None:
            case FaultKind.DISCONNECT_AFTER:
                return b"", True
            case FaultKind.HALF_RESPONSE:
                return data[: len(data) // 2], True
            case FaultKind.CORRUPT_RESPONSE:
                damaged = bytearray(data)
                damaged[self._random.randrange(min(HEADER_BYTES, len(data) - 1), len(data))] ^= 0xFF
                return bytes(damaged), False
        return data, False

    # --- faults of a broker ---

    def disconnect(self, broker_id: int) -> None:
        """Close all connections to a broker. The broker continues to run."""
        for connection in self._cluster.connections_to(broker_id):
            connection.close()

    def interrupt(self, broker_id: int) -> None:
        """Hold all bytes between a broker and its clients, in both directions, until `restore`."""
        self._cluster.brokers[broker_id].network.interrupted = True

    def restore(self, broker_id: int, now: float) -> None:
        """End `interrupt`, and pass on the bytes that were held."""
        self._cluster.brokers[broker_id].network.interrupted = False
        self._resume(broker_id, now)

    def limit_rate(self, broker_id: int, bytes_per_second: float | None, now: float) -> None:
        """Limit the rate at which a broker sends responses on each connection. None ends the limit."""
        self._cluster.brokers[broker_id].network.bytes_per_second = bytes_per_second
        self._resume(broker_id, now)

    def skew_clock(self, broker_id: int, ms: float) -> None:
        """Set by how many ms the wall clock of a broker is ahead of the clocks of the other brokers."""
        self._cluster.brokers[broker_id].clock_skew_ms = ms

    def _resume(self, broker_id: int, now: float) -> None:
        for connection in self._cluster.connections_to(broker_id):
            connection.resume(now)


def corrupt_batch(log: Log, offset: int) -> None:
    """Change the checksum of the stored batch that contains `offset`, so that it is wrong.

    Raises ValueError if no batch contains the offset.
    """
    for segment in log.segments:
        at = segment.find(offset)
        if at < len(segment.batches) and segment.batches[at].base_offset <= offset:
            data = bytearray(segment.batches[at].data)
            data[CRC_AT[data[MAGIC_AT]]] ^= 0xFF
            segment.batches[at] = StoredBatch(bytes(data))
            return
    known = "is empty" if log.start == log.end else f"has offsets from {log.start} to {log.end - 1}"
    raise ValueError(f"there is no record with offset {offset}; the log {known}")
