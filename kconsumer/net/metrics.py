"""The network part of `consumer-metrics`, and `consumer-node-metrics` for each connection (Java `SelectorMetrics`).

Recorded per request, per connection and per poll of the network; bytes that come in many pieces are added up until the
poll ends. A bootstrap connection counts as a node of its own, and so does a coordinator's, under Java's number for it.
"""

from __future__ import annotations

from kconsumer.metrics.registry import Metrics, Row, Sensor, Stat
from kconsumer.net.messages import ClientResponse, broker_id

GROUP = "consumer-metrics"
NODE_GROUP = "consumer-node-metrics"
MAX_NODE_ID = 2**31 - 1
NS_PER_MS = 1e6

CREATED: tuple[Row, ...] = (
    ("connection-creation-rate", Stat.COUNT_RATE, "Connections opened per second"),
    ("connection-creation-total", Stat.COUNT, "Connections opened"),
)
CLOSED: tuple[Row, ...] = (
    ("connection-close-rate", Stat.COUNT_RATE, "Connections closed per second"),
    ("connection-close-total", Stat.COUNT, "Connections closed"),
)
LOGINS: tuple[Row, ...] = (
    ("successful-authentication-rate", Stat.COUNT_RATE, "TLS handshakes and logins that succeeded, per second"),
    ("successful-authentication-total", Stat.COUNT, "TLS handshakes and logins that succeeded"),
    ("successful-authentication-no-reauth-total", Stat.COUNT, "The same: clients cannot ask others to log in again"),
)
LOGINS_AGAIN: tuple[Row, ...] = (
    ("successful-reauthentication-rate", Stat.COUNT_RATE, "Sessions prolonged per second"),
    ("successful-reauthentication-total", Stat.COUNT, "Sessions prolonged"),
    ("reauthentication-latency-avg", Stat.AVG, "Mean time to prolong a session, ms"),
    ("reauthentication-latency-max", Stat.MAX, "Longest time to prolong a session, ms"),
)
REFUSED: tuple[Row, ...] = (
    ("failed-authentication-rate", Stat.COUNT_RATE, "TLS handshakes and logins that failed, per second"),
    ("failed-authentication-total", Stat.COUNT, "TLS handshakes and logins that failed"),
)
REFUSED_AGAIN: tuple[Row, ...] = (
    ("failed-reauthentication-rate", Stat.COUNT_RATE, "Sessions that a broker refused to prolong, per second"),
    ("failed-reauthentication-total", Stat.COUNT, "Sessions that a broker refused to prolong"),
)
IO: tuple[Row, ...] = (
    ("network-io-rate", Stat.COUNT_RATE, "Reads and writes of connections per second"),
    ("network-io-total", Stat.COUNT, "Reads and writes of connections"),
)
OUTGOING: tuple[Row, ...] = (
    ("outgoing-byte-rate", Stat.RATE, "Bytes sent per second"),
    ("outgoing-byte-total", Stat.TOTAL, "Bytes sent"),
)
INCOMING: tuple[Row, ...] = (
    ("incoming-byte-rate", Stat.RATE, "Bytes received per second"),
    ("incoming-byte-total", Stat.TOTAL, "Bytes received"),
)
REQUESTS: tuple[Row, ...] = (
    ("request-rate", Stat.COUNT_RATE, "Requests sent per second"),
    ("request-total", Stat.COUNT, "Requests sent"),
    ("request-size-avg", Stat.AVG, "Mean size of requests, bytes"),
    ("request-size-max", Stat.MAX, "Largest request, bytes"),
)
RESPONSES: tuple[Row, ...] = (
    ("response-rate", Stat.COUNT_RATE, "Responses received per second"),
    ("response-total", Stat.COUNT, "Responses received"),
)
WAITS: tuple[Row, ...] = (
    ("select-rate", Stat.COUNT_RATE, "Looks at what connections are ready for, per second"),
    ("select-total", Stat.COUNT, "Looks at what connections are ready for"),
    ("io-wait-time-ns-avg", Stat.AVG, "Mean time such a look waited, ns"),
    ("io-wait-time-ns-total", Stat.TOTAL, "Time spent waiting for connections, ns"),
    ("io-wait-ratio", Stat.RATIO, "Share of the time spent waiting for connections"),
)
WORK: tuple[Row, ...] = (
    ("io-time-ns-avg", Stat.AVG, "Mean time spent on what a look found, ns"),
    ("io-time-ns-total", Stat.TOTAL, "Time spent reading and writing, ns"),
    ("io-ratio", Stat.RATIO, "Share of the time spent reading and writing"),
)
LATENCY: tuple[Row, ...] = (
    ("request-latency-avg", Stat.AVG, "Mean time from a request to its response, ms"),
    ("request-latency-max", Stat.MAX, "Longest time from a request to its response, ms"),
)


