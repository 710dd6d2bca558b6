"""The steps of docs/start.md, from top to bottom, as a reader types them in a shell, with the fake cluster of the page.

Only the port of the cluster is another one, so that other tests can run at the same time.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.harnesses.doc_blocks import BLOCKS, ROOT, commands

PAGE = "docs/start.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
SAVED = re.compile(r"\s`(\w+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = [block for block in BLOCKS if block.page == PAGE and block.language == "console"]
STEPS = [step for block in CONSOLE for step in commands(block.text)]
PROGRAMS = {"kconsumer": f"{sys.executable} -m kconsumer", "python": sys.executable}
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


@contextmanager
def running(command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command of the page in a shell, and end it."""
    program, _, arguments = command.partition(" ")
    line = f"{PROGRAMS[program]} {arguments}"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["bash", "-c", f"exec {line}"], stdout=pipe, stderr=pipe, text=True, cwd=folder, env=ENVIRONMENT
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)


def check(command: str, printed: str, expected: str) -> None:
    """Compare an output with the page, in which `...` stands for any lines."""
    pattern = re.escape(expected).replace(re.escape("...\n"), "(?:.*\n)*?")
    assert re.fullmatch(pattern, printed), f"{command} printed\n{printed}"


def free_port() -> int:
    """Returns a port that no program uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run(command: str, expected: str, folder: Path) -> None:
    """Run a command to its end. It succeeds, and prints what is expected."""
    with running(command, folder) as process:
        out, err = process.communicate(timeout=60)
    check(command, out, expected)
    assert (0, "") == (process.returncode, err), command


def test_the_steps_print_what_the_page_shows(tmp_path: Path) -> None:
    """Each command prints what the page shows. At the end, a second run of `first.py` prints nothing."""
    for name, text in SAVED.findall(TEXT):
        (tmp_path / name).write_text(text, encoding="utf-8")
    port = free_port()
    for program in tmp_path.iterdir():
        program.write_text(program.read_text(encoding="utf-8").replace(":9092", f":{port}"), encoding="utf-8")
    steps = [[text.replace(":9092", f":{port}") for text in step] for step in STEPS]
    start = next(index for index, (command, _) in enumerate(steps) if "fake-cluster" in command)
    for command, expected in steps[:start]:
        run(command, expected, tmp_path)
    command, expected = steps[start]
    with running(f"{command} --port {port}", tmp_path) as cluster:
        assert cluster.stdout is not None
        check(command, "".join(cluster.stdout.readline() for _ in expected.splitlines()), expected)
        for command, expected in steps[start + 1 :]:
            run(command, expected, tmp_path)
        run("python first.py", "", tmp_path)
    assert 2 == len(list(tmp_path.glob("*.py")))
