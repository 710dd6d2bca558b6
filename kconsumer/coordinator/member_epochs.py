"""Heartbeats with a member epoch: those of the consumer protocol (KIP-848) and of share groups (KIP-932).

The coordinator assigns partitions in the responses. The same request joins the group, stays in it, and leaves it. The
heartbeats are numbered, so that a response to one of an ended membership does not change a later membership.
"""

from __future__ import annotations

import random
from abc import abstractmethod

from kconsumer._internal.managers import FOREVER
from kconsumer.config.option_groups import GroupRebalanceConfig
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import AbstractHeartbeatManager, H
from kconsumer.coordinator.metrics import HeartbeatMetrics
from kconsumer.errors import KafkaError, UnsupportedVersionError


class MemberEpochHeartbeats(AbstractHeartbeatManager[H]):
    """Decides when the next heartbeat is due, and what a failed one means."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        member: H,
        coordinator: CoordinatorManager,
        metrics: HeartbeatMetrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(config, member, coordinator, metrics, rng)
        self._in_flight = 0  # the number of the heartbeat in flight; 0: none
        self._numbers = 0  # the number of the last heartbeat
        self._last_ended = 0  # the number of the last heartbeat of an ended membership
        self._interval_ms = 0.0  # set by each successful response
        self._sent_at = 0.0

    @property
    def in_flight(self) -> bool:
        return self._in_flight != 0

    @property
    def may_be_member(self) -> bool:
        """True if the coordinator may have this member: at least one heartbeat of the membership was sent."""
        return self._member.in_group and self._numbers > self._last_ended

    def reset_session_timer(self, now: float) -> None:
        """Do nothing: in these protocols only the coordinator has a session timeout."""

    def time_to_next_ms(self, now: float) -> float:
        if not self._member.in_group:
            return FOREVER
        wait_ms = self._poll_deadline - now
        if not self._in_flight and self._coordinator.connection_id is not None:
            wait_ms = min(wait_ms, self._heartbeat_wait(now))
        return max(0.0, wait_ms)

    @abstractmethod
    def _heartbeat_wait(self, now: float) -> float:
        """Returns the time (ms) until the next heartbeat is due, if none is in flight."""

    def end_membership(self) -> None:
        """End the current membership, so that responses to its heartbeats do not change a later membership."""
        self._last_ended = self._numbers
        super().end_membership()

    def _begin_heartbeat(self, now: float) -> int:
        """Start the timers of a heartbeat that is sent now. Returns its number."""
        self._numbers += 1
        self._in_flight = self._numbers
        self._sent_at = now
        self._next_heartbeat = now + self._interval_ms
        self._metrics.heartbeat_sent(now)
        return self._numbers

    def _end_heartbeat(self, number: int) -> bool:
        """Handle the end of a heartbeat. Returns False if it belongs to a membership that has ended."""
        if number == self._in_flight:
            self._in_flight = 0
        return number > self._last_ended

    def _set_interval(self, interval_ms: int) -> None:
        """Restart the heartbeat interval, whose duration a response contains."""
        self._interval_ms = float(interval_ms)
        self._next_heartbeat = self._sent_at + self._interval_ms

    # --- failures --------------------------------------------------------------------------------------------------

    def _on_request_failed(self, error: KafkaError, now: float) -> None:
        self._forget_sent()
        self.progress.failed(error, now)
        if isinstance(error, UnsupportedVersionError):
            self._on_fatal(self._unsupported(error))
            return
        if error.retriable:
            self._coordinator.mark_unknown(error, now)
        else:
            # The membership continues, because the next heartbeat may succeed, for example after a wrong password was
            # corrected. Java ends the membership.
            self.keep_error(error)
        self._retry(now)

    @abstractmethod
    def _forget_sent(self) -> None:
        """Forget which fields the coordinator has received, so that the next heartbeat contains all of them."""

    @abstractmethod
    def _on_fatal(self, error: KafkaError) -> None:
        """End the membership because of an error that cannot be retried."""

    @abstractmethod
    def _unsupported(self, error: UnsupportedVersionError) -> KafkaError:
        """Returns the error of a broker without the protocol, with advice."""
