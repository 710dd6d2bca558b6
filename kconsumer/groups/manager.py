"""Questions about groups, asked from outside: which there are, who is in them, how far they are.

Decides which broker is asked, what is asked again until the deadline, and by which of three requests a group can be
described: nobody but its coordinator knows of which kind it is. Answers are read in `group_answers.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kconsumer.backoff import ExponentialBackoff, RetryTimer
from kconsumer.config.option_groups import RetryConfig
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.error_codes import Errors
from kconsumer.errors import BrokerError, CoordinatorError, KafkaError, UnsupportedVersionError, error_for
from kconsumer.groups.responses import (
    MIN_VERSION_STATES,
    MIN_VERSION_TYPES,
    GroupPosition,
    parse_classic,
    parse_committed,
    parse_consumer,
    parse_listing,
    parse_share,
    parse_share_offsets,
)
from kconsumer.groups.types import GroupDescription, GroupListing
from kconsumer.managers import FOREVER, PendingCall, PollResult, Promise, Reply, UnsentRequest
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    LIST_GROUPS,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
)
from kconsumer.schema.admin import ConsumerGroupDescribeRequest, DescribeGroupsRequest, ListGroupsRequest
from kconsumer.schema.dsl import Api
from kconsumer.schema.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from kconsumer.schema.share_group import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from kconsumer.types import TopicPartition

T = TypeVar("T")
Positions = dict[TopicPartition, GroupPosition]


class GroupQuery(NamedTuple):
    """A kind of question about one group: the request, and how its answer reads."""

    api: Api
    message: Callable[[str], Any]
    read: Callable[[Reply], Any]
    min_version: int = 0
    max_version: int = 32767


# In the order in which they are tried when nobody said of which type the group is.
DESCRIPTIONS: dict[str, GroupQuery] = {
    "consumer": GroupQuery(
        CONSUMER_GROUP_DESCRIBE, lambda group: ConsumerGroupDescribeRequest(group_ids=[group]), parse_consumer
    ),
    "classic": GroupQuery(DESCRIBE_GROUPS, lambda group: DescribeGroupsRequest(groups=[group]), parse_classic),
    "share": GroupQuery(SHARE_GROUP_DESCRIBE, lambda group: ShareGroupDescribeRequest(group_ids=[group]), parse_share),
}
COMMITTED = GroupQuery(
    OFFSET_FETCH,
    lambda group: OffsetFetchRequest(
        group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
    ),
    parse_committed,
    min_version=2,  # null asks for all topics
    max_version=9,  # from 10 on topics go by id
)
SHARE_OFFSETS = GroupQuery(
    DESCRIBE_SHARE_GROUP_OFFSETS,
    lambda group: DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    ),
    parse_share_offsets,
)
POSITIONS = {"consumer": COMMITTED, "classic": COMMITTED, "share": SHARE_OFFSETS}


class GroupsManager:
    """Asks brokers and coordinators about groups; every question is a promise with a deadline (ms)."""

    def __init__(self, config: RetryConfig, metadata: MetadataManager, rng: random.Random | None = None) -> None:
        self._config = config
        self._metadata = metadata
        self._rng = rng
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._coordinators: dict[str, CoordinatorManager] = {}
        self._pending: list[PendingQuery[Any]] = []

    def list_groups(
        self, broker: int, states: Collection[str], types: Collection[str], deadline: float
    ) -> Promise[list[GroupListing]]:
        """The groups that this broker coordinates, of these states and types (empty: of all).

        Fails with UnsupportedVersionError when the broker cannot tell what was asked for.
        """
        message = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))
        floor = MIN_VERSION_TYPES if types else MIN_VERSION_STATES if states else 0
        ask = GroupQuery(LIST_GROUPS, lambda _: message, parse_listing, floor)
        return self._start(PendingQuery(ask, "", str(broker), deadline, RetryTimer(self._retry_backoff)))

    def describe(self, group: str, deadline: float, kind: str | None = None) -> Promise[GroupDescription]:
        """Who is in a group; `kind` is its type if that is known. Fails with GROUP_ID_NOT_FOUND if there is none."""
        promise: Promise[GroupDescription] = Promise()
        asks = list(DESCRIPTIONS.values()) if kind is None else [DESCRIPTIONS[kind]]
        self._describe(group, deadline, asks, promise)
        return promise

    def offsets(self, group: str, kind: str, deadline: float) -> Promise[Positions]:
        """How far a group of this type is in each partition that it has an offset of."""
        return self._start(PendingQuery(POSITIONS[kind], group, None, deadline, RetryTimer(self._retry_backoff)))

    def _describe(
        self, group: str, deadline: float, asks: list[GroupQuery], promise: Promise[GroupDescription]
    ) -> None:
        first, *others = asks

        def answered(done: Promise[GroupDescription]) -> None:
            if done.value is not None:
                promise.set_result(replace(done.value, coordinator=self._coordinators[group].coordinator))
            elif done.error is not None and _not_of_this_kind(done.error):
                if others:
                    self._describe(group, deadline, others, promise)
                else:
                    promise.set_exception(error_for(Errors.GROUP_ID_NOT_FOUND, f"group {group!r}"))
            elif done.error is not None:
                promise.set_exception(done.error)

        self._start(PendingQuery(first, group, None, deadline, RetryTimer(self._retry_backoff))).add_done_callback(
            answered
        )

    def _start(self, question: PendingQuery[T]) -> Promise[T]:
        if question.group and question.group not in self._coordinators:
            self._coordinators[question.group] = CoordinatorManager(self._config, question.group, self._rng)
        self._pending.append(question)
        return question.promise

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """What to send at `now` (ms)."""
        requests: list[UnsentRequest] = []
        waits = [self._poll_query(question, now, requests) for question in tuple(self._pending)]
        for coordinator in self._coordinators.values():
            lookup = coordinator.poll(now)
            requests += lookup.requests
            waits.append(lookup.wait_ms)
        self._pending = [question for question in self._pending if not question.promise.done]
        for group, coordinator in self._coordinators.items():
            coordinator.lookup_requested = any(question.group == group for question in self._pending)
        return PollResult(requests, min(waits, default=FOREVER))

    def _poll_query(self, question: PendingQuery[Any], now: float, requests: list[UnsentRequest]) -> float:
        if question.promise.done:
            return FOREVER
        coordinator = self._coordinators.get(question.group)
        trouble = None if coordinator is None else coordinator.take_error()
        if trouble is not None:
            question.promise.set_exception(trouble)
            return 0.0  # what waits for this promise may ask on
        if now >= question.deadline:
            question.report_timeout(coordinator)
            return 0.0
        wait = question.wait_ms(now)
        if wait > 0:
            return wait
        node = question.node
        if coordinator is not None:
            coordinator.lookup_requested = True
            if coordinator.coordinator is None:
                return question.deadline - now
            node = str(coordinator.coordinator.id)
        requests.append(self._request(question, node))
        return question.wait_ms(now)

    def _request(self, question: PendingQuery[Any], node: str | None) -> UnsentRequest:
        question.on_sent()
        ask = question.ask
        return UnsentRequest(
            ask.api,
            ask.message(question.group),
            lambda reply: self._on_reply(question, reply),
            node=node,
            min_version=ask.min_version,
            max_version=ask.max_version,
        )

    def _on_reply(self, question: PendingQuery[Any], reply: Reply) -> None:
        question.on_response()
        try:
            if reply.error is not None:
                raise reply.error
            question.promise.set_result(question.ask.read(reply))
        except KafkaError as error:
            if not error.retriable:
                question.promise.set_exception(error)
                return
            question.retry(error, reply.now)
            coordinator = self._coordinators.get(question.group)
            if coordinator is not None and (reply.error is not None or isinstance(error, CoordinatorError)):
                coordinator.mark_unknown(error, reply.now)
            if reply.error is not None:
                self._metadata.request_update()  # the broker may be gone, or be known by an old address


class PendingQuery(PendingCall[T]):
    """One question under way. `node` None: asked of the group's coordinator."""

    __slots__ = ("ask", "group", "node")

    def __init__(self, ask: GroupQuery, group: str, node: str | None, deadline: float, backoff: RetryTimer) -> None:
        super().__init__(deadline, backoff)
        self.ask = ask
        self.group = group
        self.node = node

    def report_timeout(self, coordinator: CoordinatorManager | None) -> None:
        """Fail with TimeoutError, caused by what was in the way."""
        about = f"of group {self.group!r} " if self.group else ""
        cause = None if coordinator is None else coordinator.last_error
        self.time_out(f"{self.ask.api.name} {about}was not answered within the timeout", cause)


def _not_of_this_kind(error: KafkaError) -> bool:
    """Whether the coordinator has no such group of the type asked for, or knows nothing of that type."""
    return isinstance(error, UnsupportedVersionError) or (
        isinstance(error, BrokerError) and error.code == Errors.GROUP_ID_NOT_FOUND
    )
