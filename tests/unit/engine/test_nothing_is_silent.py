"""No consumer waits silently or sends requests without a pause: if all responses of an API have the same error, the
caller gets it, or a warning names it within 10 s. Each request of the managers, each error in its table and one of each
kind of the others, each protocol, on virtual time, as a network thread drives the managers.

A new request, or a new error code in a table, is tested without an entry here; a table without a request fails.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._common.error_tables import ErrorTable
from kconsumer.coordinator import error_actions as group_tables
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment
from kconsumer.errors import UnsupportedVersionError
from kconsumer.schema.classic_group import SyncGroupResponse
from kconsumer.schema.embedded import ConsumerProtocolAssignment, TopicPartitions
from kconsumer.share import error_actions as share_tables
from kconsumer.telemetry import state as telemetry_tables
from kconsumer.testing.clock import VirtualClock
from support.harnesses.error_codes import name_of
from support.harnesses.error_faults import PROTOCOLS, TABLES, complaints, faults
from support.harnesses.share_simulation import SHARE_RESPONSES, ShareSimulation
from support.harnesses.simulation import RESPONSES, Fault, Simulation

LIMIT_MS = 10_000.0
SECONDS = 15
# Tables of other requests, with the reason why nothing waits for them, or with the test that they have.
OTHER_TABLES = {
    id(group_tables.LEAVE_ACTIONS): "the member has left in any case",
    id(share_tables.ACKNOWLEDGE_ACTIONS): "commit() and on_acknowledge get the error, test_share_acknowledgements.py",
    id(telemetry_tables.SUBSCRIPTION_ACTIONS): "nothing waits for telemetry",
    id(telemetry_tables.PUSH_ACTIONS): "nothing waits for telemetry",
}
UNREAD = {
    ("FindCoordinator", 0): "v4 and later have a row for each group",
    ("OffsetFetch", 0): "v8 and later have a row for each group",
    ("ShareFetch", 2): "the code of acknowledgements is another field",
}
ALIASES = {
    ("Metadata", 1, int(Errors.UNKNOWN_TOPIC_OR_PARTITION)): "topic t does not exist",
    ("ListOffsets", 2, int(Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT)): "the leader has no such offset",
}
# Brokers before Kafka 2.3 cannot check positions without more permissions, so that positions count as checked.
ACCEPTED = {("OffsetForLeaderEpoch", UnsupportedVersionError)}


class Recorder(logging.Handler):
    """Keeps the warnings of a simulation, each with the time (ms)."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[tuple[float, str]] = []
        self._clock = clock

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        self.lines.append((self._clock.now(), record.getMessage()))


def simulate(protocol: str, fault: Fault | None, seconds: int) -> tuple[Any, list[tuple[float, str]]]:
    """Returns a simulation that has run, and its warnings."""
    simulation: Any = ShareSimulation(fault) if protocol == "share" else Simulation(fault, **PROTOCOLS[protocol])
    return simulation, record(simulation, seconds)


def record(simulation: Any, seconds: int) -> list[tuple[float, str]]:
    """Run a simulation. Returns its warnings."""
    recorder, logger = Recorder(simulation.clock), logging.getLogger("kconsumer")
    logger.addHandler(recorder)
    try:
        simulation.run(seconds)
    finally:
        logger.removeHandler(recorder)
    return recorder.lines


def text_of(fault: Fault) -> str:
    """Returns the text that a warning or error must contain."""
    if fault.error is not None:
        return str(getattr(fault.error, "message", fault.error))  # of an unsupported version, without its code
    return ALIASES.get((fault.api, fault.depth, fault.code), name_of(fault.code))


def is_silent(fault: Fault, simulation: Any, warnings: list[tuple[float, str]]) -> bool:
    """Returns whether neither a warning nor an error of a call named the fault in time."""
    if (fault.api, type(fault.error)) in ACCEPTED or (fault.error is None and (fault.api, fault.depth) in UNREAD):
        return False
    text = text_of(fault)
    first = next(at for at, api in simulation.sent if api == fault.api)
    named = [at for at, line in warnings if text in line]
    named += [at for at, error in simulation.raised if text in f"{error} {error.__cause__}"]
    return not named or min(named) - first > LIMIT_MS


def repeated(warnings: list[tuple[float, str]], limit: int = 1) -> list[str]:
    """Returns the warnings that were logged more often than `limit`, without their numbers."""
    counts = Counter(re.sub(r"\d+", "", line) for _, line in warnings)
    return [line for line, count in counts.items() if count > limit]


CASES = {protocol: simulate(protocol, None, 5)[0].depths for protocol in (*PROTOCOLS, "share")}
PAIRS = [(protocol, api) for protocol in CASES for api in CASES[protocol]]


@pytest.mark.parametrize(("protocol", "api"), PAIRS)
def test_each_error_is_named(protocol: str, api: str) -> None:
    """With any error in every response of an API, the caller gets the error or a warning names it within 10 s, no
    warning is repeated within a minute, and retries wait for a backoff that grows.
    """
    silent, often, many = [], [], []
    for fault in faults(api, CASES[protocol][api]):
        simulation, warnings = simulate(protocol, fault, SECONDS)
        if is_silent(fault, simulation, warnings):
            silent.append(f"{text_of(fault)} at depth {fault.depth}")
        often += repeated(warnings)
        many += complaints(fault, simulation) if protocol in PROTOCOLS else []
    assert ([], [], []) == (silent, often, many)


