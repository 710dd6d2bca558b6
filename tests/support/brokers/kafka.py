"""A real Apache Kafka for tests, benchmarks and the demo, in KRaft mode or (old versions) with ZooKeeper.

Decides ports and configuration, and starts, stops and kills nodes. Other modules operate on a running cluster from
outside (`kafka_admin.py`), fetch the jars (`kafka_jars.py`), run a JVM (`guarded_jvm.py`) or
ZooKeeper (`zookeeper.py`), end a JVM whose owner was killed (`kafka_guard.py`), and share one broker between parallel
test workers (`kafka_shared.py`).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from support.brokers.guarded_jvm import GuardedJvm
from support.brokers.kafka_admin import Kafka, wait_until
from support.brokers.kafka_jars import (
    CHOSEN_VERSION,
    DEFAULT_VERSION,
    OLD_VERSION,
    cache_root,
    kafka_jars,
    kafka_tools_jars,
    locked,
    program,
)
from support.brokers.kafka_run import hold_lifeline
from support.brokers.zookeeper import ZooKeeper, needs_zookeeper, properties_with_zookeeper

__all__ = [
    "CHOSEN_VERSION",
    "DEFAULT_VERSION",
    "OLD_VERSION",
    "Kafka",
    "KafkaCluster",
    "KafkaNode",
    "kafka_jars",
    "kafka_tools_jars",
]

HOST = "127.0.0.1"
START_TIMEOUT_S = 90
STARTED = re.compile(r"Kafka Server started|\[KafkaServer id=\d+\] started")

# Below Linux's range for outgoing connections (32768 and up): no client's own port can take a listener's.
PORTS = range(20_000, 32_000)

JVM_LIGHT = ("-Xms96m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
JVM_FULL = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.server=info",
)


def broker_properties(nodes: int) -> dict[str, str]:
    """Returns the properties of every test broker, for example quick rebalances and failover, and small internal
    topics.
    """
    replication, in_sync = str(min(3, nodes)), str(min(2, nodes))
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.num.partitions": "5",
        "offsets.topic.replication.factor": replication,
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replication,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.session.timeout.ms": "6000",
        "group.share.min.session.timeout.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "200",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.session.timeout.ms": "6000",
        "group.share.min.record.lock.duration.ms": "1000",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "controlled.shutdown.enable": "true",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.cleaner.io.buffer.size": "131072",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.segment.delete.delay.ms": "1000",
        "log.retention.ms": "-1",  # tests write records with old timestamps, which retention would delete
    }


def random_uuid() -> str:
    """Returns a Kafka uuid: 16 random bytes in URL-safe base 64 without padding, not starting with a dash."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def free_ports(count: int) -> list[int]:
    """Returns ports that no process listens on at this moment."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def errors_in(log: str) -> str:
    """Returns the lines of a broker's log that contain errors, or the whole log if there are none."""
    lines = [line for line in log.splitlines() if re.search(r" (ERROR|FATAL) |Exception|Caused by", line)]
    return "\n".join(lines) or log


