"""Metrics of connections (Java `SelectorMetrics`): their totals in the group `consumer-metrics`, and the values of each
connection in the group `consumer-node-metrics`.

Received bytes are added up and recorded at the end of each poll, because a response may arrive in many reads. As in
Java, each bootstrap connection and the coordinator's connection have a node id of their own in `consumer-node-metrics`.
"""

from __future__ import annotations

from kconsumer._core.sampled_values import record_both
from kconsumer.metrics.registry import Metrics, Row, Stat
from kconsumer.net.describe import broker_id
from kconsumer.net.requests import ClientResponse

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
AUTHENTICATIONS: tuple[Row, ...] = (
    ("successful-authentication-rate", Stat.COUNT_RATE, "Connections authenticated by TLS or SASL, per second"),
    ("successful-authentication-total", Stat.COUNT, "Connections authenticated by TLS or SASL"),
    ("successful-authentication-no-reauth-total", Stat.COUNT, "The same: only brokers see clients without KIP-368"),
)
REAUTHENTICATIONS: tuple[Row, ...] = (
    ("successful-reauthentication-rate", Stat.COUNT_RATE, "Sessions prolonged per second"),
    ("successful-reauthentication-total", Stat.COUNT, "Sessions prolonged"),
    ("reauthentication-latency-avg", Stat.AVG, "Mean time to prolong a session, ms"),
    ("reauthentication-latency-max", Stat.MAX, "Longest time to prolong a session, ms"),
)
FAILED_AUTHENTICATIONS: tuple[Row, ...] = (
    ("failed-authentication-rate", Stat.COUNT_RATE, "TLS handshakes and SASL authentications that failed, per second"),
    ("failed-authentication-total", Stat.COUNT, "TLS handshakes and SASL authentications that failed"),
)
FAILED_REAUTHENTICATIONS: tuple[Row, ...] = (
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
    ("select-rate", Stat.COUNT_RATE, "Calls of select, per second"),
    ("select-total", Stat.COUNT, "Calls of select"),
    ("io-wait-time-ns-avg", Stat.AVG, "Mean time that a call of select waited, ns"),
    ("io-wait-time-ns-total", Stat.TOTAL, "Time spent waiting for connections, ns"),
    ("io-wait-ratio", Stat.RATIO, "Share of the time spent waiting for connections"),
)
WORK: tuple[Row, ...] = (
    ("io-time-ns-avg", Stat.AVG, "Mean time spent on the events that a call of select found, ns"),
    ("io-time-ns-total", Stat.TOTAL, "Time spent reading and writing, ns"),
    ("io-ratio", Stat.RATIO, "Share of the time spent reading and writing"),
)
LATENCY: tuple[Row, ...] = (
    ("request-latency-avg", Stat.AVG, "Mean time from a request to its response, ms"),
    ("request-latency-max", Stat.MAX, "Longest time from a request to its response, ms"),
)


class _Node:
    """The sensors of one connection, and the bytes and responses received in the present poll.

    Their parents are the sensors of all connections.
    """

    __slots__ = ("incoming", "latency", "outgoing", "received", "requests", "responses", "responses_received")

    def __init__(self, metrics: Metrics, node_id: str, totals: ConnectionMetrics) -> None:
        tag = ("node-id", f"node-{_java_id(node_id)}")
        self.outgoing = metrics.sensor(NODE_GROUP, OUTGOING, tag, parent=totals.outgoing)
        self.incoming = metrics.sensor(NODE_GROUP, INCOMING, tag, parent=totals.incoming)
        self.requests = metrics.sensor(NODE_GROUP, REQUESTS, tag, parent=totals.requests)
        self.responses = metrics.sensor(NODE_GROUP, RESPONSES, tag, parent=totals.responses)
        self.latency = metrics.sensor(NODE_GROUP, LATENCY, tag)
        self.received = 0  # bytes
        self.responses_received = 0


