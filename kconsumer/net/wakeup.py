"""A self-pipe by which another thread or a signal handler ends a blocking select."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """A pair of sockets, created at the first use.

    `wake` sets `is_set` before it writes to the socket, and the selecting thread creates the sockets before it reads
    `is_set`. However the two interleave, a wakeup is either seen in the flag or ends the select. The socket is written
    once between two calls of `clear`: a wakeup that is still pending is not sent again.

    Sockets and not bare descriptors: one thread may call `wake` while another calls `close`. The number of a closed
    descriptor may be another file's by then, whereas a closed socket object raises.
    """

    __slots__ = ("_cleared", "_reader", "_writer", "_written", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._cleared = 0  # calls of `clear`
        self._written = -1  # the value of `_cleared` when the socket was written last
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None

    def open(self) -> int:
        """Create the sockets. Returns the descriptor to select on."""
        if self._reader is None:
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
        return self._reader.fileno()

    def wake(self) -> None:
        """End the current select, or the next one. For any thread or signal handler; never blocks or raises."""
        self.is_set = True
        cleared = self._cleared
        if self._writer is not None and self._written != cleared:
            self.wake_nowait()
            # The count from before the write, not the present one: if `drain` and `clear` have run since, the socket is
            # empty, and the next wakeup must write again.
            self._written = cleared

    def wake_nowait(self) -> None:
        """End the current select, without setting `is_set`: the selecting thread checks other flags. For any thread."""
        writer = self._writer
        if writer is not None:
            # A full socket ends the select, too. If the socket has just been closed, there is no select to end.
            with contextlib.suppress(OSError):
                writer.send(b"\0")

    def drain(self) -> None:
        """Read everything from the socket, which was readable."""
        assert self._reader is not None
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def clear(self) -> None:
        """Clear the flag: all wakeups until now have been noticed."""
        self._cleared += 1
        self.is_set = False

    def close(self) -> None:
        """Close the sockets."""
        for end in (self._reader, self._writer):
            if end is not None:
                end.close()
        self._reader = self._writer = None

    def __del__(self) -> None:
        """Close the sockets of a client that was never closed."""
        if hasattr(self, "_writer"):  # set last: an exception may have ended __init__
            self.close()
