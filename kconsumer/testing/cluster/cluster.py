"""The model of a cluster: its brokers and topics, and the table of request handlers.

A driver calls `connect`, passes received bytes to the connections, calls `run_timers` when the next deadline has
passed, and sends the output of the connections in `writable`. Calls that process bytes or timers take the current time
in ms. The state changes only during calls.

The handlers of related APIs are in one module. `replication.py` decides which brokers lead partitions.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kconsumer._core.codec import decode_request, encode_response
from kconsumer.errors import ProtocolError
from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Api, Versions
from kconsumer.testing.cluster import releases
from kconsumer.testing.cluster.acl_requests import AclRequests
from kconsumer.testing.cluster.authorizer import Authorizer
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.cleaner import Cleaner, Retention
from kconsumer.testing.cluster.configs import Configs
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.faults import Fault, FaultKind, Faults
from kconsumer.testing.cluster.fetch import FetchHandlers
from kconsumer.testing.cluster.groups.classic_handlers import ClassicHandlers
from kconsumer.testing.cluster.groups.consumer_heartbeat import ConsumerHeartbeatHandler
from kconsumer.testing.cluster.groups.coordinator import GroupCoordinator
from kconsumer.testing.cluster.groups.deletion import GroupDeletion
from kconsumer.testing.cluster.groups.describe import GroupDescriptions, ServerGroupDescriptions
from kconsumer.testing.cluster.groups.offset_commits import OffsetCommits, OffsetTransactions
from kconsumer.testing.cluster.groups.offset_fetches import OffsetFetches
from kconsumer.testing.cluster.groups.share_heartbeat import ShareHeartbeatHandler
from kconsumer.testing.cluster.groups.share_offsets import ShareOffsets
from kconsumer.testing.cluster.list_offsets import ListOffsetsHandlers
from kconsumer.testing.cluster.metadata import MetadataHandlers
from kconsumer.testing.cluster.produce import ProduceHandler
from kconsumer.testing.cluster.quotas import Quotas
from kconsumer.testing.cluster.replication import Replication
from kconsumer.testing.cluster.requests import Handler, Pending, Request, Response, handlers_of
from kconsumer.testing.cluster.sasl import Sasl, SaslSettings
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.share.fetch import ShareFetchHandler
from kconsumer.testing.cluster.share.partitions import SharePartitions
from kconsumer.testing.cluster.share.requests import ShareRequests
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.telemetry import TELEMETRY_APIS, Telemetry
from kconsumer.testing.cluster.topic_admin import TopicAdmin
from kconsumer.testing.cluster.transaction_requests import TransactionQueries, TransactionRequests
from kconsumer.testing.cluster.transactions import Transactions

API_VERSIONS_KEY = 18
WALL_MS = 1_700_000_000_000


class Cluster(ClusterState):
    """A Kafka cluster. Its behavior depends only on its state, the received bytes and the time that the driver passes.

    `brokers`: the number of brokers; their ids begin with 1. `racks`: the rack of each broker. `release`: the version
    of Kafka that all brokers have. `sasl`: how clients authenticate; None: clients do not authenticate.
    `wall_offset_ms`: the wall-clock time in ms since the Unix epoch when the driver's time is 0.
    `seed`: the seed of the random generators, which draw ids and select the bytes that faults corrupt.

    Raises ValueError if there is not one rack for each broker.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        racks: Sequence[str | None] | None = None,
        release: str = releases.NEWEST,
        settings: Settings | None = None,
        sasl: SaslSettings | None = None,
        wall_offset_ms: float = WALL_MS,
        seed: int = 0,
    ) -> None:
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{brokers} brokers need as many racks; there are {len(racks)}")
        super().__init__(racks or [None] * brokers, release, settings or Settings(), wall_offset_ms, seed)
        self.apis = all_apis()
        self.quotas = Quotas()
        self.replication = Replication(self)
        self.cleaner = Cleaner(self)
        self.retention = Retention(self)
        self.authorizer = Authorizer(self)
        self.fetch = FetchHandlers(self, self.quotas)
        self.faults = Faults(self, self.fetch, seed)
        self.groups = GroupCoordinator(self)
        self.metadata = MetadataHandlers(self, self.replication, self.versions_of)
        self.sasl = Sasl(self, sasl)
        self.shares = SharePartitions(self)
        self.share_requests = ShareRequests(self, self.shares)
        self.telemetry = Telemetry(self)
        self.transactions = Transactions(self)
        self._handlers: dict[Api, Handler] = handlers_of(
            AclRequests(self),
            ClassicHandlers(self.groups),
            Configs(self, self.telemetry),
            ConsumerHeartbeatHandler(self.groups),
            GroupDeletion(self.groups),
            GroupDescriptions(self.groups),
            ListOffsetsHandlers(self),
            OffsetCommits(self.groups),
            OffsetFetches(self.groups),
            OffsetTransactions(self.groups, self.transactions),
            ProduceHandler(self, self.transactions),
            ServerGroupDescriptions(self.groups),
            ShareFetchHandler(self, self.share_requests, self.shares),
            ShareHeartbeatHandler(self.groups),
            ShareOffsets(self.groups),
            TopicAdmin(self),
            TransactionQueries(self, self.transactions),
            TransactionRequests(self, self.transactions),
            self.fetch,
            self.metadata,
            self.sasl,
            self.share_requests,
            self.telemetry,
        )

    # --- the driver's side ---

    def connect(self, broker_id: int) -> Connection | None:
        """Returns a new connection to a broker, or None if the broker is stopped."""
        broker = self.brokers[broker_id]
        if not broker.alive:
            return None
        connection = ClientConnection(self, broker)
        self.connections[connection] = None
        return connection

    def next_deadline(self) -> float | None:
        """Returns the time in ms at which `run_timers` must be called next, or None if there is no timer."""
        return self.timers.next_deadline()

    def run_timers(self, now: float) -> None:
        """Run all timers whose deadline has passed."""
        self.timers.run(now)

    # --- the handlers' side ---

    def handle(self, request: Request, now: float) -> Response:
        """Returns the response to a request. Checks the ACLs before it calls the handler of the request."""
        return self.authorizer.handle(request, now, self._handlers[request.api])

    def versions_of(self, broker: Broker) -> Mapping[int, Versions]:
        """Returns the versions of each API that a broker supports, by API key."""
        versions = releases.versions_of(broker.release)
        hidden = () if self.telemetry.enabled else TELEMETRY_APIS
        return {api.key: versions[api.key] for api in self._handlers if api.key in versions and api not in hidden}

    # --- brokers ---

    def kill(self, broker_id: int) -> None:
        """Stop a broker. Closes its connections, and elects other leaders for its partitions."""
        broker = self.brokers[broker_id]
        broker.alive = False
        broker.fetch_sessions.clear()
        self.share_requests.sessions[broker_id].clear()
        for connection in self.connections_to(broker_id):
            connection.close()
        self.replication.broker_stopped(broker_id)

    def start(self, broker_id: int) -> None:
        """Start a stopped broker. Its replicas catch up with their leaders.

        Partitions of the broker without a leader elect one, if the rules of `Replication.elect` allow it.
        """
        self.brokers[broker_id].alive = True
        self.replication.broker_started(broker_id)

    def move_leader(self, topic: str, index: int, broker_id: int) -> None:
        """Make a broker the leader of a partition.

        Raises ValueError if the broker has no replica of the partition, or if the broker is stopped.
        """
        self.replication.move_leader(self.topics[topic].partitions[index], broker_id)


