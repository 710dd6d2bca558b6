"""When metadata is requested, for which topics, and the effect of responses and failures."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kconsumer._internal.managers import UnsentRequest
from kconsumer.errors import (
    AuthenticationError,
    BrokerConnectionError,
    KafkaError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from support.harnesses.manager_driver import (
    MAX_AGE_MS,
    RETRY_MS,
    TRIGGER_MS,
    ManagerCase,
    config,
    fail,
    led_by,
    metadata,
    partition,
    respond,
    topic,
    tp,
    tps,
)
from support.harnesses.wiring import make_components

GOOD = led_by({"a-0": 1})
LOST = BrokerConnectionError("lost")


class Case(ManagerCase):
    """A manager and its dependencies, driven by the test."""

    def __init__(self, *topics: str, **options: Any) -> None:
        components = make_components(config(**options))
        self.cluster, self.subscription = components.cluster, components.subscription
        self.manager = components.metadata
        if topics:
            self.subscription.subscribe(topics)

    def update(self, now: float, message: Any = GOOD) -> None:
        """Send a request and respond to it at `now`."""
        respond(self.ask(now), message, now)


def asked(request: UnsentRequest) -> list[str] | None:
    """Returns the topic names of a request; None for all topics."""
    return None if request.message.topics is None else [row.name for row in request.message.topics]


# --- what is asked -----------------------------------------------------------------------------------------------


def test_a_pattern_keeps_only_what_matches() -> None:
    """Topics that do not match, and internal topics unless included, are not cached."""
    names = (topic("ab", partition(0)), topic("b", partition(0)), topic("a__", partition(0), internal=True))
    for exclude, kept in ((True, {"ab"}), (False, {"ab", "a__"})):
        case = Case(exclude_internal_topics=exclude)
        case.subscription.subscribe_pattern(re.compile("a.*"))
        case.update(0.0, metadata(*names))
        assert kept == case.cluster.topics()


# --- when ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message", [metadata(nodes=()), metadata(error=129), metadata(error=-1)], ids=["no brokers", "rebootstrap", "other"]
)
def test_unusable_responses_count_as_failures(message: Any) -> None:
    """A response without brokers, or with an error of its own, changes nothing and backs off."""
    case = Case("a")
    case.update(0.0, message)
    assert 0 == case.cluster.update_version
    assert RETRY_MS == case.waits(0.0)


def test_a_short_maximum_age_leaves_time_for_requests_by_id() -> None:
    """Although metadata has expired at each request, every second one asks for the topic whose name is unknown."""
    case = Case("a", metadata_max_age_ms=1)
    case.manager.add_topic_ids(frozenset({b"i" * 16}))
    found = []
    for turn in range(4):
        request = case.ask(turn * 10_000.0)
        found.append(asked(request) if request.message.topics[0].name else request.message.topics[0].topic_id)
        respond(request, GOOD, turn * 10_000.0)
    assert [["a"], b"i" * 16, ["a"], b"i" * 16] == found


# --- new topics ----------------------------------------------------------------------------------------------------


def test_a_pattern_during_a_request_is_not_lost() -> None:
    """After the response to an older request for other topics all topics are requested."""
    case = Case()
    request = case.ask(0.0)
    case.subscription.subscribe_pattern(re.compile("a"))
    case.waits(1.0)
    respond(request, metadata(), 2.0)
    assert asked(case.ask(2.0 + RETRY_MS)) is None


def test_watched_topics_are_wanted_until_unwatched() -> None:
    """A lookup of offsets needs the leaders of topics that are not subscribed."""
    case = Case("a")
    case.update(0.0)
    case.manager.add_topics({"b"})
    case.manager.add_topics({"b"})
    case.update(1.0, led_by({"b-0": 1}))
    case.manager.remove_topics({"b"})
    assert ["a", "b"] == asked(case.ask(MAX_AGE_MS))
    case = Case("a")
    case.manager.add_topics({"b"})
    case.manager.remove_topics({"b"})
    assert ["a"] == asked(case.ask(0.0))


def test_refresh_needs_a_response_to_a_later_request() -> None:
    """A group leader needs a response to a request that is sent after its call; a response to an earlier request does
    not count.
    """
    case = Case("a")
    first = case.ask(0.0)
    promise = case.manager.refresh()
    respond(first, GOOD, 1.0)
    assert not promise.done
    second = case.ask(1.0 + RETRY_MS)
    respond(second, GOOD, 200.0)
    assert promise.done
    assert MAX_AGE_MS == case.waits(200.0)


def test_refresh_survives_failures() -> None:
    """A refresh waits until a response arrives."""
    case = Case("a")
    promise = case.manager.refresh()
    fail(case.ask(0.0), LOST, 0.0)
    assert not promise.done
    case.update(100.0)
    assert promise.done


# --- errors --------------------------------------------------------------------------------------------------------


def test_refused_topics_come_first() -> None:
    """If there are both kinds of errors the missing permission is raised, as in Java."""
    case = Case("a", "b")
    case.update(0.0, metadata(topic("a", error=17), topic("b", error=29)))
    assert isinstance(case.manager.take_error(), TopicAuthorizationError)
    assert case.manager.take_error() is None


@pytest.mark.parametrize(("code", "pause_ms"), [(29, 3000.0), (38, 3000.0), (17, MAX_AGE_MS)])
def test_a_topic_with_an_error_is_requested_again_soon(code: int, pause_ms: float) -> None:
    """A permission that is granted is noticed after 3 s; an illegal name stays illegal."""
    case = Case("a", metadata_recovery_strategy="none")
    case.update(0.0, metadata(topic("a", error=code)))
    assert pause_ms == case.waits(0.0)
    case.update(pause_ms)
    assert MAX_AGE_MS == case.waits(pause_ms)


def test_a_partition_without_a_leader_is_a_wait() -> None:
    """The error code of an assigned partition that has no leader is the reason why the consumer waits."""
    case = Case()
    case.subscription.assign(tps("a-0", "a-1"))
    case.update(0.0, metadata(topic("a", partition(0), partition(1, -1, error=5), partition(2, -1, error=9))))
    assert case.manager.progress.last_error is not None
    assert "leader of a-1: LEADER_NOT_AVAILABLE" in str(case.manager.progress.last_error)
    case.update(RETRY_MS, led_by({"a-0": 1, "a-1": 1}))
    assert case.manager.progress.status is None


def test_an_older_leader_epoch_is_a_wait() -> None:
    """A topic that comes back with an older leader epoch has no leader; the reason names both epochs."""
    case = Case()
    case.subscription.assign(tps("a-0"))
    for at, response in enumerate((led_by({"a-0": 1}, 5), metadata(topic("a", error=3)), led_by({"a-0": 1}, 4))):
        case.manager.request_update()
        case.update(5000.0 * at, response)
    assert "metadata has leader epoch 4 of a-0, but 5 was seen before" in str(case.manager.progress.last_error)


def test_an_unknown_topic_is_no_error() -> None:
    """A topic that does not exist is requested again, and its name is available for partition states."""
    case = Case("a", "b")
    case.update(0.0, metadata(topic("a", error=3), topic("b", partition(0))))
    assert case.manager.take_error() is None
    assert ({"a"}, "topic a does not exist") == (
        case.manager.topic_errors.unknown_topics(),
        case.manager.topic_errors.topic_problem("a"),
    )
    assert "" == case.manager.topic_errors.topic_problem("b")
    assert RETRY_MS == case.waits(0.0)
    case.update(RETRY_MS, led_by({"a-0": 1, "b-0": 1}))
    assert frozenset() == case.manager.topic_errors.unknown_topics()


def test_another_cluster_behind_the_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A warning says that the cluster id has changed; it is not repeated."""
    case = Case("a")
    case.update(0.0)
    other = led_by({"a-0": 1})
    other.cluster_id = "d"
    for at in (1.0, 2.0):
        case.manager.request_update(new_interest=True)
        case.update(at * 1000.0, other)
    assert ["the cluster id has changed from c to d"] == [text.split(":")[0] for text in caplog.messages]


