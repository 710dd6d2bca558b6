"""What public objects show of themselves: in a bug report, and in a notebook."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import kconsumer
from kconsumer import PUBLIC_MODULES, Consumer, ConsumerRecord, ConsumerRecords, RangeClient, ShareConsumer, parallel
from kconsumer.aio import AsyncConsumer
from kconsumer.arrow import RecordBatch, Table
from kconsumer.groups import GroupClient
from kconsumer.prometheus import PrometheusReporter
from kconsumer.registry import AvroDeserializer, JsonColumns, JsonSchemaDeserializer
from kconsumer.testing import FakeCluster, MockConsumer

SECRET = "hunter2"
OPTIONS: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:1",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "u",
    "sasl_plain_password": SECRET,
    "ssl_password": SECRET,
}
REGISTRY = {"url": "http://127.0.0.1:1", "basic.auth.user.info": f"u:{SECRET}"}
# Users derive from these and see no instances of them.
WITHOUT = {"Assignor", "MetricsReporter", "RebalanceListener"}


def public_classes() -> Iterator[type]:
    """Yield the classes that public modules export, without those of which only Spark creates instances."""
    names = {*PUBLIC_MODULES} - {"spark"}
    for module in (kconsumer, *(importlib.import_module(f"kconsumer.{name}") for name in names)):
        for name in getattr(module, "__all__", ()):
            if inspect.isclass(found := getattr(module, name)):
                yield found


@pytest.mark.parametrize("cls", sorted(set(public_classes()), key=str))
def test_no_class_has_the_default_representation(cls: type) -> None:
    """Every public class whose instances users see says more of an instance than its address."""
    assert cls.__name__ in WITHOUT or cls.__repr__ is not object.__repr__ or issubclass(cls, dict)


async def shown_by_asyncio() -> str:
    """Returns the representation of a consumer for asyncio."""
    async with AsyncConsumer(**OPTIONS) as consumer:
        return repr(consumer)


def instances() -> Iterator[object]:
    """Yield objects of the public classes that know a secret, or are about another object."""
    yield kconsumer.ConsumerConfig(**OPTIONS)
    for cls in (Consumer, ShareConsumer):
        with cls("t", group_id="g", **OPTIONS) as consumer:
            yield consumer
            yield consumer.status()
    with Consumer("t", group_id="g", enable_auto_commit=False, **OPTIONS) as consumer:
        yield parallel.Processor(consumer, print)
    yield asyncio.run(shown_by_asyncio())
    with GroupClient(**OPTIONS) as groups, RangeClient(**OPTIONS) as ranges:
        yield groups
        yield ranges
    with FakeCluster(sasl={"mechanism": "PLAIN", "users": {"u": SECRET}}) as cluster:
        yield cluster
    yield from (AvroDeserializer(REGISTRY), JsonSchemaDeserializer(REGISTRY), JsonColumns("id long"))
    yield PrometheusReporter()
    with MockConsumer(**OPTIONS) as mock:
        yield mock


def test_representations_are_short_and_show_no_secret() -> None:
    """The representation of an object has at most 2,000 characters, and no password."""
    for one in instances():
        for text in (repr(one), str(one)):
            assert SECRET not in text
            assert len(text) <= 2_000


class Unprintable:
    """An object whose representation fails."""

    def __repr__(self) -> str:
        raise ValueError("no")


@dataclass
class Markup:
    """A value with a text that a browser would run."""

    text: str = "<script>alert(1)</script>"


def test_records_in_a_notebook() -> None:
    """Records are shown as a table of few rows, with escaped and shortened texts, whatever their values are."""
    values = [Markup(), Unprintable(), "x" * 10_000, b"y" * 10_000, None, {"a": 1}]
    records = ConsumerRecords([ConsumerRecord("<b>", 0, at, value=value) for at, value in enumerate([*values] * 10)])
    shown = records._repr_html_()
    assert 1 + 20 == shown.count("<tr>")
    assert len(shown) < 20_000
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<td>&lt;b&gt;</td>" in shown
    assert "<p>ConsumerRecords: 60 records of 1 partition</p>" in shown


@pytest.mark.parametrize("installed", [True, False])
def test_columns_in_a_notebook(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and tables of columns are shown in the same way. Without pyarrow, only their size and names are shown."""
    records = ConsumerRecords([ConsumerRecord("t", 0, at, value=b"<i>") for at in range(30)])
    if not installed:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    columns: list[RecordBatch | Table] = [records.to_arrow(["offset", "value"]), records._table(["offset", "value"])]
    for shown in (each._repr_html_() for each in columns):
        assert "30 rows of offset, value" in shown
        assert "<th>offset</th><th>value</th>" in shown
        assert (20 if installed else 0) == shown.count("<td>b&#x27;&lt;i&gt;&#x27;</td>")
