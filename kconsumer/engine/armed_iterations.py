"""Iterations that leave the fast path of fetching armed.

While the fast path is armed, there is nothing to do but to send heartbeats, on the network thread or, with the classic
engine, on the calling thread. They need nothing that the fast path has copied, so they need not settle it. If they did,
each heartbeat and each response to one would end the wait of a poll, which must then arm the fast path again.

Only ordinary cases are handled here: a heartbeat of a stable member, and a response that changes only the manager of
its request. For everything else a whole iteration is necessary, which settles the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kconsumer._core.fast_path import FastPath
from kconsumer.engine.components import ClientComponents
from kconsumer.errors import KafkaError
from kconsumer.managers import RequestManager, UnsentRequest
from kconsumer.net.node import NodeConnection
from kconsumer.net.requests import ClientResponse


class ArmedPath(Protocol):
    """The fast path, as drivers use it. The caller of its methods holds the lock."""

    path: FastPath

    def end_leases(self, now: float) -> None:
        """Give the sockets back to the network thread. The fast path is settled."""

    def note_polls(self, now: float) -> bool:
        """Restart the poll interval for the polls since the fast path was armed. Returns False if it is not armed."""

    def extend(self, now: float) -> bool:
        """Keep the fast path armed until a manager or timer is due. Returns False if one is due now."""

    def settle_if_armed(self) -> None:
        """Disarm the fast path and write its state back, if it is armed."""

    def nodes(self) -> Sequence[NodeConnection]:
        """Returns the connections that the fast path uses."""


class PollSafely(Protocol):
    """The type of `Driver._poll_safely`."""

    def __call__(
        self, manager: RequestManager, now: float, submit: Callable[[Iterable[UnsentRequest], float], None]
    ) -> float:
        """Poll a manager, and call `submit` with its requests. Returns the time (ms) until the next poll is due."""
        ...


class ArmedIterations:
    """Polls the heartbeat manager, and handles responses to heartbeats, with the lock but without settling it."""

    def __init__(self, parts: ClientComponents, control: ArmedPath, poll_safely: PollSafely) -> None:
        self.control = control
        self.path = control.path  # whether it is armed is read without a call
        self._parts = parts
        self._poll_safely = poll_safely
        self._lock = parts.lock.inner
        self._due = 0.0  # when another manager must be polled (ms), if only `_ended` requests have ended until then
        self._ended = -1

    def set_due(self, due: float) -> None:
        """Set the time (ms) from which on whole iterations are necessary again. All managers have just been polled.

        If a request of another manager ends earlier, a whole iteration is necessary at once: its handler may have
        changed when that manager must be polled.
        """
        self._due, self._ended = due, self._parts.dispatcher.ended

    @property
    def current(self) -> bool:
        """True if the time of `set_due` is still valid."""
        return self._ended == self._parts.dispatcher.ended

    @property
    def due(self) -> float:
        """The time (ms) at which a heartbeat is due, or another manager must be polled."""
        group, now = self._parts.group, self._parts.clock.now()
        return self._due if group is None else min(self._due, now + group.heartbeat.time_to_next_ms(now))

    def poll(self) -> float | None:
        """Send a heartbeat if one is due. Returns how long (ms) the network may wait.

        Returns None if a whole iteration is necessary.
        """
        parts, group = self._parts, self._parts.group
        if group is None:
            return None
        with self._lock:
            now = parts.clock.now()
            if now >= self._due or not self.current:
                return None
            if not parts.dispatcher.quiet or not self.control.note_polls(now):
                return None
            if not group.heartbeat.is_regular(now):
                return None
            wait_ms = self._poll_safely(group.heartbeat, now, self._send)
            finished = parts.dispatcher.quiet
        parts.user_calls.run()
        return min(wait_ms, self._due - now) if finished else None

    def _send(self, requests: Iterable[UnsentRequest], now: float) -> None:
        """Send requests. If one cannot be sent now, all stay in the queue, for the whole iteration."""
        requests = list(requests)
        self._parts.dispatcher.enqueue(requests, now)
        if all(self._can_send(request, now) for request in requests):
            self._parts.dispatcher.begin_step(0.0, now)

    def _can_send(self, request: UnsentRequest, now: float) -> bool:
        client, node = self._parts.client, request.node
        if node is None or not client.ready(node, now):
            return False
        try:
            client.negotiated(node, request.api, request.min_version, request.max_version)
        except KafkaError:  # the handler of the request gets it in the whole iteration
            return False
        return True

    def deliver(self, responses: list[ClientResponse]) -> bool:
        """Handle responses that change only their managers.

        Returns False if the responses or other changes need the lock that settles the fast path. Then nothing was
        handled.
        """
        if not responses or not all(map(_is_local, responses)):
            return False
        dispatcher = self._parts.dispatcher
        with self._lock:
            if not dispatcher.quiet or not self.control.note_polls(self._parts.clock.now()):
                return False
            current = self.current
            dispatcher.end_step(responses)
            if current:  # these handlers have not changed when other managers are due
                self._ended = dispatcher.ended
        self._parts.user_calls.run()
        return True


def _is_local(response: ClientResponse) -> bool:
    """Returns True if the handler of the request changes nothing outside its manager."""
    request = response.request.tag
    if response.error is not None or not isinstance(request, UnsentRequest) or request.is_local is None:
        return False
    return request.is_local(response.message)
