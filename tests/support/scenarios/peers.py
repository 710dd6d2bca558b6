"""The brokers that scenarios run against: the cluster model in virtual time, and a real broker over sockets."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import Any, Protocol

from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.connection import Connection
from kconsumer.testing.cluster.settings import Settings
from support.fakes.cluster_client import advance

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: The settings of brokers: without an authorizer, with super users only, and with what access control lists allow.
AUTHORIZERS: dict[str, dict[str, Any]] = {
    "": {},
    "super": {"authorizer_class_name": AUTHORIZER, "super_users": ("User:ANONYMOUS",)},
    "acls": {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": True},
}
WALL_MS = 1_790_000_000_000  # years after the timestamps of records, as for a real broker

#: The settings of the model that are those of the real test brokers (`support.brokers.kafka.broker_properties`).
MODEL_SETTINGS = Settings(
    offsets_topic_num_partitions=5,
    transaction_state_log_num_partitions=5,
    group_min_session_timeout_ms=1000,
    group_consumer_heartbeat_interval_ms=500,
    group_consumer_session_timeout_ms=6000,
    group_consumer_min_session_timeout_ms=1000,
    group_consumer_min_heartbeat_interval_ms=200,
    group_share_assignment_interval_ms=1000,
    group_share_heartbeat_interval_ms=500,
    group_share_session_timeout_ms=6000,
    group_share_min_session_timeout_ms=1000,
    group_share_min_heartbeat_interval_ms=200,
    group_share_min_record_lock_duration_ms=1000,
)


class Line(Protocol):
    """One connection to a broker."""

    def send(self, data: bytes) -> None:
        """Send a frame."""

    def receive(self, timeout_ms: float) -> bytes | None:
        """Returns the next frame, or None if none arrives in time. Raises ConnectionError if the broker disconnects."""

    def close(self) -> None:
        """Close the connection, as a client does."""


class Peer(Protocol):
    """A broker, as a scenario sees it."""

    def connect(self) -> Line:
        """Returns a new connection."""

    def sleep(self, ms: float) -> None:
        """Let time pass."""

    def now(self) -> float:
        """Returns the time in ms."""

    def wall_ms(self) -> int:
        """Returns the wall-clock time of the broker in ms."""


# --- the model ----------------------------------------------------------------------------------------------


class ModelPeer:
    """A cluster model with one broker, in virtual time."""

    def __init__(self, release: str, *, authorizer: str = "") -> None:
        self.clock = VirtualClock()
        settings = replace(MODEL_SETTINGS, **AUTHORIZERS[authorizer])
        self.cluster = Cluster(release=release, settings=settings, wall_offset_ms=WALL_MS)

    def connect(self) -> Line:
        """Returns a new connection."""
        connection = self.cluster.connect(1)
        assert connection is not None
        return ModelLine(self, connection)

    def sleep(self, ms: float) -> None:
        """Advance the clock, and run the timers of the model."""
        advance(self.cluster, self.clock, ms)

    def now(self) -> float:
        """Returns the virtual time in ms."""
        return self.clock.now()

    def wall_ms(self) -> int:
        """Returns the wall-clock time of the model in ms."""
        return self.cluster.wall_ms(self.clock.now())


class ModelLine:
    """A connection to the model."""

    def __init__(self, peer: ModelPeer, connection: Connection) -> None:
        self._peer, self._connection = peer, connection
        self._received = bytearray()

    def send(self, data: bytes) -> None:
        """Pass a frame to the model."""
        self._connection.receive(data, self._peer.now())

    def receive(self, timeout_ms: float) -> bytes | None:
        """Returns the next frame. Time advances from timer to timer until there is one."""
        end = self._peer.now() + timeout_ms
        while True:
            self._received += self._connection.take_output()
            if (frame := take_frame(self._received)) is not None:
                return frame
            if self._connection.closed:
                raise ConnectionResetError("the model closed the connection")
            deadline = self._peer.cluster.next_deadline()
            if deadline is None or deadline > end:
                self._peer.sleep(end - self._peer.now())
                return None
            self._peer.sleep(max(0.0, deadline - self._peer.now()))

    def close(self) -> None:
        """Close the connection, as a client does."""
        self._connection.close()


# --- a real broker ------------------------------------------------------------------------------------------


class RealPeer:
    """A real broker. Each scenario has its own object, whose connections are closed with it."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._address = (host, int(port))
        self._lines: list[RealLine] = []

    def connect(self) -> Line:
        """Returns a new connection."""
        line = RealLine(socket.create_connection(self._address, 10))
        self._lines.append(line)
        return line

    def sleep(self, ms: float) -> None:
        """Let real time pass. The model's peer advances its virtual clock instead."""
        time.sleep(ms / 1000)

    def now(self) -> float:
        """Returns the monotonic time in ms."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Returns the system's time in ms."""
        return int(time.time() * 1000)

    def close(self) -> None:
        """Close all connections."""
        for line in self._lines:
            line.socket.close()


class RealLine:
    """A connection to a real broker."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._received = bytearray()

    def send(self, data: bytes) -> None:
        """Send a frame."""
        self.socket.sendall(data)

    def receive(self, timeout_ms: float) -> bytes | None:
        """Returns the next frame."""
        end = time.monotonic() + timeout_ms / 1000
        while (frame := take_frame(self._received)) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 20)
            except TimeoutError:
                return None
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._received += data
        return frame

    def close(self) -> None:
        """Close the connection, as a client does."""
        self.socket.close()


def take_frame(received: bytearray) -> bytes | None:
    """Returns the first whole frame without its size, and removes it, or None if there is none."""
    size = int.from_bytes(received[:4]) if len(received) >= 4 else None
    if size is None or len(received) < 4 + size:
        return None
    frame = bytes(received[4 : 4 + size])
    del received[: 4 + size]
    return frame