class ConnectionMetrics:
    """Records the metrics of a client's connections, in total and for each connection. `now` and durations are in ms.

    The methods are not thread-safe: the thread that uses the network client calls them.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._created, self._closed = (metrics.sensor(GROUP, rows) for rows in (CREATED, CLOSED))
        io = metrics.sensor(GROUP, IO)  # reads and writes are counted; their sizes are not used
        self.outgoing, self.incoming = (metrics.sensor(GROUP, rows, parent=io) for rows in (OUTGOING, INCOMING))
        self.requests, self.responses = (metrics.sensor(GROUP, rows) for rows in (REQUESTS, RESPONSES))
        self._authentications, self._reauthentications = (
            metrics.sensor(GROUP, rows) for rows in (AUTHENTICATIONS, REAUTHENTICATIONS)
        )
        self._failed_authentications, self._failed_reauthentications = (
            metrics.sensor(GROUP, rows) for rows in (FAILED_AUTHENTICATIONS, FAILED_REAUTHENTICATIONS)
        )
        self._waits = metrics.sensor(GROUP, WAITS)
        self._work = metrics.sensor(GROUP, WORK)
        self._open: set[str] = set()
        self._nodes: dict[str, _Node] = {}
        self._received_from: list[_Node] = []  # in the present poll
        count = metrics.name("connection-count", GROUP, "Connections that are open")
        metrics.gauge(count, lambda _now: float(len(self._open)))

    def connected(self, node_id: str, now: float) -> None:
        """Record that a connection became ready."""
        self._open.add(node_id)
        self._created.record(1, now)

    def disconnected(self, node_id: str, now: float) -> None:
        """Record that a connection ended. Ignores a connection that never became ready."""
        if node_id in self._open:
            self._open.remove(node_id)
            self._closed.record(1, now)

    def authenticated(self, now: float) -> None:
        """Record that a broker has accepted a TLS handshake or a SASL authentication."""
        self._authentications.record(1, now)

    def reauthenticated(self, duration_ms: float, now: float) -> None:
        """Record that a reauthentication has succeeded, and how long it took."""
        self._reauthentications.record(duration_ms, now)

    def authentication_failed(self, now: float, *, reauthentication: bool) -> None:
        """Record that a TLS handshake or a SASL authentication has failed, whichever side refused it."""
        (self._failed_reauthentications if reauthentication else self._failed_authentications).record(1, now)

    def sent(self, node_id: str, size: int, request_size: int, now: float) -> None:
        """Record `size` bytes sent. `request_size` is the size of the request that these bytes complete, or 0 if they
        do not complete one."""
        sensors = self._nodes.get(node_id) or self._new_node(node_id)
        sensors.outgoing.record(size, now)
        if request_size:
            sensors.requests.record(request_size, now)

    def received(self, node_id: str, size: int, responses: int) -> None:
        """Count `size` bytes received, and the responses that they complete. `polled` records the sums, because this
        may be called many times for one response."""
        sensors = self._nodes.get(node_id) or self._new_node(node_id)
        if not sensors.received:
            self._received_from.append(sensors)
        sensors.received += size
        sensors.responses_received += responses

    def completed(self, response: ClientResponse) -> None:
        """Record the latency of a request that has ended. Ignores a request that ended with an error."""
        if response.error is None:
            self._nodes[response.request.node].latency.record(response.now - response.sent_at, response.now)

    def polled(self, selects: int, waited_ms: float, busy_ms: float, now: float) -> None:
        """Record a poll that has ended: the number of selects, how long they waited, and how long it took to handle
        their events. Also records the bytes and responses that `received` has counted."""
        record_both(self._waits, waited_ms * NS_PER_MS, self._work, busy_ms * NS_PER_MS, now, selects)
        for node in self._received_from:
            node.incoming.record(node.received, now)
            if node.responses_received:
                node.responses.record(0, now, node.responses_received)
            node.received = node.responses_received = 0
        self._received_from.clear()

    def _new_node(self, node_id: str) -> _Node:
        sensors = self._nodes[node_id] = _Node(self._metrics, node_id, self)
        return sensors


def _java_id(node_id: str) -> int:
    """Returns the number that Java's metrics use for a connection: the id of the broker.

    For the separate connection to the group coordinator it is MAX_NODE_ID minus the broker id, as in Java. For a
    connection for expedited fetches, which Java does not have, it is MAX_NODE_ID // 2 minus the broker id.
    """
    largest = {"+": MAX_NODE_ID, "*": MAX_NODE_ID // 2}.get(node_id[0])
    return int(node_id) if largest is None else largest - broker_id(node_id)