class _Node:
    """Sensors of one connection, and what it received in the present poll."""

    __slots__ = ("answers", "incoming", "latency", "outgoing", "received", "requests", "responses")

    def __init__(self, metrics: Metrics, node: str) -> None:
        tag = ("node-id", f"node-{_java_id(node)}")
        self.outgoing = metrics.sensor(NODE_GROUP, OUTGOING, tag)
        self.incoming = metrics.sensor(NODE_GROUP, INCOMING, tag)
        self.requests = metrics.sensor(NODE_GROUP, REQUESTS, tag)
        self.responses = metrics.sensor(NODE_GROUP, RESPONSES, tag)
        self.latency = metrics.sensor(NODE_GROUP, LATENCY, tag)
        self.received = 0
        self.answers = 0


class ConnectionMetrics:
    """Sensors of all connections of one client and of each; what a `NetworkClient` tells goes here."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._created, self._closed, self._io, self._outgoing, self._incoming = (
            metrics.sensor(GROUP, rows) for rows in (CREATED, CLOSED, IO, OUTGOING, INCOMING)
        )
        self._logins, self._logins_again, self._refused, self._refused_again = (
            metrics.sensor(GROUP, rows) for rows in (LOGINS, LOGINS_AGAIN, REFUSED, REFUSED_AGAIN)
        )
        self._requests: Sensor = metrics.sensor(GROUP, REQUESTS)
        self._responses = metrics.sensor(GROUP, RESPONSES)
        self._waits = metrics.sensor(GROUP, WAITS)
        self._work = metrics.sensor(GROUP, WORK)
        self._open: set[str] = set()
        self._nodes: dict[str, _Node] = {}
        self._heard: list[_Node] = []  # those that received something in the present poll
        count = metrics.name("connection-count", GROUP, "Connections that are open")
        metrics.gauge(count, lambda _now: float(len(self._open)))

    def connected(self, node: str, now: float) -> None:
        """A connection became ready."""
        self._open.add(node)
        self._created.record(1, now)

    def disconnected(self, node: str, now: float) -> None:
        """A connection ended; an attempt that failed was never open."""
        if node in self._open:
            self._open.remove(node)
            self._closed.record(1, now)

    def authenticated(self, again_ms: float | None, now: float) -> None:
        """A broker knows us."""
        if again_ms is None:
            self._logins.record(1, now)
        else:
            self._logins_again.record(again_ms, now)

    def refused(self, again: bool, now: float) -> None:
        """A broker does not."""
        (self._refused_again if again else self._refused).record(1, now)

    def sent(self, node: str, size: int, request: int, now: float) -> None:
        """Bytes left."""
        sensors = self._nodes.get(node) or self._new_node(node)
        self._io.record(1, now)
        self._outgoing.record(size, now)
        sensors.outgoing.record(size, now)
        if request:
            self._requests.record(request, now)
            sensors.requests.record(request, now)

    def received(self, node: str, size: int, answers: int) -> None:
        """Bytes came."""
        sensors = self._nodes.get(node) or self._new_node(node)
        if not sensors.received:
            self._heard.append(sensors)
        sensors.received += size
        sensors.answers += answers

    def answered(self, response: ClientResponse) -> None:
        """A request ended."""
        if response.error is None:
            self._nodes[response.request.node].latency.record(response.now - response.sent_at, response.now)

    def polled(self, selects: int, waited_ms: float, busy_ms: float, now: float) -> None:
        """A poll ended."""
        self._waits.record(waited_ms * NS_PER_MS, now, selects)
        self._work.record(busy_ms * NS_PER_MS, now, selects)
        for node in self._heard:
            self._io.record(1, now)
            self._incoming.record(node.received, now)
            node.incoming.record(node.received, now)
            if node.answers:
                self._responses.record(0, now, node.answers)
                node.responses.record(0, now, node.answers)
            node.received = node.answers = 0
        self._heard.clear()

    def _new_node(self, node: str) -> _Node:
        sensors = self._nodes[node] = _Node(self._metrics, node)
        return sensors


def _java_id(node: str) -> int:
    """The number Java gives a connection; a coordinator's own counts down from the largest, to differ.

    One for expedited fetches, which Java does not have, counts down from half of that.
    """
    largest = {"+": MAX_NODE_ID, "*": MAX_NODE_ID // 2}.get(node[0])
    return int(node) if largest is None else largest - broker_id(node)