@pytest.mark.parametrize("protocol", CASES)
def test_without_an_error_nothing_is_logged(protocol: str) -> None:
    """A consumer that reads logs no warning, and waits for nothing."""
    simulation, warnings = simulate(protocol, None, SECONDS)
    assert ([], []) == (warnings, [each for each in simulation.parts.progress.waits() if each.failures])


@pytest.mark.parametrize(
    ("protocol", "fault"),
    [
        ("classic", Fault("FindCoordinator", 1, Errors.COORDINATOR_NOT_AVAILABLE)),
        ("classic", Fault("JoinGroup", 0, Errors.NOT_COORDINATOR)),
        ("classic", Fault("Heartbeat", 0, Errors.REBALANCE_IN_PROGRESS)),
        ("consumer", Fault("ConsumerGroupHeartbeat", 0, Errors.FENCED_MEMBER_EPOCH)),
        ("consumer", Fault("OffsetFetch", 1, Errors.UNSTABLE_OFFSET_COMMIT)),
        ("assigned", Fault("Metadata", 2, Errors.LEADER_NOT_AVAILABLE)),
        ("share", Fault("ShareGroupHeartbeat", 0, Errors.COORDINATOR_LOAD_IN_PROGRESS)),
    ],
)
def test_warnings_are_repeated_each_minute(protocol: str, fault: Fault) -> None:
    """A wait that lasts is logged again, at most once a minute."""
    _, warnings = simulate(protocol, fault, 130)
    about = [(at, line) for at, line in warnings if "waiting for" in line and text_of(fault) in line]
    assert len(about) in (2, 3)
    assert [] == repeated(warnings, limit=3)


def test_the_end_of_the_fault_ends_the_wait() -> None:
    """When the coordinator is found, nothing is waited for any more, and the end of the reported wait is logged."""
    simulation = Simulation(Fault("FindCoordinator", 1, Errors.COORDINATOR_NOT_AVAILABLE), group_protocol="classic")
    simulation.run(SECONDS)
    assert ["the coordinator"] == [wait.waiting_for for wait in simulation.parts.progress.waits()]
    assert simulation.parts.group_wait is not None
    simulation.fault = None
    simulation.run(SECONDS)
    assert (None, []) == (simulation.parts.group_wait, simulation.parts.progress.waits())


def test_an_assignment_with_unsubscribed_topics_is_a_wait() -> None:
    """If the leader assigns topics that are not subscribed, the member joins again with a growing pause, and a warning
    names the topics.
    """
    simulation = Simulation(group_protocol="classic")
    simulation.responses["SyncGroup"] = lambda request: SyncGroupResponse(
        protocol_type="consumer",
        protocol_name=request.protocol_name,
        assignment=encode_assignment(
            ConsumerProtocolAssignment(
                assigned_partitions=[TopicPartitions(topic=name, partitions=[0]) for name in ("t", "ghost")]
            )
        ),
    )
    warnings = record(simulation, SECONDS)
    assert simulation.requests(0)["SyncGroup"] <= 10
    assert [1, 1, 1] == [simulation.requests(second)["SyncGroup"] for second in range(SECONDS - 3, SECONDS)]
    (line,) = [line for _, line in warnings]
    assert "doesn't match our current subscription: ['ghost'] assigned, ['t'] subscribed" in line


@pytest.mark.parametrize("code", [Errors.REBALANCE_IN_PROGRESS, Errors.UNKNOWN_MEMBER_ID, Errors.ILLEGAL_GENERATION])
def test_endless_rebalances_are_named(code: int) -> None:
    """If each heartbeat after a join says that the member must join again, a warning names the error within 10 s, with
    the default heartbeat interval.
    """
    simulation = Simulation(Fault("Heartbeat", 0, code), group_protocol="classic", heartbeat_interval_ms=3000)
    warnings = record(simulation, 20)
    first = next(at for at, api in simulation.sent if api == "Heartbeat")
    assert [True] == [at - first <= LIMIT_MS for at, line in warnings if name_of(code) in line]


def test_each_request_and_each_table_is_tested() -> None:
    """Every request of the simulated consumers has a row, and every table of error codes belongs to a request."""
    assert RESPONSES.keys() | SHARE_RESPONSES.keys() == TABLES.keys()
    assert TABLES.keys() == {api for _, api in PAIRS}
    tested = {id(table) for tables in TABLES.values() for table in tables} | OTHER_TABLES.keys()
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("kconsumer.")]
    tables = {id(each): name for names in modules for name, each in names.items() if isinstance(each, ErrorTable)}
    assert tested <= tables.keys() | {id(TABLES["Metadata"][0])}
    assert [] == [name for key, name in tables.items() if key not in tested]


def test_too_many_requests_are_found() -> None:
    """`complaints` finds a consumer with shorter backoffs."""
    fault = Fault("OffsetFetch", 1, 30)
    options = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 10, **PROTOCOLS["consumer"]}
    assert list(complaints(fault, Simulation(fault, **options).run(SECONDS)))
