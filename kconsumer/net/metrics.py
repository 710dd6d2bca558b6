"""Metrics of connections (Java `SelectorMetrics`): their totals in the group `consumer-metrics`, and the values of each
connection in the group `consumer-node-metrics`.

Received bytes are added up and recorded at the end of each poll, because a response may arrive in many reads. As in
Java, the tag `node-id` is `node-1` for the connection to broker 1, `node-+1` for the separate connection to it as the
coordinator, and `node--1` for the first bootstrap server. A connection for expedited fetches, which Java does not have,
is `node-*1`.
"""

from __future__ import annotations

from kconsumer._core.metrics import ConnectionEvents, NodeSensors
from kconsumer.metrics.registry import Metrics, Row, Stat

GROUP = "consumer-metrics"
NODE_GROUP = "consumer-node-metrics"

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


class ConnectionMetrics:
    """Records the metrics of a client's connections, in total and for each connection. `now` and durations are in ms.

    The methods are not thread-safe: the thread that uses the network client calls them.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._created, self._closed = (metrics.sensor(GROUP, rows) for rows in (CREATED, CLOSED))
        io = metrics.sensor(GROUP, IO)  # reads and writes are counted; their sizes are not used
        self._outgoing, self._incoming = (metrics.sensor(GROUP, rows, parent=io) for rows in (OUTGOING, INCOMING))
        self._requests, self._responses = (metrics.sensor(GROUP, rows) for rows in (REQUESTS, RESPONSES))
        self._authentications, self._reauthentications = (
            metrics.sensor(GROUP, rows) for rows in (AUTHENTICATIONS, REAUTHENTICATIONS)
        )
        self._failed_authentications, self._failed_reauthentications = (
            metrics.sensor(GROUP, rows) for rows in (FAILED_AUTHENTICATIONS, FAILED_REAUTHENTICATIONS)
        )
        # Events that each request causes are recorded by compiled code.
        events = ConnectionEvents(metrics.sensor(GROUP, WAITS), metrics.sensor(GROUP, WORK), self._new_node)
        self.events = events  # the event loop records without the methods
        self._open: set[str] = set()
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

    def _new_node(self, node_id: str) -> NodeSensors:
        """Returns the sensors of a connection. Their parents are the sensors of all connections."""
        tag = ("node-id", f"node-{node_id}")
        return NodeSensors(
            *(
                self._metrics.sensor(NODE_GROUP, rows, tag, parent=parent)
                for rows, parent in (
                    (OUTGOING, self._outgoing),
                    (INCOMING, self._incoming),
                    (REQUESTS, self._requests),
                    (RESPONSES, self._responses),
                    (LATENCY, None),
                )
            )
        )