class KafkaNode(GuardedJvm):
    """One broker of a cluster, with its JVM."""

    def __init__(self, cluster: KafkaCluster, node_id: int, port: int, controller_port: int) -> None:
        super().__init__(cluster.lifeline, cluster.root, cluster.folder / f"node-{node_id}.log")
        self.cluster, self.node_id, self.port, self.controller_port = cluster, node_id, port, controller_port
        self.behind_port: int | None = None  # of the listener behind a proxy,
        self.proxied_port: int | None = None  # and the proxy's port before it
        self.more_ports: dict[str, int] = {}  # of the cluster's further listeners
        self.folder = cluster.folder / f"node-{node_id}"

    def __repr__(self) -> str:
        return f"KafkaNode({self.node_id}, port={self.port}, pid={self.pid})"

    @property
    def bootstrap(self) -> str:
        """Returns host:port of this node's listener."""
        return f"{HOST}:{self.port}"

    def write_configuration(self, voters: str, properties: Mapping[str, str]) -> None:
        """Write server.properties."""
        self.folder.mkdir(parents=True, exist_ok=True)
        listeners = f"PLAINTEXT://{HOST}:{self.port}"
        if not self.cluster.zookeeper:
            listeners += f",CONTROLLER://{HOST}:{self.controller_port}"
        advertised = f"PLAINTEXT://{HOST}:{self.port}"
        if self.behind_port:
            listeners += f",PROXIED://{HOST}:{self.behind_port}"
            advertised += f",PROXIED://{HOST}:{self.proxied_port}"
        protocols = properties["listener.security.protocol.map"]
        for name, port in self.more_ports.items():
            listeners += f",{name}://{HOST}:{port}"
            advertised += f",{name}://{HOST}:{port}"
            protocols += f",{name}:{self.cluster.listeners[name]}"
        options = {
            "node.id": str(self.node_id),
            "listeners": listeners,
            "advertised.listeners": advertised,
            "controller.quorum.voters": voters,
            "log.dirs": str(self.folder / "data"),
            **{key: value.replace("{node}", str(self.node_id)) for key, value in properties.items()},
            "listener.security.protocol.map": protocols,
        }
        if self.cluster.zookeeper:
            options = properties_with_zookeeper(options, self.cluster.zookeeper.address)
        text = "".join(f"{key}={value}\n" for key, value in options.items())
        (self.folder / "server.properties").write_text(text)

    def format(self) -> None:
        """Prepare the storage folder as `kafka-storage.sh format` does."""
        main = ("kafka.tools.StorageTool", "format", "-t", self.cluster.cluster_id)
        command = self.cluster.java(*main, "-c", str(self.folder / "server.properties"))
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"formatting storage failed:\n{(done.stdout + done.stderr)[-4000:]}")

    def copy_format(self, formatted: Path) -> None:
        """Copy a formatted storage folder and change its owner's ids, which saves a JVM."""
        shutil.copytree(formatted, self.folder / "data", dirs_exist_ok=True)
        file = self.folder / "data" / "meta.properties"
        own = {"cluster.id": self.cluster.cluster_id, "node.id": str(self.node_id), "directory.id": random_uuid()}
        pairs = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)
        file.write_text("".join(f"{key}={value}\n" for key, value in {**pairs, **own}.items()))

    def launch(self) -> None:
        """Start the JVM under its guard, without waiting for the broker."""
        self.run(self.cluster.broker(self.folder / "server.properties"))

    def wait_ready(self) -> None:
        """Wait until the broker serves requests. Raises RuntimeError with the errors in its log if it exits instead."""

        def ready() -> bool:
            if not self.alive:
                raise RuntimeError(f"broker {self.node_id} did not start:\n{errors_in(self.log_text())[-4000:]}")
            return STARTED.search(self.log_text()) is not None

        wait_until(ready, START_TIMEOUT_S, f"start of broker {self.node_id} (log: {self.log})")

    def start(self) -> None:
        """Start again on the same port and storage, and wait until it serves."""
        if not self.alive:
            if self.cluster.zookeeper:
                self.cluster.zookeeper.wait_for_end_of_session(self.node_id)
            self.launch()
            self.wait_ready()

    def restart(self) -> None:
        """Shut the broker down cleanly if it runs, then start it."""
        self.stop()
        self.start()