@pytest.mark.parametrize("error", [AuthenticationError(code=58), UnsupportedVersionError("too old")])
def test_errors_that_do_not_pass_are_raised(error: KafkaError) -> None:
    """A failed authentication or an unsupported version is raised to the user, and the request is repeated after the
    backoff.
    """
    case = Case("a")
    fail(case.ask(0.0), error, 0.0)
    assert (error, None) == (case.manager.take_error(), case.manager.take_error())
    assert RETRY_MS == case.waits(0.0)


# --- bootstrapping again -----------------------------------------------------------------------------------------


def test_no_available_broker_leads_to_a_rebootstrap() -> None:
    """When every known broker is in backoff, a rebootstrap is requested from the engine (KIP-899)."""
    case = Case("a")
    case.update(0.0)
    case.manager.on_no_node(1.0)
    assert case.manager.needs_rebootstrap
    case.manager.rebootstrapped()
    assert ({}, False) == (case.cluster.nodes, case.manager.needs_rebootstrap)
    assert ["a"] == asked(case.ask(2.0))


def test_no_response_leads_to_a_rebootstrap() -> None:
    """If no response arrives for the trigger time after an update was due, a rebootstrap is requested."""
    case = Case("a")
    case.update(0.0)
    case.manager.request_update()
    assert RETRY_MS == case.waits(5.0) + 5.0
    request, now = case.ask(RETRY_MS), RETRY_MS
    while not case.manager.needs_rebootstrap and now < TRIGGER_MS + 5.0:
        now += case.waits(now)
    assert not case.manager.needs_rebootstrap
    case.waits(TRIGGER_MS + 5.0)
    assert case.manager.needs_rebootstrap
    case.manager.rebootstrapped()
    respond(request, GOOD, TRIGGER_MS + 6.0)
    assert frozenset() == case.cluster.topics()
    case.update(TRIGGER_MS + 7.0)
    assert {"a"} == case.cluster.topics()


