"""Code blocks of README.md and docs/ run as they are printed, against a broker.

Only what depends on the machine is replaced (the fixture `replaced`). A program that reads for ever is ended as by
Ctrl-C when it has read every record (`read_until_the_end`). Which blocks there are, and which of them do not run, is in
tests/unit/public/test_docs_blocks.py; Spark's blocks run in tests/spark/test_spark_docs.py.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from unittest import SkipTest

import pytest
from confluent_kafka import KafkaException

import kconsumer
from kconsumer import RangeClient, ShareConsumer
from kconsumer.errors import GroupError
from support.brokers.certificates import Authority
from support.brokers.kafka import Kafka
from support.harnesses.doc_blocks import BLOCKS, ROOT, Block, commands, read_until_the_end, run_python
from support.harnesses.polling import poll_until

# Pages whose blocks run elsewhere: in a Spark session, in tests/brokerless, and in test_share_consumer.py.
OTHER_PAGES = (
    "docs/spark.md",
    "docs/pipeline.md",
    "docs/testing.md",
    "docs/asyncio.md",
    "docs/start.md",
    "docs/parallel.md",
    "docs/share.md",
)
OTHER_FOLDERS = ("docs/guides/", "docs/coming-from/")
EXAMPLE = ROOT / "examples" / "custom_assignor"
PARTITIONS, RECORDS = 4, 12
GROUPS = ["billing", "invoices", "etl", "my-group", "nightly", "g"]


def blocks(language: str, word: str = "") -> list[Block]:
    """Return the blocks of a language that run here and contain the word."""
    return [
        block
        for block in BLOCKS
        if block.language == language and block.runs and word in block.text and runs_here(block.page)
    ]


def runs_here(page: str) -> bool:
    """Returns whether this module runs the blocks of a page."""
    return page not in OTHER_PAGES and not page.startswith(OTHER_FOLDERS)


@pytest.fixture(scope="session")  # a worker of pytest-xdist may run tests of other modules between those of this one
def topics(kafka: Kafka) -> dict[str, int]:
    """Create the topics that the pages name, and return how many records each has."""
    kafka.create_topic("orders", partitions=PARTITIONS)
    kafka.create_topic("invoices", partitions=1)
    kafka.create_topic("jobs", partitions=1)
    for partition in range(PARTITIONS):
        values = [f'{{"order_id": {10 * partition + number}}}'.encode() for number in range(RECORDS // PARTITIONS)]
        kafka.produce("orders", values, partition=partition, keys=[b"k"] * len(values))
    return {"orders": RECORDS, "invoices": 0, "jobs": 0}


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has examples/custom_assignor as an installed distribution, made without pip."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "acme_weighted").symlink_to(EXAMPLE / "src" / "acme_weighted")
    metadata = folder / "acme_weighted-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-weighted\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kconsumer.assignors]\nweighted = acme_weighted:WeightedAssignor\n")
    return folder


@pytest.fixture
def workplace(
    kafka: Kafka, topics: dict[str, int], distribution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty folder to run in, with the files that the pages name. The groups of the pages are deleted first."""
    authority = Authority()
    certificate = authority.issue("client")
    authority.write(tmp_path / "ca.pem")
    (tmp_path / "client.pem").write_text(certificate.chain)
    (tmp_path / "client.key").write_text(certificate.encrypted("secret"))
    monkeypatch.setenv("KEY_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(distribution))
    monkeypatch.delenv("KCONSUMER_DISABLE_PLUGINS", raising=False)
    for deleted in kafka.admin.delete_consumer_groups(GROUPS).values():
        with suppress(KafkaException):  # most of the groups do not exist
            deleted.result()
    return tmp_path


@pytest.fixture
def replaced(kafka: Kafka, topics: dict[str, int], run_folder: Path) -> dict[str, str]:
    """Returns the texts of blocks to replace: the broker's address, the folder of its log, and a port."""
    log = next(run_folder.rglob("orders-3"), None)
    folder = str(log.parent if log else run_folder)
    port = {"serve(consumer, 8080": "serve(consumer, 0"}
    return {"localhost:9092": kafka.bootstrap_servers, "/var/lib/kafka": folder, **port}


@pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")  # by kafka-python
@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.name)
def test_python(
    block: Block,
    kafka: Kafka,
    topics: dict[str, int],
    workplace: Path,
    replaced: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    topic_name: str,
) -> None:
    """A Python block runs without an error; tests that it defines pass."""
    read_until_the_end(monkeypatch, topics)
    monkeypatch.setattr(kconsumer.assignors, "_registered", {})  # what a page registers must not reach other tests
    if block.page == "docs/groups.md":
        commit_for_billing(kafka)
    names = run_python(block, replaced)
    for name, value in list(names.items()):
        if name.startswith("test_"):
            given = {"kafka": kafka, "topic_name": topic_name}
            value(**{parameter: given[parameter] for parameter in inspect.signature(value).parameters})
        elif name.startswith("Test"):
            for method in [method for method in dir(value) if method.startswith("test_")]:
                with suppress(SkipTest):  # what the class does not declare
                    getattr(value(), method)()


def commit_for_billing(kafka: Kafka) -> None:
    """Create the group whose health the page shows."""
    with RangeClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        client.commit("billing", {("orders", partition): 1 for partition in range(PARTITIONS)})


def share_jobs(kafka: Kafka) -> None:
    """Create the share group whose offsets the page changes. It has no members afterwards."""

    def has_offsets() -> bool:
        with suppress(GroupError):  # the group does not exist yet
            return bool(kconsumer.groups.offsets("workers", kafka.bootstrap_servers))
        return False

    with ShareConsumer("jobs", bootstrap_servers=kafka.bootstrap_servers, group_id="workers") as consumer:
        poll_until(consumer, has_offsets)


def shell(line: str, replaced: dict[str, str], workplace: Path, *, interrupt: bool = False) -> str:
    """Return what a command line with `kconsumer` in it prints; it must succeed.

    `interrupt`: send SIGINT after the first line of output, as Ctrl-C does.
    """
    for before, after in replaced.items():
        line = line.replace(before, after)
    command = line.replace("kconsumer ", f"exec {sys.executable} -m kconsumer ", 1)
    path = [*(folder for folder in sys.path if "site-packages" in folder), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", command], stdout=pipe, stderr=pipe, text=True, cwd=workplace, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline() if interrupt else ""
            if interrupt:
                process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (130 if interrupt else 0) == process.returncode, f"{line}\n{out}{err}"
    return first + out


@pytest.mark.parametrize("block", blocks("sh", "kconsumer "), ids=lambda block: block.name)
def test_shell(block: Block, kafka: Kafka, workplace: Path, replaced: dict[str, str]) -> None:
    """Commands of `kconsumer` succeed; those of other programs are checked without running them (unit tests)."""
    if block.page == "docs/groups.md":
        commit_for_billing(kafka)
        share_jobs(kafka)
    for line in block.text.splitlines():
        if re.match(r"([A-Z_]+=\S+ )*kconsumer ", line):
            shell(line, replaced, workplace, interrupt="--watch" in line)


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.name)
def test_console(block: Block, workplace: Path, replaced: dict[str, str]) -> None:
    """Commands print what the page shows, where `...` stands for any lines."""
    for command, expected in commands(block.text):
        pattern = re.escape(expected).replace(re.escape("...\n"), "(?:.*\n)*?")
        printed = shell(command, replaced, workplace)
        assert re.fullmatch(pattern, printed), f"{command} printed\n{printed}"
