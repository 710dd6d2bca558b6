"""Every request of the metadata, coordinator and offsets managers can be encoded at each version that it allows."""

from __future__ import annotations

import re

import pytest

from kconsumer._core.codec import decode, encode
from kconsumer._internal.managers import UnsentRequest
from kconsumer.state.cluster import LeaderAndEpoch
from support.harnesses.manager_driver import config, tp, tps
from support.harnesses.offsets_case import OffsetsCase
from support.harnesses.wiring import group_of, make_components


def metadata_requests() -> list[UnsentRequest]:
    """Returns requests for some topics, no topics and all topics, and a lookup."""
    requests = []
    for setup in (
        lambda state: state.subscribe({"a", "b"}),
        lambda state: None,
        lambda state: state.subscribe_pattern(re.compile("a")),
    ):
        components = make_components()
        setup(components.subscription)
        manager = components.metadata
        manager.fetch(["x"])
        requests += manager.poll(0.0).requests
    return requests


def offsets_requests() -> list[UnsentRequest]:
    """Returns a reset, a validation and a user's lookup."""
    case = OffsetsCase("a-0", "a-1", isolation_level="read_committed")
    leader = LeaderAndEpoch(case.cluster.nodes[1], 3)
    case.positions.seek(tps("a-1")[0], 5, 2, leader)
    case.manager.list_offsets({tp("a-0"): -1})
    return case.asks(0.0)


def coordinator_requests() -> list[UnsentRequest]:
    """Returns a FindCoordinator request."""
    manager = group_of(make_components(config(group_id="g"))).coordinator
    manager.request_lookup()
    return manager.poll(0.0).requests


REQUESTS = [*metadata_requests(), *offsets_requests(), *coordinator_requests()]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.api.name)
def test_requests_encode(request_: UnsentRequest) -> None:
    """Every request is encoded at all its versions; at the newest one only fields of older forms are omitted."""
    api = request_.api
    versions = range(max(request_.min_version, api.min_version), api.max_version + 1)
    assert versions
    for version in versions:
        plan = api.request_plan(version)
        data = encode(plan, request_.message)
        assert data == encode(plan, decode(plan, data))


def test_all_kinds_are_covered() -> None:
    """The requests above contain each API that these managers use."""
    expected = {"Metadata", "ListOffsets", "OffsetForLeaderEpoch", "FindCoordinator"}
    assert expected == {request.api.name for request in REQUESTS}