def test_an_absent_application_leads_to_no_rebootstrap() -> None:
    """Time without a poll is no evidence against the brokers: the response may have arrived, in several parts."""
    case = Case("a")
    case.update(0.0)
    case.manager.request_update()
    request, back = case.ask(RETRY_MS), 10.0 * TRIGGER_MS
    for now in (back, back + 50.0):
        case.waits(now)
    assert not case.manager.needs_rebootstrap
    respond(request, GOOD, back + 60.0)
    assert {"a"} == case.cluster.topics()


def test_repr_shows_what_is_needed() -> None:
    """The repr has what is due and whether a request is in flight."""
    case = Case("a")
    assert "<MetadataManager needs full, idle>" == repr(case.manager)
    case.ask(0.0)
    assert "<MetadataManager needs full, in flight>" == repr(case.manager)


def test_a_partition_that_does_not_exist_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """An assigned partition that its topic lacks is logged once, and again only after it existed."""
    case = Case()
    case.subscription.assign(tps("a-0", "a-7"))
    for now in (0.0, 1000.0):
        case.manager.request_update()
        case.update(now, led_by({"a-0": 1, "a-1": 1}))
    expected = "topic a has 2 partitions (0 to 1), there is no a-7; metadata is requested again from time to time"
    assert [expected] == [record.getMessage() for record in caplog.records]
    assert expected.startswith(case.manager.topic_errors.problem_with(tp("a-7")))
    assert "" == case.manager.topic_errors.problem_with(tp("a-0"))
    case.manager.request_update()
    case.update(2000.0, led_by({f"a-{index}": 1 for index in range(8)}))
    assert "" == case.manager.topic_errors.problem_with(tp("a-7"))
    case.manager.request_update()
    case.update(5000.0, led_by({"a-0": 1}))
    assert "topic a has 1 partition (0), there is no a-7" in caplog.records[1].getMessage()
    assert 2 == len(caplog.records)


def test_a_partition_with_an_old_leader_epoch_exists() -> None:
    """A partition whose leader epoch in a response is older than the cached one is ignored, but is not reported as
    missing.
    """
    case = Case("a")
    case.update(0.0, led_by({"a-0": 1, "a-1": 1}, 5))
    case.manager.request_update()
    case.update(1000.0, metadata(topic("a", error=3)))
    case.manager.request_update()
    case.update(2000.0, led_by({"a-0": 1, "a-1": 1}, 4))
    assert 0 == case.cluster.partition_count("a")
    assert "" == case.manager.topic_errors.problem_with(tp("a-1"))
