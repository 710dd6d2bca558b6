"""Pipelines whose values are decoded with the schemas of a registry, and which keep headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import dry_run, parse, run
from kconsumer.testing import FakeCluster
from support.registry import values
from support.registry.server import registry_server


def rows(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of a folder."""
    import pyarrow.dataset as ds

    found: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return found


@pytest.mark.long
@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_values_of_a_registry(spark: Any, tmp_path: Path, form: str) -> None:
    """Values of any version become rows of the latest schema, with headers as columns; others become dead letters. A
    subject that the registry does not have is an error before anything is written.
    """
    with FakeCluster() as cluster, registry_server() as address, SchemaRegistryClient({"url": address}) as client:
        cluster.create_topic("orders")
        if form == "avro":
            old = values.avro(client, values.OLD, {"number": 1})
            new = values.avro(client, values.NEW, {"number": 2, "text": "b"})
        else:
            line, _ = values.message_types()
            old, new = (values.protobuf(client, line(number=number), "orders") for number in (1, 2))
        cluster.produce("orders", [old], headers=[("source", b"x"), ("source", b"web")])
        cluster.produce("orders", [new, b"\x00\x00\x00\x00\x63", None])
        document = {
            "source": {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "orders",
                       "startingOffsets": "earliest"},
            "decode": {"format": form, "registry": {"url": address}, "headers": {"origin": "source"},
                       "required": ["number"], "metadata": ["kafka_offset"]},
            "dead_letters": {"path": str(tmp_path / "dead")},
            "sink": {"path": str(tmp_path / "rows"), "partition_by": []},
            "run": {"checkpoint": str(tmp_path / "checkpoint")},
        }  # fmt: skip
        assert (4, 2) == ((done := run(parse(document), spark)).rows, done.invalid)
        found = sorted(rows(tmp_path / "rows"), key=lambda row: row["kafka_offset"])
        assert [(0, 1, "web"), (1, 2, None)] == [(row["kafka_offset"], row["number"], row["origin"]) for row in found]
        if form == "avro":
            assert ["none", "b"] == [row["text"] for row in found]
        letters = {row["offset"]: row for row in rows(tmp_path / "dead")}
        assert ("no value", b"\x00\x00\x00\x00\x63") == (letters[3]["reason"], letters[2]["value"])
        document["decode"] |= {"headers": True, "registry": {"url": address, "subject": "absent"}}
        assert "absent" in [check.text for check in dry_run(parse(document), spark) if check.level == "fail"][-1]
        document["run"] = {"checkpoint": str(tmp_path / "second")}
        with pytest.raises(ConfigError, match="absent"):
            run(parse(document), spark)