class ClientConnection(Connection):
    """A connection whose requests the cluster processes."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        super().__init__(broker, cluster.timers, cluster.writable)
        self._authenticator = cluster.sasl.authenticator(self)  # None: without SASL
        self._cluster = cluster

    def close(self) -> None:
        """Close the connection. Drops output that the driver has not taken."""
        super().close()
        self._cluster.connections.pop(self, None)
        self._cluster.share_requests.on_disconnect(self)

    def _process(self, frame: bytes, now: float) -> None:
        """Decode one request, apply its fault if there is one, handle it, and send its response.

        A response that is pending is sent when it is complete. While SASL tokens without a header are expected, the
        frame is such a token.
        """
        if self._authenticator is not None and self._authenticator.raw_tokens:
            self._authenticator.receive_token(frame, now)
            return
        request = self._decode(frame, now)
        if request is None:
            return
        faults = self._cluster.faults
        fault = faults.take(request)
        response: Response
        if fault is not None and fault.kind is FaultKind.DISCONNECT_BEFORE:
            self.close()
            return
        if fault is not None and fault.kind is FaultKind.ERROR:
            response = faults.error_response(request, fault, now)
        else:
            response = self._handle(request, now)
        if isinstance(response, Pending):
            self._busy = True
            response.on_complete(lambda message, at: self._respond(request, fault, message, at), now)
        elif response is not None:
            self._respond(request, fault, response, now)

    def _handle(self, request: Request, now: float) -> Response:
        """Returns the response to a request. It may belong to the authentication, or not be allowed before it."""
        refused = None if self._authenticator is None else self._authenticator.intercept(request, now)
        return self._cluster.handle(request, now) if refused is None else refused

    def _decode(self, frame: bytes, now: float) -> Request | None:
        """Returns the request in a frame, or None if the frame cannot be handled.

        Before it returns None, this method closes the connection. There is one exception: if the version of ApiVersions
        is not supported, it sends the response to such a request instead.
        """
        if len(frame) < 8:
            self.close()
            return None
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        versions = self._cluster.versions_of(self.broker).get(key)
        if versions is None or version not in versions:
            if key == API_VERSIONS_KEY:
                self.send(self._cluster.metadata.unsupported_api_versions(self.broker, correlation_id), now)
            else:
                self.close()
            return None
        try:
            # As in Kafka, bytes after the request are ignored. librdkafka sends some after Metadata of all topics.
            decoded = decode_request(self._cluster.apis, frame, allow_trailing=True)
        except ProtocolError:
            self.close()
            return None
        api, version, correlation_id, client_id, message = decoded
        return Request(api, version, correlation_id, client_id, message, self, len(frame))

    def _respond(self, request: Request, fault: Fault | None, response: Any, now: float) -> None:
        """Encode a response, and send it at once or after the delay that is set for its API.

        `fault`: a fault that may damage the encoded response. Mutes the connection for the throttle time of the
        response. Does nothing if the connection is closed.
        """
        if self.closed:
            return
        if request.api.name == "Produce" and (throttle_ms := self._cluster.quotas.produced(request, now)):
            response.throttle_time_ms = throttle_ms
        if throttle_ms := getattr(response, "throttle_time_ms", 0):
            self.mute(now + throttle_ms)
        encoded = encode_response(request.api, request.version, request.correlation_id, response)
        data, close = self._cluster.faults.damaged(fault, encoded)
        delay = self._cluster.faults.delay_of(request)
        if delay > 0:
            self._busy = True
            self._timers.add(now + delay, lambda at: self._send_response(data, close, at))
        else:
            self._send_response(data, close, now)

    def _send_response(self, data: bytes, close: bool, now: float) -> None:
        """Send an encoded response. Then process the next requests or, if `close` is true, close the connection.

        `data`: the bytes after the effect of a fault; no bytes are sent if it is empty.
        """
        waited, self._busy = self._busy, False
        if data:
            self.send(data, now)
        if close:
            self.close_after_output()
        elif waited and self._frames:
            # Not at once: the handler that completed this response may be in the middle of a change of the state.
            self._timers.add(now, self._process_frames)
