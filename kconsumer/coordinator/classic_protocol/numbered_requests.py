"""Numbers the JoinGroup and SyncGroup requests of a member, so that responses to abandoned ones are ignored."""

from __future__ import annotations


class NumberedRequests:
    """At most one request is current. Others may be in flight whose responses must be ignored."""

    __slots__ = ("_abandoned", "_current", "_last")

    def __init__(self) -> None:
        self._current = 0  # the number of the request in flight; 0: none
        self._last = 0
        self._abandoned: set[int] = set()  # numbers of requests in flight whose responses must be ignored

    @property
    def current(self) -> bool:
        """True while the current request has no response yet."""
        return bool(self._current)

    @property
    def in_flight(self) -> bool:
        """True while any request has no response yet, also an abandoned one."""
        return bool(self._current or self._abandoned)

    def next(self) -> int:
        """Begin a request. Returns its number."""
        self._last += 1
        self._current = self._last
        return self._current

    def abandon(self) -> None:
        """Ignore the response to the current request, if there is one."""
        if self._current:
            self._abandoned.add(self._current)
            self._current = 0

    def ended(self, number: int) -> bool:
        """Record that the request with this number is no longer in flight.

        Returns True if it is the current request, and False if it was abandoned, so that its response must be ignored.
        """
        is_current = number == self._current
        self.forget(number)
        return is_current

    def forget(self, number: int) -> None:
        """Record that the request with this number is no longer in flight."""
        self._abandoned.discard(number)
        if number == self._current:
            self._current = 0
