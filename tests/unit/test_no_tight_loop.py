"""Whatever a broker answers, no manager asks without pause: every API, every error code, every place for one.

All managers run together on virtual time, as a network thread drives them while the caller polls and ignores errors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    TimeoutError,
    UnsupportedVersionError,
)
from kconsumer.requests.base import Backoff
from support.error_codes import ALL, name_of
from support.simulation import ANSWERS, Fault, Simulation

SECONDS = 3
RETRY_BACKOFF_MS = 100
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"group_protocol": "classic"},
    "consumer": {"group_protocol": "consumer"},
    "assigned": {"subscribe": False},
}
# In place of an answer: no connection, none in time, a refused login, no common version, bytes that do not parse.
ERRORS: tuple[KafkaError, ...] = (
    BrokerConnectionError("the broker closed the connection"),
    TimeoutError("not answered in time"),
    AuthenticationError("the password is wrong"),
    UnsupportedVersionError("no common version"),
    ProtocolError("garbage"),
)
# The consumer itself asks, and the user of the simulation does, in two ways for metadata: each has its own backoff.
ASKERS = {"Metadata": 3, "OffsetFetch": 2, "ListOffsets": 2}
CASES = {protocol: Simulation(**options).run(SECONDS).depths for protocol, options in PROTOCOLS.items()}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Ten thousand failures are not worth a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def faults(api: str, depths: set[int]) -> Iterator[Fault]:
    """All that can be wrong with the answers of an API."""
    for depth in sorted(depths):
        for code in ALL:
            if code:
                yield Fault(api, depth, code)
    for error in ERRORS:
        yield Fault(api, error=error)


def complaints(fault: Fault, simulation: Simulation) -> Iterator[str]:
    """Where more was sent than retries with a backoff send."""
    per_second = 1000 // RETRY_BACKOFF_MS
    about = f"{fault.error!r}" if fault.error is not None else f"{name_of(fault.code)} at depth {fault.depth}"
    for second in range(SECONDS):
        for api, count in simulation.requests(second).items():
            # Backoffs of 0.8 s and more are left in the third second; some managers begin again after a success.
            limit = ASKERS.get(api, 1) * (per_second if second < 2 or api != fault.api else 3)
            if count > limit:
                yield f"{about}: {count} {api} in second {second}, {limit} allowed"
        if simulation.rounds[second] > 100:
            yield f"{about}: {simulation.rounds[second]} rounds in second {second}"


@pytest.mark.parametrize(("protocol", "api"), [(protocol, api) for protocol in CASES for api in CASES[protocol]])
def test_requests_are_bounded(protocol: str, api: str) -> None:
    """With any error in every answer of this API a second has at most 1000 / retry_backoff_ms requests of each kind,
    and soon only a few of this one."""
    options = {"retry_backoff_ms": RETRY_BACKOFF_MS, "retry_backoff_max_ms": 1000, **PROTOCOLS[protocol]}
    found = []
    for fault in faults(api, CASES[protocol][api]):
        found += complaints(fault, Simulation(fault, **options).run(SECONDS))
    assert [] == found


def test_every_api_of_the_managers_is_covered() -> None:
    """Each request that the simulated broker can answer is sent by one of the consumers."""
    assert set(ANSWERS) == set().union(*CASES.values())


def test_a_flood_would_be_noticed() -> None:
    """A consumer with shorter backoffs breaks the bounds."""
    fault = Fault("OffsetFetch", 1, 30)
    simulation = Simulation(fault, retry_backoff_ms=10, retry_backoff_max_ms=10, **PROTOCOLS["consumer"]).run(SECONDS)
    assert list(complaints(fault, simulation))


def test_a_backoff_lasts() -> None:
    """After thousands of failures, which take less than an hour, the longest pause remains."""
    backoff = Backoff(100, 1000)
    for _ in range(5000):
        backoff.failed(0.0)
        assert 80 <= backoff.remaining_ms(0.0) <= 1000
