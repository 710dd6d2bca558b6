"""The assignor of examples/custom_assignor as a third party ships it: built, installed, listed, checked and used in a
group.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kconsumer import Consumer, TopicPartition, assignors
from kconsumer.errors import AssignorError
from support.brokers.kafka import Kafka
from support.harnesses.polling import numbered, poll_until, tps

pytestmark = pytest.mark.classic_protocol

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "custom_assignor"
ORIGIN = 'assignor "weighted" (acme-weighted 1.0, acme_weighted:WeightedAssignor)'

New = Callable[..., Consumer]


def run(*command: str, folders: list[Path], cwd: Path) -> str:
    """Run a Python command, which must succeed, with these folders first on its path. Returns its output."""
    path = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the example, from a copy of its source."""
    source, target = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXAMPLE, source)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    run("-m", "pip", "install", *options, "--target", str(target), str(source), folders=[], cwd=source)
    return target


@pytest.fixture
def plugged_in(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the installed example on this process's path for one test."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.delenv("KCONSUMER_DISABLE_PLUGINS", raising=False)
    return installed


def test_the_command_knows_it(installed: Path, tmp_path: Path) -> None:
    """`assignors list` shows the assignor's distribution, and `assignors check` loads the assignor."""
    listed = run("-m", "kconsumer", "assignors", "list", folders=[installed], cwd=tmp_path)
    assert ["weighted", "acme-weighted", "1.0", "acme_weighted:WeightedAssignor"] in [
        line.split() for line in listed.splitlines()
    ]
    checked = run("-m", "kconsumer", "assignors", "check", "weighted", folders=[installed], cwd=tmp_path)
    assert f"{ORIGIN} loads; protocols: eager; version of its user data: 0\n" == checked


def test_it_passes_its_own_tests(installed: Path, tmp_path: Path) -> None:
    """The compliance suite passes when it is run as the assignor's author runs it."""
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", folders=[installed], cwd=tmp_path)
    assert " passed" in done


def test_a_group_uses_it(
    kafka: Kafka, topic_name: str, new_consumer: New, plugged_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two members divide eight partitions by weight and read all of them; when one leaves, the other gets all."""
    kafka.create_topic(topic_name, 8)
    for partition in range(8):
        kafka.produce(topic_name, numbered(5), partition=partition)
    members = []
    for weight in ("3", "1"):
        monkeypatch.setenv("ACME_WEIGHT", weight)
        members.append(new_consumer(topic_name, group_id=topic_name, assignors=["weighted"]))
    records = poll_until(members, lambda: [6, 2] == [len(member.assignment()) for member in members])
    seen = {(record.partition, record.offset) for record in records}
    while len(seen) < 40:
        seen |= {(record.partition, record.offset) for member in members for record in member.poll(0.1)}
    members[0].close()
    poll_until(members[1], lambda: frozenset(tps(topic_name, *range(8))) == members[1].assignment())


def test_an_invalid_assignment_is_raised_to_the_caller(
    kafka: Kafka, topic_name: str, new_consumer: New, plugged_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """poll() raises an error for an assignment that breaks a rule; the error names plugin, distribution and partition.
    When the plugin is repaired, the member continues.
    """
    kafka.create_topic(topic_name, 1)
    weighted = assignors.load("weighted")
    right = type(weighted).assign

    def twice(self: assignors.Assignor, cluster: object, subscriptions: dict[str, object]) -> object:
        partition = TopicPartition(topic_name, 0)
        return {member: assignors.Assignment((partition, partition)) for member in subscriptions}

    monkeypatch.setattr(type(weighted), "assign", twice)
    consumer = new_consumer(topic_name, group_id=topic_name, assignors=["weighted"])
    with pytest.raises(AssignorError) as caught:
        poll_until(consumer, lambda: False)
    assert str(caught.value).startswith(f"{ORIGIN} gave {topic_name}-0 twice: to ")
    monkeypatch.setattr(type(weighted), "assign", right)
    poll_until(consumer, lambda: frozenset(tps(topic_name, 0)) == consumer.assignment())
