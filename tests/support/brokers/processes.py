"""The processes of a session, found in /proc: for tests that kill what another process started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running_session(
    command: Sequence[str], environment: Mapping[str, str], output: Path, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command as leader of its own session, in `folder`, and append what it prints to the file `output`.

    At the end of the block all processes of the session are killed.
    """
    with output.open("ab") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(of_session(process.pid))
        process.wait(30)


def of_session(leader: int) -> list[int]:
    """Returns the ids of all processes in the session that `leader` started."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _fields(pid)[3:4] == [str(leader)]]


def _fields(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat after the name (state, parent, process group, session, …), if it runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    """Returns the parent's id."""
    return int((_fields(pid) or ["", "0"])[1])


def children(pid: int) -> list[int]:
    """Returns the ids of the processes that a process has started."""
    return [child for child in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(child) == pid]


def command(pid: int) -> str:
    """Returns the command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pids: list[int]) -> None:
    """Send SIGKILL to each process that still runs."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def anonymous_memory(pid: int) -> int:
    """Returns the process's anonymous memory in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def local_ports(pid: int) -> set[int]:
    """Returns the local ports of the process's IPv4 TCP connections, or none if the process has ended."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            targets = {os.readlink(entry.path) for entry in entries}
        rows = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return set()
    fields = map(str.split, rows)
    return {int(row[1].rpartition(":")[2], 16) for row in fields if f"socket:[{row[9]}]" in targets}
