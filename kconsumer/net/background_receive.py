"""Large answers, received on a thread of the system while the caller reads the records before them.

Decides whether the Receiver may have a socket, and gives it one. While it has it (`link.receive_job`), nobody else
reads there; what it took is accounted for by the ConnectionLoop.
"""

from __future__ import annotations

from kconsumer._core.receiver import Receiver
from kconsumer.deferred_calls import get_logger
from kconsumer.net.connection import Connection
from kconsumer.net.interest import READ, SelectorInterest
from kconsumer.net.node import NodeConnection
from kconsumer.net.states import ConnectionState

# Larger frames are received beside. The sockets hold about as much as this (of the broker's send buffer, 100 KiB by
# default, the system makes the double); then the broker waits until somebody receives.
MIN_BACKGROUND_BYTES = 1 << 18

log = get_logger("kconsumer.net")


class BackgroundReceiver:
    """The Receiver and the sockets that it has. The selector reports `receiver` when there is something to `take`."""

    def __init__(self, watch: SelectorInterest) -> None:
        self.receiver = Receiver()
        self._interest = watch

    def start_prefetch(self, link: NodeConnection, connection: Connection) -> bool:
        """Have the next answer received if it will be large: nobody else looks at the socket while the caller is busy
        with the records of the answer before. False if that was begun and cannot be."""
        if link.receive_job is None and connection.has_in_flight and connection.state is ConnectionState.READY:
            view = connection.prefetch_view(MIN_BACKGROUND_BYTES)
            return view is None or self.start(link, view, framed=True)
        return True

    def start(self, link: NodeConnection, view: memoryview, *, framed: bool) -> bool:
        """Have the view filled; False if it cannot be."""
        transport, selector = link.transport, self._interest.selector
        if transport is None or selector is None or not transport.plain:
            return False
        try:
            if self.receiver.fileno() not in selector.get_map():
                selector.register(self.receiver.fileno(), READ, self.receiver)
            link.prefetched = 0
            link.receive_job = self.receiver.begin(transport.fileno(), view, link, framed)
        except OSError as error:  # no thread, or no descriptors: it goes without
            log.debug("large answers are not received in the background: %s", error)
        except BaseException:
            # If it came between `start` and the assignment, nobody would cancel the job before the socket is closed,
            # and the Receiver would go on with whatever has its descriptor then.
            for job, owner in self.receiver.held().items():
                if owner is link:
                    self.receiver.cancel(job)
            raise
        return link.receive_job is not None

    def progressed(self, link: NodeConnection) -> bool:
        """Returns True if the Receiver has got bytes for this link since the last call."""
        if link.receive_job is None:
            return False
        before, link.prefetched = link.prefetched, self.receiver.filled(link.receive_job)
        return link.prefetched > before

    def cancel(self, link: NodeConnection) -> None:
        """Take the socket back."""
        if link.receive_job is not None:
            self.receiver.cancel(link.receive_job)
            link.receive_job = None

    def close(self) -> None:
        """End the thread; before the descriptors that it receives from are closed."""
        self.receiver.close()
