"""Finding the group coordinator: when requests are sent and the effect of each response."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    ProtocolError,
)
from kconsumer.schema.metadata import Coordinator, FindCoordinatorResponse
from kconsumer.types import Node
from support.harnesses.manager_driver import RETRY_MS, config, fail, respond
from support.harnesses.wiring import group_of, make_components

LOST = BrokerConnectionError("lost")


def found(node: int = 3, *, error: int = 0, key: str = "g", text: str | None = None) -> Any:
    """Returns a response of v4 or later."""
    row = Coordinator(key=key, node_id=node, host="h", port=9, error_code=error, error_message=text)
    return FindCoordinatorResponse(coordinators=[row])


def manager(**options: Any) -> CoordinatorManager:
    """Returns a manager that has to find its coordinator."""
    made = group_of(make_components(config(group_id="g", **options))).coordinator
    made.request_lookup()
    return made


def asks(case: CoordinatorManager, now: float) -> UnsentRequest:
    """Returns the one request sent at `now`."""
    requests = case.poll(now).requests
    assert 1 == len(requests)
    return requests[0]


def waits(case: CoordinatorManager, now: float) -> float:
    """Returns how long the manager waits at `now` (ms), and checks that it sends nothing."""
    result = case.poll(now)
    assert [] == result.requests
    return result.wait_ms


@pytest.mark.parametrize("version", [0, 3])
def test_responses_of_old_versions(version: int) -> None:
    """A response before v4 has one coordinator and no list."""
    case = manager()
    respond(asks(case, 0.0), FindCoordinatorResponse(node_id=2, host="h", port=9), 1.0, version)
    assert Node(2, "h", 9) == case.coordinator


def test_failures_back_off() -> None:
    """Lost requests and retriable errors double the wait, and nothing is raised."""
    case = manager()
    fail(asks(case, 0.0), LOST, 0.0)
    assert 100.0 == waits(case, 0.0)
    respond(asks(case, 100.0), found(error=15), 100.0)
    assert 200.0 == waits(case, 100.0)
    respond(asks(case, 300.0), found(error=14), 300.0)
    assert 400.0 == waits(case, 300.0)
    assert case.take_error() is None
    respond(asks(case, 700.0), found(), 700.0)
    case.mark_unknown("again", 900.0)
    fail(asks(case, 900.0), LOST, 900.0)
    assert 100.0 == waits(case, 900.0)


@pytest.mark.parametrize("code", [0, 15])
def test_the_error_of_a_login_is_forgotten_after_a_response(code: int) -> None:
    """After a later lookup has a response, whatever it says, the error of an earlier login is no longer raised."""
    case = manager()
    fail(asks(case, 0.0), AuthenticationError("wrong password"), 0.0)
    respond(asks(case, 10 * RETRY_MS), found(error=code), 10 * RETRY_MS)
    assert case.take_error() is None


def test_a_response_about_another_group_is_refused() -> None:
    """A response without the requested group is a protocol error."""
    case = manager()
    respond(asks(case, 0.0), found(key="other"), 0.0)
    assert isinstance(case.take_error(), ProtocolError)
    assert case.coordinator is None


def test_it_describes_itself() -> None:
    """Error messages contain the coordinator, or the reason why there is none."""
    case = manager()
    assert "unknown" == case.describe()
    case.mark_unknown("no response", 0.0)
    assert "unknown: no response" == case.describe()
    request = asks(case, 0.0)
    assert "<CoordinatorManager of g: unknown: no response, looking up>" == repr(case)
    respond(request, found(), 0.0)
    assert "<CoordinatorManager of g: h:9 (id 3)>" == repr(case)


def test_the_connection_to_a_lost_coordinator_is_closed_while_none_is_needed() -> None:
    """The connection is closed even while no coordinator is needed."""
    case = manager()
    respond(asks(case, 0.0), found(3), 1.0)
    case.request_lookup(False)
    case.mark_unknown("moved", 1000.0)
    assert ("+3", []) == (case.poll(1000.0).disconnect, case.poll(1000.0).requests)
