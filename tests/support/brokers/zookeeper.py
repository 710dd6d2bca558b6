"""ZooKeeper for brokers of releases before 3.3, in which KRaft was not ready for use."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from support.brokers.guarded_jvm import GuardedJvm
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import release_of
from support.brokers.pkcs12 import with_pkcs12_stores

FIRST_KRAFT = (3, 3)
START_TIMEOUT_S = 90
TICK_MS = 500  # a session may be as short as two ticks
HOST = "127.0.0.1"

#: What a broker with ZooKeeper must not be given (2.8 would run in the first KRaft) -> what it is given instead.
INSTEAD_OF_KRAFT = {
    "process.roles": None,
    "controller.listener.names": None,
    "controller.quorum.voters": None,
    "node.id": "broker.id",
    "broker.session.timeout.ms": "zookeeper.session.timeout.ms",
    "broker.heartbeat.interval.ms": None,
}

#: Classes that need KRaft -> their predecessors.
PREDECESSORS = {
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": "kafka.security.authorizer.AclAuthorizer",
}

OPTIONS = (
    "-Dzookeeper.4lw.commands.whitelist=ruok,dump",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.jmx.log4j.disable=true",
)


def needs_zookeeper(version: str) -> bool:
    """Returns True if brokers of this version do not run without ZooKeeper."""
    return release_of(version) < FIRST_KRAFT


def properties_with_zookeeper(options: Mapping[str, str], address: str) -> dict[str, str]:
    """Returns the properties of a broker that uses ZooKeeper at this address in place of KRaft."""
    named = {INSTEAD_OF_KRAFT.get(key, key): PREDECESSORS.get(value, value) for key, value in options.items()}
    kept = {key: value for key, value in named.items() if key is not None}
    wait = {"zookeeper.connection.timeout.ms": str(START_TIMEOUT_S * 1000)}  # otherwise as short as a session
    return {"zookeeper.connect": address, **wait, **with_pkcs12_stores(kept)}


class ZooKeeper(GuardedJvm):
    """One ZooKeeper server, which keeps its data in a folder."""

    port = 0

    @property
    def address(self) -> str:
        """Returns host:port."""
        return f"{HOST}:{self.port}"

    def start(self, java: list[str], port: int, folder: str) -> None:
        """Start the server and wait until it responds. `java` is the command line without main class and arguments."""
        self.port = port
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self.run([*java[:1], *OPTIONS, *java[1:], main, str(port), folder, str(TICK_MS)])
        wait_until(lambda: self._ask("ruok") == "imok", START_TIMEOUT_S, f"start of ZooKeeper (log: {self.log})")

    def wait_for_end_of_session(self, broker_id: int) -> None:
        """Wait until the session of a killed broker has expired, without which it cannot register again."""
        wait_until(lambda: not self._has(broker_id), START_TIMEOUT_S, f"end of the session of broker {broker_id}")

    def _has(self, broker_id: int) -> bool:
        return f"/brokers/ids/{broker_id}" in self._ask("dump").split()

    def _ask(self, command: str) -> str:
        """Returns the response to a command of four letters, or nothing if the server does not respond."""
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""
