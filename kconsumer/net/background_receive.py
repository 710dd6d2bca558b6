"""Receives large responses in the background, while the calling thread processes the records of earlier ones.

The bytes are received by `Receiver` (`_core/receiver.pyx`), on a thread that does not take the GIL. This module decides
which sockets the receiver reads. While it reads a socket, no other code may. The received bytes are then given to the
connection by `NodeConnection.on_background_data`.
"""

from __future__ import annotations

import selectors

from kconsumer._core.receiver import Receiver
from kconsumer.deferred_calls import get_logger
from kconsumer.net.interest import READ, SelectorInterest
from kconsumer.net.node import MIN_BACKGROUND_BYTES, READY, NodeConnection, ReceivedBytes

log = get_logger("kconsumer.net")


class BackgroundReceiver:
    """Starts and ends jobs of `receiver`. Each job reads one socket.

    The selector reports `receiver` when a job has ended. `take` then returns the bytes that the job has received.
    """

    def __init__(self, interest: SelectorInterest) -> None:
        self.receiver = Receiver()
        self.jobs: dict[NodeConnection, int] = {}  # for each node whose socket is read by the receiver, the job's id
        self._interest = interest
        self._registered_with: selectors.BaseSelector | None = None  # the selector that reports `receiver`
        self._filled: dict[int, int] = {}  # for each job id, the bytes received when `progressed` was last called

    def start_prefetch(self, node: NodeConnection) -> None:
        """Start to receive a node's next response in the background, if it is expected to be large. It then arrives
        even while the calling thread processes records and does not call `poll`."""
        connection = node.connection
        if connection is not None and node not in self.jobs and connection.has_in_flight and connection.state is READY:
            view = connection.prefetch_view(MIN_BACKGROUND_BYTES)
            if view is not None and not self._start(node, view, framed=True):
                connection.cancel_prefetch()

    def receive_rest(self, node: NodeConnection, view: memoryview) -> bool:
        """Start to receive the rest of a frame into `view` in the background, and stop selecting the socket for reads.
        Returns False if that is not possible."""
        if not self._start(node, view, framed=False):
            return False
        self._interest.update_connected(node, reads=False)
        return True

    def _start(self, node: NodeConnection, view: memoryview, *, framed: bool) -> bool:
        transport, selector = node.transport, self._interest.selector
        if transport is None or selector is None:
            return False
        channel = transport.channel
        if not transport.plain and (channel is None or channel.ended):
            return False
        try:
            if selector is not self._registered_with:
                if self.receiver.fileno() not in selector.get_map():
                    selector.register(self.receiver.fileno(), READ, self.receiver)
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

    def take(self) -> tuple[NodeConnection, ReceivedBytes] | None:
        """Remove a job that has ended. Returns its node and what was received, or None if no job has ended. After that,
        `poll` may read the socket of this job again."""
        taken = self.receiver.take()
        if taken is None:
            return None
        node: NodeConnection = taken[0]
        if node in self.jobs:
            del self.jobs[node]
        return node, taken[1:]

    def find_lost_jobs(self) -> list[NodeConnection]:
        """Returns the nodes whose job is only in `jobs`, or only in the receiver. Then corrects `jobs`.

        This happens if a signal handler raises an exception between a call of the receiver and the line that updates
        `jobs`. If a job is only in `jobs`, the bytes that it has received are lost. If a job is only in the receiver,
        `poll` and the receiver would read the same socket. So the connections of these nodes must be closed.
        """
        held: dict[NodeConnection, int] = {node: job for job, node in self.receiver.held().items()}
        lost = [node for node in {**self.jobs, **held} if self.jobs.get(node) != held.get(node)]
        self.jobs = held
        return lost

    def progressed(self, node: NodeConnection) -> bool:
        """Returns whether the receiver has received bytes for this node since the last call for the same node."""
        job = self.jobs.get(node)
        if job is None:
            return False
        alive = self.jobs.values()
        self._filled = {each: filled for each, filled in self._filled.items() if each in alive}
        before, self._filled[job] = self._filled.get(job, 0), self.receiver.filled(job)
        return self._filled[job] > before

    def cancel(self, node: NodeConnection) -> None:
        """Cancel a node's job, if it has one, so that the receiver no longer reads its socket."""
        job = self.jobs.get(node)
        if job is not None:
            self.receiver.cancel(job)
            self.jobs.pop(node, None)

    def close(self) -> None:
        """Stop the receiver's thread. Must be called before the sockets that it reads are closed."""
        self.receiver.close()
        self.jobs.clear()
