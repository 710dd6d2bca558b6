"""Receives large responses in the background, while the calling thread processes the records of earlier ones.

The bytes are received by `Receiver` (`_core/net/receiver.pyx`), on a thread that does not take the GIL. This module
decides which sockets the receiver reads. While it reads a socket, no other code may. The received bytes are then given
to the connection by `NodeConnection.on_background_data`.
"""

from __future__ import annotations

from typing import Protocol

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.net import Receiver
from kconsumer.net.interest import READ, Selector, SelectorInterest
from kconsumer.net.transport import Transport

ReceivedBytes = tuple[bytes | None, int, int]
"""A result of the background receiver: the four-byte size prefix (or None, if it was received before), the number of
received bytes of the frame, and an errno (0: no error)."""

log = get_logger("kconsumer.net")


class BackgroundReader(Protocol):
    """A connection whose socket the receiver may read."""

    @property
    def transport(self) -> Transport | None:
        """The socket, or None if there is none."""

    def wait_for_any(self) -> None:
        """Let the selector report the socket when any bytes have arrived."""

    def on_background_data(self, received: ReceivedBytes, now: float) -> None:
        """Process what the receiver has received."""

    def interrupted(self, error: BaseException, now: float) -> None:
        """Close the connection, because an exception may have lost received bytes."""


class BackgroundReceiver:
    """Starts and ends jobs of `receiver`. Each job reads one socket.

    The selector reports this object when a job has ended. The connection then gets the bytes that the job has received.
    """

    def __init__(self, interest: SelectorInterest) -> None:
        self.receiver = Receiver()
        self.jobs: dict[BackgroundReader, int] = {}  # for each connection whose socket is read, the job's id
        self._interest = interest
        self._registered_with: Selector | None = None  # the selector that reports this object
        self._filled: dict[int, int] = {}  # for each job id, the bytes received when `progressed` was last called

    def start(self, node: BackgroundReader, view: memoryview, *, framed: bool) -> bool:
        """Start to receive into `view` in the background: a frame with its size prefix, or, unless `framed`, the rest
        of a frame. Returns False if that is not possible. Otherwise, nothing else may read the socket."""
        transport, selector = node.transport, self._interest.selector
        if transport is None or selector is None:
            return False
        channel = transport.channel
        if not transport.plain and (channel is None or channel.ended):
            return False
        try:
            if selector is not self._registered_with:
                if self.receiver.fileno() not in selector.get_map():
                    selector.register(self.receiver.fileno(), READ, self)
                self._registered_with = selector
            node.wait_for_any()  # the receiver has a low-water mark of its own
            job = self.receiver.begin(transport.fileno(), view, node, framed, channel)
            if job is not None:
                self.jobs[node] = job
        except OSError as error:  # the receiver could not create its thread or its pipe
            log.debug("large responses are not received in the background: %s", error)
        except BaseException:
            # A signal handler may raise after `begin` and before the assignment to `jobs`. The job would then not be
            # cancelled before the socket is closed, and the receiver would read from the next file that gets the same
            # descriptor. So cancel it here.
            for job, owner in self.receiver.held().items():
                if owner is node:
                    self.receiver.cancel(job)
            raise
        return node in self.jobs

    def serve(self, _mask: int, now: float) -> None:
        """Give the connections what was received for them. From then on, `poll` may read their sockets again."""
        try:
            while (taken := self.receiver.take()) is not None:
                node: BackgroundReader = taken[0]
                if node in self.jobs:
                    del self.jobs[node]
                node.on_background_data(taken[1:], now)
        except BaseException as error:
            for node in self._find_lost_jobs():
                node.interrupted(error, now)
            raise

    def _find_lost_jobs(self) -> list[BackgroundReader]:
        """Returns the connections whose job is only in `jobs`, or only in the receiver. Then corrects `jobs`.

        This happens if a signal handler raises an exception between a call of the receiver and the line that updates
        `jobs`. If a job is only in `jobs`, the bytes that it has received are lost. If a job is only in the receiver,
        `poll` and the receiver would read the same socket. So these connections must be closed.
        """
        held: dict[BackgroundReader, int] = {node: job for job, node in self.receiver.held().items()}
        lost = [node for node in {**self.jobs, **held} if self.jobs.get(node) != held.get(node)]
        self.jobs = held
        return lost

    def progressed(self, node: BackgroundReader) -> bool:
        """Returns whether the receiver has received bytes for this connection since the last call for it."""
        job = self.jobs.get(node)
        if job is None:
            return False
        alive = self.jobs.values()
        self._filled = {each: filled for each, filled in self._filled.items() if each in alive}
        before, self._filled[job] = self._filled.get(job, 0), self.receiver.filled(job)
        return self._filled[job] > before

    def cancel(self, node: BackgroundReader) -> None:
        """Cancel a connection's job, if it has one, so that the receiver no longer reads its socket."""
        job = self.jobs.get(node)
        if job is not None:
            self.receiver.cancel(job)
            self.jobs.pop(node, None)

    def close(self) -> None:
        """Stop the receiver's thread. Must be called before the sockets that it reads are closed."""
        self.receiver.close()
        self.jobs.clear()
