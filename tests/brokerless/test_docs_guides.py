"""The Python blocks of docs/guides and docs/parallel.md run as they are printed, on a FakeCluster.

It has the topic of docs/start.md. A program that prints is followed by a `text` block with its output, which must be
exactly what it prints. A program that reads for ever is ended as by Ctrl-C when it has read every record.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kconsumer.testing import FakeCluster
from support.fakes.tunnel_proxy import TunnelProxy
from support.harnesses.doc_blocks import BLOCKS, Block, read_until_the_end, run_python
from support.registry.server import registry_server

FOLDERS = ("docs/guides/", "docs/parallel.md")
FRAMEWORKS = "docs/guides/frameworks.md"  # tests/frameworks runs its programs
RECIPES = "docs/guides/security-recipes.md"  # tests/brokerless/test_docs_security_recipes.py runs its programs
RECORDS = 12
REGISTRY = "http://localhost:8081"  # in programs that use a schema registry
SOCKS = "socks5://localhost:1080"  # in the program that uses a proxy
DAMAGED = "is damaged"  # in the program that puts one record aside
# Another process may use these ports.
ANY_PORT = {"start_http_server(9404)": "start_http_server(0)", "serve(consumer, 8080": "serve(consumer, 0"}
ENDS = ("so that the example ends", "processor.stop", "TopicTable")  # in programs that need no Ctrl-C
GUIDES = [block for block in BLOCKS if block.page.startswith(FOLDERS) and block.page not in (RECIPES, FRAMEWORKS)]
PROGRAMS = [block for block in GUIDES if block.language == "python" and block.runs]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A cluster like that of `kconsumer fake-cluster --topic orders --records 12`, with the topics of `RetryTopics`."""
    with FakeCluster() as cluster:
        for topic in ("orders", "orders-retry-100", "orders-retry-1000", "orders.dead"):
            cluster.create_topic(topic)
        cluster.produce(
            "orders", [(f"key-{n}", json.dumps({"number": n, "text": f"record {n}"})) for n in range(RECORDS)]
        )
        yield cluster


def output_of(block: Block) -> str | None:
    """Returns the output that the page shows after a program, or None if it shows none."""
    following = GUIDES[GUIDES.index(block) + 1 :]
    shown = following[:1]
    return shown[0].text if shown and (shown[0].page, shown[0].language) == (block.page, "text") else None


def run(block: Block, cluster: FakeCluster, patch: pytest.MonkeyPatch) -> None:
    """Run a program until it has read all records of the topic."""
    with patch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other packages, such as kafka-python
        if not any(end in block.text for end in ENDS):
            read_until_the_end(patched, {"orders": RECORDS - (DAMAGED in block.text)})
        with ExitStack() as stack:
            replaced = {"localhost:9092": cluster.bootstrap_servers, **ANY_PORT}
            if REGISTRY in block.text:
                replaced[REGISTRY] = stack.enter_context(registry_server())
            if SOCKS in block.text:
                host, _, port = cluster.bootstrap_servers.rpartition(":")
                proxy = stack.enter_context(TunnelProxy({("kafka-0.kafka", 9092): (host, int(port))}))
                replaced[SOCKS] = f"socks5://{proxy.address}"
            run_python(block, replaced)


def run_file(block: Block, cluster: FakeCluster, folder: Path) -> None:
    """Run a program that starts processes, from a file, and print what it prints."""
    file = folder / "program.py"
    file.write_text(block.text.replace("localhost:9092", cluster.bootstrap_servers), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (0, "") == (done.returncode, done.stderr)
    print(done.stdout, end="")


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_the_program_prints_what_the_page_shows(
    block: Block,
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The output is that of the page, in which `...` stands for any lines."""
    monkeypatch.chdir(tmp_path)
    if "__main__" in block.text:
        run_file(block, cluster, tmp_path)
    else:
        run(block, cluster, monkeypatch)
    printed, shown = capsys.readouterr().out, output_of(block)
    if shown is None:
        assert "" == printed
    else:
        assert re.fullmatch(re.escape(shown).replace(re.escape("...\n"), "(?:.*\n)*?"), printed), printed


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")  # the program ends at an exception
def test_nothing_is_written_twice(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program with a database, run again, finds its records there and writes none again."""
    monkeypatch.chdir(tmp_path)
    [block] = [block for block in PROGRAMS if "orders.db" in block.text]
    run(block, cluster, monkeypatch)
    first = capsys.readouterr().out
    cluster.produce("orders", [("key-12", '{"number": 12, "text": "record 12"}')])
    with monkeypatch.context() as patched:
        read_until_the_end(patched, {"orders": 1})
        run_python(block, {"localhost:9092": cluster.bootstrap_servers})
    assert (f"{RECORDS} rows\n", f"{RECORDS + 1} rows\n") == (first, capsys.readouterr().out)
