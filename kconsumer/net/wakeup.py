"""A bell that another thread or a signal handler rings to end a blocking select."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """A pair of sockets, made at first use.

    `is_set` is set before the socket is written, and the selecting side makes the sockets before it looks at `is_set`:
    whichever way the two interleave, a ring is either seen in the flag or wakes the select. Between two rests the
    socket is written once: a ring before the last one was heard costs no system call.

    Sockets and not a bare descriptor: one thread may ring while another closes, and a descriptor's number may by then
    be somebody else's file, while a closed socket knows that it is closed.
    """

    __slots__ = ("_cleared", "_reader", "_writer", "_written", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._cleared = 0  # how often the selecting side has heard
        self._written = -1  # after how many rests the socket was written last
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None

    def open(self) -> int:
        """Make the sockets; the descriptor to select on."""
        if self._reader is None:
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
        return self._reader.fileno()

    def wake(self) -> None:
        """From any thread or signal handler: end the current select, or the next one. Never blocks or fails."""
        self.is_set = True
        rests = self._cleared
        if self._writer is not None and self._written != rests:
            self.wake_nowait()
            # What was read before it was sent: a rest meanwhile may have emptied the socket.
            self._written = rests

    def wake_nowait(self) -> None:
        """From any thread: let the select that goes on look at what has changed. Not remembered without one."""
        writer = self._writer
        if writer is not None:
            # A full socket wakes just as well; one that was closed a moment ago has nobody to wake.
            with contextlib.suppress(OSError):
                writer.send(b"\0")

    def drain(self) -> None:
        """The descriptor was readable: empty it."""
        assert self._reader is not None
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def clear(self) -> None:
        """The rings until now were heard."""
        self._cleared += 1
        self.is_set = False

    def close(self) -> None:
        """Give the descriptors back."""
        for end in (self._reader, self._writer):
            if end is not None:
                end.close()
        self._reader = self._writer = None

    def __del__(self) -> None:
        """Close what a client that was never closed has left open."""
        if hasattr(self, "_writer"):  # set last: an exception may have ended __init__
            self.close()
