"""A self-pipe, with which another thread or a signal handler can end a blocking select."""

from __future__ import annotations

import contextlib
import socket


class _End(socket.socket):
    """One end of the pair, which closes itself when it is freed. In a cycle, it may be the first that is finalized."""

    __slots__ = ()
    __del__ = socket.SocketType.close


class Waker:
    """Ends the select of one thread: a flag, and a pair of sockets that is created at the first use.

    No wakeup is lost: `wake` sets `is_set` before it writes to the socket, and the selecting thread creates the sockets
    before it reads `is_set`. So the thread either finds the flag set, or its select ends. Between two calls of `clear`
    the socket is written at most once, as one byte is enough.

    The ends are socket objects and not bare descriptors, because one thread may call `wake` while another calls
    `close`. A closed socket object raises OSError. A closed descriptor might already be the number of another file.
    """

    __slots__ = ("_cleared", "_reader", "_writer", "_written", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._cleared = 0  # calls of `clear`
        self._written = -1  # the value of `_cleared` when the socket was written last
        self._reader: socket.socket | None = None
        self._writer: socket.socket | None = None

    def open(self) -> int:
        """Create the sockets, if there are none. Returns the descriptor to select on."""
        if self._reader is None:
            ends = [_End(fileno=end.detach()) for end in socket.socketpair()]
            for end in ends:
                end.setblocking(False)
            self._reader, self._writer = ends
        return self._reader.fileno()

    def wake(self) -> None:
        """End this select, or else the next one. Any thread or signal handler may call this. Never blocks or raises."""
        self.is_set = True
        cleared = self._cleared
        if self._writer is not None and self._written != cleared:
            self.wake_nowait()
            # Use the count from before the write. If the selecting thread has called `drain` and `clear` since then,
            # the byte has been read, and the next wakeup must write again.
            self._written = cleared

    def wake_nowait(self) -> None:
        """End the select without setting `is_set`, as the caller has set another flag. Any thread may call this."""
        # Errors do not matter: a full socket ends the select as well, and a closed one has no select to end.
        if (writer := self._writer) is not None:
            with contextlib.suppress(OSError):
                writer.send(b"\0")

    def drain(self) -> None:
        """Read all bytes from the socket, after select has reported it."""
        assert self._reader is not None
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def clear(self) -> None:
        """Clear `is_set`, at the end of a poll. The next `wake` writes to the socket again."""
        self._cleared += 1
        self.is_set = False

    def close(self) -> None:
        """Close the sockets."""
        for end in (self._reader, self._writer):
            if end is not None:
                end.close()
        self._reader = self._writer = None
