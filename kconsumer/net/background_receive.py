"""Large answers, received on a thread of the system while the caller reads the records before them.

Decides whether the Receiver may have a socket, and gives it one. While it has it (`link.job`), nobody else reads there;
what it took is accounted for by the ConnectionLoop.
"""

from __future__ import annotations

from kconsumer._core.receiver import Receiver
from kconsumer.deferred_calls import get_logger
from kconsumer.net.connection import Connection
from kconsumer.net.interest import READ, Watch
from kconsumer.net.node import Link
from kconsumer.net.states import ConnectionState

# Larger frames are received beside. The sockets hold about as much as this (of the broker's send buffer, 100 KiB by
# default, the system makes the double); then the broker waits until somebody receives.
BESIDE_BYTES = 1 << 18

log = get_logger("kconsumer.net")


class Beside:
    """The Receiver and the sockets that it has. The selector reports `receiver` when there is something to `take`."""

    def __init__(self, watch: Watch) -> None:
        self.receiver = Receiver()
        self._watch = watch

    @property
    def ended(self) -> int:
        """How many frames have been received that nobody has taken. Costs next to nothing."""
        return self.receiver.ended

    def ahead(self, link: Link, connection: Connection) -> bool:
        """Have the next answer received if it will be large: nobody else looks at the socket while the caller is busy
        with the records of the answer before. False if that was begun and cannot be."""
        if link.job is None and connection.expecting and connection.state is ConnectionState.READY:
            view = connection.ahead_view(BESIDE_BYTES)
            return view is None or self.begin(link, view, framed=True)
        return True

    def begin(self, link: Link, view: memoryview, *, framed: bool) -> bool:
        """Have the view filled; False if it cannot be."""
        transport, selector = link.transport, self._watch.selector
        if transport is None or selector is None or not transport.plain:
            return False
        try:
            if self.receiver.fileno() not in selector.get_map():
                selector.register(self.receiver.fileno(), READ, self.receiver)
            link.prefetched = 0
            link.job = self.receiver.begin(transport.fileno(), view, link, framed)
        except OSError as error:  # no thread, or no descriptors: it goes without
            log.debug("large answers are not received in the background: %s", error)
        except BaseException:
            # If it came between `begin` and the assignment, nobody would cancel the job before the socket is closed,
            # and the Receiver would go on with whatever has its descriptor then.
            for job, owner in self.receiver.held().items():
                if owner is link:
                    self.receiver.cancel(job)
            raise
        return link.job is not None

    def progressed(self, link: Link) -> bool:
        """Returns True if the Receiver has got bytes for this link since the last call."""
        if link.job is None:
            return False
        before, link.prefetched = link.prefetched, self.receiver.filled(link.job)
        return link.prefetched > before

    def cancel(self, link: Link) -> None:
        """Take the socket back."""
        if link.job is not None:
            self.receiver.cancel(link.job)
            link.job = None

    def close(self) -> None:
        """End the thread; before the descriptors that it receives from are closed."""
        self.receiver.close()
