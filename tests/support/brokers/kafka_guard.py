"""The guard of one JVM: a small process that ends the JVM when its owner has ended.

Usage: kafka_guard.py LIFELINE ROOT LOG COMMAND...

LIFELINE is a FIFO whose write end the owner (a test process) holds open. The kernel closes it however the owner ends,
also by SIGKILL. Then this process kills the JVM and removes ROOT. If this process itself is killed, the kernel kills
the JVM (PR_SET_PDEATHSIG). The owner cannot use that signal without a guard: the kernel sends it when the *thread*
ends that started the JVM, and it is requested between fork and exec, which is unsafe in a process with threads.
The guard prints the JVM's pid and nothing else.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Request, in the child before exec, that the kernel kills it when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def owner_alive(lifeline: int) -> bool:
    """Returns whether a process holds the write end. Without a writer, a read returns the end of the file."""
    try:
        return os.read(lifeline, 1) != b""
    except BlockingIOError:
        return True


def main() -> int:
    """Run the command until it ends by itself or the lifeline breaks."""
    path, root, log, *command = sys.argv[1:]
    lifeline = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(log, "ab") as out:
        jvm = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=root, preexec_fn=die_with_parent
        )
    print(jvm.pid, flush=True)
    ended = os.pidfd_open(jvm.pid)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while owner_alive(lifeline):
        if ended in dict(poll.poll()):
            return jvm.wait()
    jvm.kill()
    jvm.wait()
    shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
