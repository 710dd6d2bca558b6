"""Each option of a ShareConsumer has an effect, or is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kconsumer.net
from kconsumer import ConsumerRecord, ShareConsumer
from kconsumer.config.option_groups import OptionGroup
from kconsumer.config.options import OPTIONS
from kconsumer.config.token_providers import OPTIONS as TOKEN_OPTIONS
from kconsumer.errors import BatchTooLargeError
from kconsumer.share import consumer as share_consumer
from kconsumer.share import consumer_base
from kconsumer.share.config import REFUSED, ShareConsumerConfig
from kconsumer.testing import FakeCluster

TOPIC, GROUP = "t", "g"
#: An option without an effect in any consumer, which is accepted as in Java.
WITHOUT_EFFECT = {"metrics_recording_level"}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        cluster.create_topic(TOPIC)
        cluster.configure_group(GROUP, share_auto_offset_reset="earliest")
        yield cluster


def names_in(folder: Path) -> set[str]:
    """Returns all attribute names and texts in the modules of a folder."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_no_option_without_effect(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ShareConsumer reads each option that it does not refuse. Those of connections and tokens are read where all
    consumers have them.
    """
    read: set[str] = set()

    def get(options: object, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(options, name)

    class RecordingConfig(ShareConsumerConfig):
        """Records the names of the options that are read."""

        __getattribute__ = get

        def select(self, group: type[Any]) -> Any:
            """Returns an option group, whose options have not been read yet."""
            return group({name: object.__getattribute__(self, name) for name in group.__annotations__})

    monkeypatch.setattr(OptionGroup, "__getattribute__", get)
    for module in (share_consumer, consumer_base):
        monkeypatch.setattr(module, "ShareConsumerConfig", RecordingConfig)
    cluster.produce(TOPIC, [b"value"] * 3)
    with ShareConsumer(
        TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, consumer_timeout_ms=60_000
    ) as consumer:
        assert [0, 1, 2] == [record.offset for _, record in zip(range(3), consumer, strict=False)]
        consumer.commit()
    assert kconsumer.net.__file__ is not None
    known = read | names_in(Path(kconsumer.net.__file__).parent) | WITHOUT_EFFECT | REFUSED.keys()
    known |= set(TOKEN_OPTIONS)
    assert [] == sorted(OPTIONS.keys() - known)


def test_a_batch_that_decompresses_to_too_much(cluster: FakeCluster) -> None:
    """The records before and after it are returned, and the error between them. Its own records are released."""
    cluster.produce(TOPIC, [b"first"])
    cluster.produce(TOPIC, [b"x" * 1000] * 100, compression="gzip")
    cluster.produce(TOPIC, [b"last"])
    found: list[Any] = []
    with ShareConsumer(
        TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP, decompressed_batch_max_bytes=5000
    ) as consumer:
        while len(found) < 3:
            try:
                found += [record.value for record in consumer.poll(5.0)]
            except BatchTooLargeError as error:
                found.append((error.offset, error.next_offset, error.limit))
        consumer.commit()
        assert [b"first", (1, 101, 5000), b"last"] == found
    with ShareConsumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id=GROUP) as consumer:
        records: list[ConsumerRecord] = []
        while len(records) < 100:
            records += consumer.poll(5.0)
    assert [(offset, 2) for offset in range(1, 101)] == [(record.offset, record.delivery_count) for record in records]
