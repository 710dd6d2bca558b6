"""Observers of a simulated run: each reports requests, or what the library logs, to the journal."""

from __future__ import annotations

import logging

from kconsumer.schema.consumer_group import CONSUMER_GROUP_HEARTBEAT
from kconsumer.testing.cluster.faults import Fault, Faults
from kconsumer.testing.cluster.groups.classic import ClassicGroup
from kconsumer.testing.cluster.groups.classic_generation import COMPLETING_REBALANCE, PREPARING_REBALANCE
from kconsumer.testing.cluster.groups.group import Group
from kconsumer.testing.cluster.requests import Request
from support.simulation.journal import Journal
from support.simulation.simulation import Simulation


class ObservedRequests(Faults):
    """Faults that report each request to the journal, including those that a fault refuses.

    A request may take a fault long after the scenario has added it. This excuses the members for `disturbance_ms`.
    """

    def __init__(self, simulation: Simulation, journal: Journal, disturbance_ms: float) -> None:
        super().__init__(simulation.cluster, simulation.cluster.fetch, simulation.seed)
        self._simulation = simulation
        self._journal = journal
        self._disturbance_ms = disturbance_ms

    def take(self, request: Request) -> Fault | None:
        self._journal.now = self._simulation.now
        self._journal.request(request.client_id or "", request.api.name)
        fault = super().take(request)
        if fault is not None:
            self._journal.disturb_all(self._journal.now + self._disturbance_ms)
        elif request.api is CONSUMER_GROUP_HEARTBEAT and request.message.member_epoch == 0:
            self._joins(self._simulation.cluster.groups.get(request.message.group_id))
        return fault

    def _joins(self, group: Group | None) -> None:
        """A member of the consumer protocol joins a group.

        If the group was one of the consumer protocol and has become a classic one, its first rebalance may not have
        ended. Until then Kafka's coordinator takes the last target assignment for what the members own, although they
        may not have given up other partitions. These are assigned to the new member at once.
        """
        if isinstance(group, ClassicGroup) and group.state in (PREPARING_REBALANCE, COMPLETING_REBALANCE):
            self._journal.forget_owners()


class LoggedExceptions(logging.Handler):
    """Reports exceptions that the library logs to the journal."""

    def __init__(self, journal: Journal, simulation: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._simulation.record("log", f"{record.levelname} {text}")
        if record.exc_info and record.exc_info[0] is not None and record.exc_info[0].__name__ != "CallbackError":
            self._journal.violation(f"internal error: the library logged {text!r} with {record.exc_info[1]!r}")
