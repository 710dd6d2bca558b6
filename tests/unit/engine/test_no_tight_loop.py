"""No manager sends requests without a pause while brokers name each other as the leader, and no call of
kconsumer.groups does; test_nothing_is_silent.py has the errors of a single broker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._internal.managers import Reply
from kconsumer.groups.administration import POSITIONS, group_listing
from kconsumer.groups.manager import GroupsManager
from kconsumer.schema.admin import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kconsumer.schema.offsets import OffsetFetchResponse, OffsetFetchResponseGroup
from kconsumer.schema.share_group import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    ShareGroupDescribeGroup,
    ShareGroupDescribeResponse,
)
from support.harnesses.error_faults import PROTOCOLS, RETRY_BACKOFF_MS, complaints, faults
from support.harnesses.share_simulation import ShareSimulation
from support.harnesses.simulation import RESPONSES, Fault, Redirects, Simulation, coded
from support.harnesses.wiring import make_groups_manager

SECONDS = 3
CASES = {protocol: Simulation(**options).run(SECONDS).depths for protocol, options in PROTOCOLS.items()}
# Only these requests differ when there is no subscription.
CASES["assigned"] = {api: CASES["assigned"][api] for api in ("OffsetFetch", "OffsetCommit")}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, because there are hundreds of failures."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


REDIRECTS = {
    "a replica": Redirects({1: 2}),
    "a replica, without a rack": Redirects({1: 2}, stubborn=True),
    "each other": Redirects({1: 2, 2: 1}),
    "each other, without a rack": Redirects({1: 2, 2: 1}, stubborn=True),
    "itself": Redirects({1: 1}, stubborn=True),
    "a replica, which names itself": Redirects({1: 2, 2: 2}, stubborn=True),
    "an unknown replica": Redirects({1: 3}, stubborn=True),
}


@pytest.mark.parametrize("redirects", REDIRECTS.values(), ids=REDIRECTS)
def test_fetches_are_bounded_when_a_leader_names_a_replica(redirects: Redirects) -> None:
    """If the leader names a replica to read from (KIP-392), and the replica refuses with any error, names another one
    or cannot be reached, no more fetches are sent than to two brokers with errors.
    """
    found = []
    for fault in [Fault("Fetch"), *faults("Fetch", CASES["classic"]["Fetch"])]:
        at_replica = fault._replace(broker=2)
        simulation = Simulation(at_replica, redirects=redirects, client_rack="rack", **PROTOCOLS["classic"]).run(
            SECONDS
        )
        found += complaints(at_replica, simulation, brokers=2)
    assert [] == found


@pytest.mark.parametrize(("protocol", "api"), [(protocol, api) for protocol in CASES for api in CASES[protocol]])
def test_requests_are_bounded_between_two_brokers(protocol: str, api: str) -> None:
    """The bound holds, too, if each response names another broker as the leader or the coordinator than the last.

    Then the backoff need not grow, because nothing is known against the new leader, and the first leaders that Fetch
    responses name are used at once.
    """
    found = []
    for fault in faults(api, CASES[protocol][api]):
        simulation = Simulation(fault, redirects=Redirects(alternating=True), **PROTOCOLS[protocol]).run(SECONDS)
        found += complaints(fault, simulation, brokers=2, growing=False, at_once=5)
    assert [] == found


def test_share_fetches_are_bounded_between_two_brokers() -> None:
    """A share consumer whose brokers name each other as the leader (KIP-951) sends each of them no more fetches than
    retries with a backoff allow.
    """
    depths = ShareSimulation().run(SECONDS).depths["ShareFetch"]
    found = []
    for fault in faults("ShareFetch", depths):
        simulation = ShareSimulation(fault, alternating=True).run(SECONDS)
        for second in range(SECONDS):
            count = simulation.requests(second)["ShareFetch"]
            if count > 2 * 1000 // RETRY_BACKOFF_MS:
                found.append(f"{fault}: {count} in second {second}")
    assert [] == found


GROUP_RESPONSES: dict[str, Callable[[], Any]] = {
    "ListGroups": ListGroupsResponse,
    "DescribeGroups": lambda: DescribeGroupsResponse(groups=[DescribedGroup(group_id="g")]),
    "ConsumerGroupDescribe": lambda: ConsumerGroupDescribeResponse(groups=[ConsumerGroupDescribeGroup(group_id="g")]),
    "ShareGroupDescribe": lambda: ShareGroupDescribeResponse(groups=[ShareGroupDescribeGroup(group_id="g")]),
    "OffsetFetch": lambda: OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g")]),
    "DescribeShareGroupOffsets": lambda: DescribeShareGroupOffsetsResponse(
        groups=[DescribeShareGroupOffsetsResponseGroup(group_id="g")]
    ),
}
CALLS: dict[str, Callable[[GroupsManager], Any]] = {
    "ListGroups": lambda groups: groups.request(group_listing((), ()), 60_000.0, node=1),
    "DescribeGroups": lambda groups: groups.describe("g", 60_000.0, "classic"),
    "ConsumerGroupDescribe": lambda groups: groups.describe("g", 60_000.0, "consumer"),
    "ShareGroupDescribe": lambda groups: groups.describe("g", 60_000.0, "share"),
    "OffsetFetch": lambda groups: groups.request(POSITIONS["classic"], 60_000.0, "g"),
    "DescribeShareGroupOffsets": lambda groups: groups.request(POSITIONS["share"], 60_000.0, "g"),
}


def requests_about_a_group(fault: Fault) -> Counter[int]:
    """Returns how many requests of the API one call sends in each second, if all responses have this fault."""
    groups = make_groups_manager()
    CALLS[fault.api](groups)
    now, sent = 0.0, Counter[int]()
    while now < 1000 * SECONDS:
        result = groups.poll(now)
        now += 1.0 if result.requests else min(max(result.wait_ms, 1.0), 1000.0)
        for request in result.requests:
            message, error = None, fault.error
            if request.api.name != fault.api:
                message, error = RESPONSES[request.api.name](request.message), None
            elif error is None:
                message = GROUP_RESPONSES[fault.api]()
                for _, part in coded(message):
                    part.error_code = fault.code
            sent[int(now // 1000)] += request.api.name == fault.api
            request.handler(Reply(message, error, now, min(request.api.max_version, request.max_version)))
    return sent


@pytest.mark.parametrize("api", CALLS)
def test_requests_about_groups_are_bounded(api: str) -> None:
    """A call of kconsumer.groups retries until its deadline, with growing pauses."""
    for fault in faults(api, {0}):
        sent = requests_about_a_group(fault)
        assert sent[0], fault
        assert sent[0] <= 1000 // RETRY_BACKOFF_MS, fault
        assert sent[2] <= 3, fault


def test_a_backoff_lasts() -> None:
    """The pause stays at its maximum after thousands of failures within an hour."""
    backoff = RetryTimer(ExponentialBackoff(100, 1000))
    for _ in range(5000):
        backoff.failed(0.0)
        assert 80 <= backoff.remaining_ms(0.0) <= 1000
