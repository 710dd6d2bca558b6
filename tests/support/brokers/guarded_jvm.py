"""One JVM of a test cluster, a broker or ZooKeeper, under its guard (`kafka_guard.py`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

STOP_TIMEOUT_S = 30
GUARD = Path(__file__).with_name("kafka_guard.py")


class GuardedJvm:
    """Starts, stops, kills and freezes one JVM. `root` is removed when the process that holds the lifeline ends."""

    def __init__(self, lifeline: Path, root: Path, log: Path) -> None:
        self._lifeline, self._root, self.log = lifeline, root, log
        self.pid: int | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._log_read_from = 0

    @property
    def alive(self) -> bool:
        """Returns True while the JVM runs."""
        return self._guard is not None and self._guard.poll() is None

    def run(self, command: list[str]) -> None:
        """Start the JVM under its guard."""
        self._log_read_from = self.log.stat().st_size if self.log.exists() else 0
        guard = [sys.executable, "-I", "-S", str(GUARD), str(self._lifeline), str(self._root)]
        self._guard = subprocess.Popen(
            [*guard, str(self.log), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal must not reach the broker before its owner
        )
        assert self._guard.stdout is not None
        with self._guard.stdout as out:
            self.pid = int(out.readline() or 0)

    def log_text(self) -> str:
        """Returns the JVM's output since its last start."""
        with self.log.open(errors="replace") as file:
            file.seek(self._log_read_from)
            return file.read()

    def kill(self) -> None:
        """End the JVM at once, as a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Shut the JVM down cleanly; kill it if it does not end in time."""
        try:
            self._end(signal.SIGTERM)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Freeze the JVM: its sockets stay open and no request gets a response."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused JVM continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive and self.pid:
            os.kill(self.pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._guard is not None:
            self._signal(number)
            if number == signal.SIGTERM:
                self._signal(signal.SIGCONT)  # a paused JVM would never see the request
            self._guard.wait(STOP_TIMEOUT_S)
            self.pid = None
