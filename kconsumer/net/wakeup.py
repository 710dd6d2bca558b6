"""A bell that another thread or a signal handler rings to end a blocking select."""

from __future__ import annotations

import contextlib
import os


class Waker:
    """An eventfd where there is one, else a pipe; opened at first use.

    `rung` is set before the descriptor is written, and the selecting side opens the descriptor before it
    looks at `rung`: whichever way the two interleave, a ring is either seen in the flag or wakes the
    select.
    """

    __slots__ = ("_read_fd", "_write_fd", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._read_fd = -1
        self._write_fd = -1

    def open(self) -> int:
        """Make the descriptor and return the end to select on."""
        if self._read_fd < 0:
            if hasattr(os, "eventfd"):
                self._read_fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            else:
                self._read_fd, write_fd = os.pipe()
                os.set_blocking(self._read_fd, False)
                os.set_blocking(write_fd, False)
                self._write_fd = write_fd
        return self._read_fd

    def ring(self) -> None:
        """From any thread or signal handler: end the current select, or the next one."""
        self.rung = True
        fd = self._write_fd
        if fd >= 0:
            # A full pipe wakes just as well; a descriptor closed a moment ago has nobody to wake.
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(fd, (1).to_bytes(8, "little"))

    def drain(self) -> None:
        """The descriptor was readable: empty it."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_fd, 4096)

    def rest(self) -> None:
        """The ring was heard."""
        self.rung = False

    def close(self) -> None:
        """Give the descriptors back."""
        fds = {self._read_fd, self._write_fd} - {-1}
        self._read_fd = self._write_fd = -1
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        """Sockets and selectors close when forgotten; so does this."""
        self.close()
