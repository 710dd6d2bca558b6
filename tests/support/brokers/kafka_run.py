"""The folder of one test run, and the lifeline: a FIFO whose end stops the brokers of the run.

A module of its own, so that test sessions without a broker import no client.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "kconsumer-tests-"
STARTING_S = 60  # a folder younger than this may belong to a run that is about to open its lifeline


def hold_lifeline(path: Path) -> int:
    """Create the FIFO that guards watch and open its write end, which the kernel closes however this process ends."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # read-write, because write-only would wait for a reader


def sweep() -> None:
    """Remove the folders of killed runs that had no broker, and so no guard to do it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lifeline = os.open(folder / "lifeline", os.O_RDONLY | os.O_NONBLOCK)
            with open(lifeline, "rb", buffering=0) as reader:
                abandoned = reader.read(1) == b""  # None while a process holds the write end
            if abandoned and time.time() - folder.stat().st_mtime > STARTING_S:
                shutil.rmtree(folder)
        except OSError:
            continue  # another user's, or gone meanwhile


class Run:
    """The run folder, held by the controlling process of a test session."""

    def __init__(self) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lifeline_fd = hold_lifeline(self.folder / "lifeline")

    def close(self) -> None:
        """Close the lifeline, so that the guards kill their brokers and remove the folder."""
        started = any(self.folder.glob("*.bootstrap"))
        os.close(self._lifeline_fd)
        deadline = time.monotonic() + 10
        while started and self.folder.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)