class KafkaCluster(Kafka):
    """One or more nodes, each broker and controller at once; a context manager.

    `properties` override the brokers' options; `{node}` in them stands for the broker's id. `jvm` are options of the
    JVM: JVM_LIGHT starts fast, JVM_FULL is for measurements. With `proxy` (`Proxy.listen_for`), each node has a second
    listener for clients. `proxy` is called with this listener's port and returns the port to advertise in its place;
    nodes connect to each other without the proxy. `listeners` are more listeners: names and security protocols. Their
    options are in `properties` (`listener.name.<name in small letters>.…`); `servers(name)` returns their addresses.
    `plugins` are folders with compiled classes of plugins. `prepared` is a folder in which to make what each start of
    the version uses.
    """

    def __init__(
        self,
        version: str = CHOSEN_VERSION,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        jvm: Sequence[str] = JVM_LIGHT,
        proxy: Callable[[int], int] | None = None,
        listeners: Mapping[str, str] | None = None,
        plugins: Sequence[Path] = (),
        root: Path | None = None,
        lifeline: Path | None = None,
        prepared: Path | None = None,
    ) -> None:
        super().__init__("", version)
        self.count, self.properties, self.jvm = nodes, dict(properties or {}), tuple(jvm)
        self.cluster_id = random_uuid()
        self.nodes: list[KafkaNode] = []
        self.zookeeper: ZooKeeper | None = None  # of versions that do not run without it
        self.listeners = dict(listeners or {})
        self._proxy, self._plugins = proxy, tuple(plugins)
        self._given_root, self._given_lifeline = root, lifeline
        self._lifeline_fd: int | None = None
        self._prepared = prepared
        self._archive_option = "SharedArchiveFile" if prepared is None else "ArchiveClassesAtExit"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all nodes and wait until each node sees all. If a port was taken meanwhile, try other ports."""
        self._class_path = os.pathsep.join(map(str, [*kafka_jars(self.version), *self._plugins]))
        self._prepared = self._prepared or self._prepare()
        self._make_folders()
        for attempt in range(3):
            try:
                self._start_nodes()
                return
            except RuntimeError as error:
                self._kill_all()
                if "BindException" not in str(error) or attempt == 2:
                    self.close()
                    raise
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Kill every node and remove the folder."""
        self._kill_all()
        self._admin = None
        if self._lifeline_fd is not None:
            os.close(self._lifeline_fd)
            self._lifeline_fd = None
        if self._given_root is None:
            shutil.rmtree(self.root, ignore_errors=True)

    def node(self, node_id: int) -> KafkaNode:
        """Returns the node with this broker id, for example the one that `leader_of` returns."""
        return next(node for node in self.nodes if node.node_id == node_id)

    @property
    def proxied_servers(self) -> str:
        """Returns host:port of the proxies' listeners for all nodes."""
        return ",".join(f"{HOST}:{node.proxied_port}" for node in self.nodes)

    def servers(self, listener: str) -> str:
        """Returns host:port of this listener for all nodes."""
        return ",".join(f"{HOST}:{node.more_ports[listener]}" for node in self.nodes)

    def java(self, *arguments: str) -> list[str]:
        """Returns the command line of a JVM with this version's class path."""
        return [program("java"), *self.jvm, *LOGGING, "-cp", self._class_path, *arguments]

    def broker(self, settings: Path) -> list[str]:
        """Returns the command line of a broker. It loads its classes from an archive, or writes that when it ends."""
        archive = f"-XX:{self._archive_option}={self._prepared}/classes.jsa"
        return self.java(archive, "kafka.Kafka", str(settings))

    def _prepare(self) -> Path:
        """Returns a folder next to the jars with a formatted storage folder and the archive of a broker's classes. They
        save half of the processor time of a start. The first start of a version with a JVM makes it.
        """
        made = Path(program("java")).resolve().stat().st_mtime_ns
        folder = cache_root() / f"prepared-{self.version}-{made}"
        with locked(Path(f"{folder}.lock")):
            if not folder.is_dir():
                part = Path(f"{folder}-part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                with KafkaCluster(self.version, prepared=part) as cluster:
                    cluster.nodes[0].stop()
                part.rename(folder)
        return folder

    def _make_folders(self) -> None:
        """Create the cluster's folder and the lifeline that its guards watch. This process holds the write end."""
        self.root = self._given_root or Path(tempfile.mkdtemp(prefix="kconsumer-kafka-"))
        self.folder = self.root / f"kafka-{self.version}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lifeline = self._given_lifeline or self.root / "lifeline"
        if self._given_lifeline is None:
            self._lifeline_fd = hold_lifeline(self.lifeline)

    def _start_nodes(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        ports = free_ports((3 + len(self.listeners)) * self.count + 1)
        self._start_zookeeper(ports.pop())
        self.nodes = [KafkaNode(self, i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(self.count)]
        if self._proxy is not None:
            for node, port in zip(self.nodes, ports[2 * self.count :], strict=False):
                node.behind_port, node.proxied_port = port, self._proxy(port)
        more = iter(ports[3 * self.count :])
        for node in self.nodes:
            node.more_ports = {name: next(more) for name in self.listeners}
        self.bootstrap_servers = ",".join(node.bootstrap for node in self.nodes)
        voters = ",".join(f"{node.node_id}@{HOST}:{node.controller_port}" for node in self.nodes)
        for node in self.nodes:
            node.write_configuration(voters, {**broker_properties(self.count), **self.properties})
        self._format()
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        wait_until(self._complete, START_TIMEOUT_S, "registration of all brokers")

    def _start_zookeeper(self, port: int) -> None:
        if needs_zookeeper(self.version):
            self.zookeeper = ZooKeeper(self.lifeline, self.root, self.folder / "zookeeper.log")
            self.zookeeper.start(self.java(), port, str(self.folder / "zookeeper"))

    def _format(self) -> None:
        """Prepare the storage folders, which brokers with ZooKeeper do themselves."""
        assert self._prepared is not None
        formatted = self._prepared / "data"
        if self.zookeeper:
            return
        if not formatted.exists():
            self.nodes[0].format()
            shutil.copytree(self.nodes[0].folder / "data", formatted)
        for node in self.nodes:
            node.copy_format(formatted)

    def _complete(self) -> bool:
        return len(self.metadata().brokers) == self.count

    def _kill_all(self) -> None:
        for jvm in (*self.nodes, *([self.zookeeper] if self.zookeeper else ())):
            jvm.kill()
