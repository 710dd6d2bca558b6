"""Large responses, received on a thread that needs no GIL while the caller processes the records before them.

Decides whether the receiver may have a connection's socket, and gives it one. While the receiver has a socket, nothing
else reads it. What the received bytes mean is decided by the connection; see `NodeConnection.on_background_data`.
"""

from __future__ import annotations

import selectors

from kconsumer._core.receiver import Receiver
from kconsumer.deferred_calls import get_logger
from kconsumer.net.interest import READ, SelectorInterest
from kconsumer.net.node import MIN_BACKGROUND_BYTES, READY, NodeConnection, ReceivedBytes

log = get_logger("kconsumer.net")


class BackgroundReceiver:
    """The receiver and the sockets that it reads. The selector reports `receiver` when there is something to `take`."""

    def __init__(self, interest: SelectorInterest) -> None:
        self.receiver = Receiver()
        self.jobs: dict[NodeConnection, int] = {}  # the receiver's job by the node whose socket it reads
        self._interest = interest
        self._registered_with: selectors.BaseSelector | None = None  # the selector that reports `receiver`
        self._filled: dict[int, int] = {}  # bytes received by each job, when it was checked last

    def start_prefetch(self, node: NodeConnection) -> None:
        """Start to receive the next response in the background if it is expected to be large.

        Otherwise its bytes would wait in the socket while the caller processes the records of the previous response.
        """
        connection = node.connection
        if connection is not None and node not in self.jobs and connection.has_in_flight and connection.state is READY:
            view = connection.prefetch_view(MIN_BACKGROUND_BYTES)
            if view is not None and not self._start(node, view, framed=True):
                connection.cancel_prefetch()

    def receive_rest(self, node: NodeConnection, view: memoryview) -> bool:
        """Start to receive the rest of a frame into the view. Returns False if that is not possible."""
        if not self._start(node, view, framed=False):
            return False
        self._interest.update_connected(node, reads=False)
        return True

    def _start(self, node: NodeConnection, view: memoryview, *, framed: bool) -> bool:
        transport, selector = node.transport, self._interest.selector
        if transport is None or selector is None or not transport.plain:
            return False
        try:
            if selector is not self._registered_with:
                if self.receiver.fileno() not in selector.get_map():
                    selector.register(self.receiver.fileno(), READ, self.receiver)
                self._registered_with = selector
            job = self.receiver.begin(transport.fileno(), view, node, framed)
            if job is not None:
                self.jobs[node] = job
        except OSError as error:  # no thread or no descriptor is available
            log.debug("large responses are not received in the background: %s", error)
        except BaseException:
            # If the exception came between `begin` and the assignment, the job would not be cancelled before the socket
            # is closed. The receiver would then read from whatever has its descriptor next.
            for job, owner in self.receiver.held().items():
                if owner is node:
                    self.receiver.cancel(job)
            raise
        return node in self.jobs

    def take(self) -> tuple[NodeConnection, ReceivedBytes] | None:
        """Returns the next node whose job has ended, and the bytes received; None if there is none. The socket is read
        by `poll` again."""
        taken = self.receiver.take()
        if taken is None:
            return None
        node: NodeConnection = taken[0]
        if node in self.jobs:
            del self.jobs[node]
        return node, taken[1:]

    def find_lost_jobs(self) -> list[NodeConnection]:
        """Returns the nodes whose job is not the receiver's, or the other way round, and corrects `jobs`. An exception
        came between a method of the receiver and the line that notes the job: either bytes are lost, or two would read
        the same socket."""
        held: dict[NodeConnection, int] = {node: job for job, node in self.receiver.held().items()}
        lost = [node for node in {**self.jobs, **held} if self.jobs.get(node) != held.get(node)]
        self.jobs = held
        return lost

    def progressed(self, node: NodeConnection) -> bool:
        """Returns whether the receiver has received bytes for this node since the last call."""
        job = self.jobs.get(node)
        if job is None:
            return False
        alive = self.jobs.values()
        self._filled = {each: filled for each, filled in self._filled.items() if each in alive}
        before, self._filled[job] = self._filled.get(job, 0), self.receiver.filled(job)
        return self._filled[job] > before

    def cancel(self, node: NodeConnection) -> None:
        """Stop reading a node's socket."""
        job = self.jobs.get(node)
        if job is not None:
            self.receiver.cancel(job)
            self.jobs.pop(node, None)

    def close(self) -> None:
        """End the thread. Must be called before the sockets that it reads are closed."""
        self.receiver.close()
        self.jobs.clear()
