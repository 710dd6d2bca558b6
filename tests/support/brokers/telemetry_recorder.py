"""A plugin of a real broker that records what clients push by KIP-714, and the subscriptions of the broker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kconsumer._core.codec import decode_response, encode_request
from kconsumer.schema.topics import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.brokers.kafka import KafkaCluster
from support.brokers.kafka_admin import wait_until
from support.brokers.kafka_jars import CHOSEN_VERSION, kafka_jars, program

SOURCE = Path(__file__).parents[1] / "java" / "TelemetryRecorder.java"
CLIENT_METRICS = 16  # a type of resources
SET = 0
WAIT_S = 30


class Point(NamedTuple):
    """One value that a client has pushed."""

    kind: str  # "GAUGE", or the temporality and whether the sum is monotonic
    integer: bool
    value: float
    start_ns: int
    time_ns: int


class Push(NamedTuple):
    """One PushTelemetry request, as the broker has passed it to its plugin."""

    instance_id: str
    client_id: str
    terminating: bool
    resource: Mapping[str, str]
    points: Mapping[tuple[str, frozenset[tuple[str, str]]], Point]  # by name and labels

    def names(self) -> set[str]:
        """Returns the names of the metrics."""
        return {name for name, _ in self.points}


def compile_recorder(folder: Path) -> Path:
    """Compile the plugin into a folder. Returns the folder."""
    class_path = os.pathsep.join(map(str, kafka_jars(CHOSEN_VERSION)))
    command = [program("javac"), "-cp", class_path, "-d", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return folder


class TelemetryKafka:
    """A broker with the plugin; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "pushes.jsonl"
        properties = {"metric.reporters": "TelemetryRecorder", "telemetry.recorder.file": str(self._file)}
        self.kafka = KafkaCluster(properties=properties, plugins=[compile_recorder(folder)])

    def __enter__(self) -> TelemetryKafka:
        self.kafka.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kafka.close()

    def subscribe(self, name: str, metrics: str, interval_ms: int, client_id: str) -> None:
        """Request metrics of a client, as `kafka-configs.sh --entity-type client-metrics` does.

        `metrics`: prefixes of names, separated by commas. `client_id`: a pattern.
        """
        settings = {"metrics": metrics, "interval.ms": str(interval_ms), "match": f"client_id={client_id}"}
        configs = [AlterableConfig(name=key, config_operation=SET, value=text) for key, text in settings.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        host, _, port = self.kafka.bootstrap_servers.partition(":")
        with socket.create_connection((host, int(port)), WAIT_S) as connection, connection.makefile("rwb") as stream:
            stream.write(encode_request(INCREMENTAL_ALTER_CONFIGS, 1, 1, "test", request))
            stream.flush()
            frame = stream.read(int.from_bytes(stream.read(4)))
        _, response = decode_response(INCREMENTAL_ALTER_CONFIGS, 1, frame)
        assert [(0, None)] == [(row.error_code, row.error_message) for row in response.responses]

    def pushes(self, client_id: str) -> list[Push]:
        """Returns what a client has pushed until now, in order."""
        text = self._file.read_text() if self._file.exists() else ""
        rows = [json.loads(line) for line in text.split("\n")[:-1]]
        return [_push(row) for row in rows if row["client"] == client_id]

    def wait_for_push(self, client_id: str, count: int = 1) -> list[Push]:
        """Wait until a client has pushed at least `count` times. Returns the pushes."""
        wait_until(lambda: len(self.pushes(client_id)) >= count, WAIT_S, f"{count} pushes of {client_id}")
        return self.pushes(client_id)


def _push(row: Any) -> Push:
    assert row["type"] == "OTLP"
    points = {}
    for each in row["metrics"]:
        key = each["name"], frozenset(each["labels"].items())
        assert key not in points
        points[key] = Point(each["kind"], each["integer"], float(each["value"]), each["start"], each["time"])
    return Push(row["id"], row["client"], row["terminating"], row["resource"], points)
