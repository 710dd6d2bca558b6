"""Sends the requests of a client that is not a member of the groups which it queries and changes.

Decides which broker receives a request and which errors are retried until the deadline. Each of the three types of
group has its own request for a description. If the type is unknown, they are tried one after the other.
`administration.py` has most other requests, and `responses.py` parses the responses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kconsumer._common.backoff import ExponentialBackoff, RetryTimer
from kconsumer._common.error_codes import Errors
from kconsumer._internal.managers import FOREVER, PendingCall, PollResult, Promise, Reply, UnsentRequest
from kconsumer.config.option_groups import RetryConfig
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.errors import BrokerError, CoordinatorError, KafkaError, UnsupportedVersionError, error_for
from kconsumer.groups.responses import parse_classic, parse_consumer, parse_share
from kconsumer.groups.types import GroupDescription
from kconsumer.metadata.manager import MetadataManager
from kconsumer.schema.admin import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
)
from kconsumer.schema.dsl import Api
from kconsumer.schema.share_group import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest

T = TypeVar("T")


class QueryKind(NamedTuple):
    """A kind of query or change: how to create the request, and how to parse the response."""

    api: Api
    message: Callable[[str], Any]  # returns the request for a group id
    parse: Callable[[Reply], Any]  # returns the result, or raises the error of the response
    min_version: int = 0
    max_version: int = 32767
    needs: str = ""  # what needs `min_version`
    final_codes: Collection[int] = ()  # error codes after which the request is not retried, although they are retriable


# The requests that describe a group, by type of group. If the type is unknown, they are tried in this order.
DESCRIPTIONS: dict[str, QueryKind] = {
    "consumer": QueryKind(
        CONSUMER_GROUP_DESCRIBE, lambda group: ConsumerGroupDescribeRequest(group_ids=[group]), parse_consumer
    ),
    "classic": QueryKind(DESCRIBE_GROUPS, lambda group: DescribeGroupsRequest(groups=[group]), parse_classic),
    "share": QueryKind(SHARE_GROUP_DESCRIBE, lambda group: ShareGroupDescribeRequest(group_ids=[group]), parse_share),
}


class GroupsManager:
    """Queries brokers and coordinators about groups, and requests changes of groups.

    Every query or change returns a promise and has a deadline (ms).
    """

    def __init__(self, config: RetryConfig, metadata: MetadataManager, rng: random.Random | None = None) -> None:
        self._config = config
        self._metadata = metadata
        self._rng = rng
        self._retry_backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        self._coordinators: dict[str, CoordinatorManager] = {}
        self._pending: list[PendingQuery[Any]] = []

    def describe(self, group: str, deadline: float, kind: str | None = None) -> Promise[GroupDescription]:
        """Request a group and its members. Returns a promise.

        `kind` is the type of the group, or None if it is unknown. If the group does not exist, the promise fails with
        an error whose code is GROUP_ID_NOT_FOUND.
        """
        promise: Promise[GroupDescription] = Promise()
        kinds = list(DESCRIPTIONS.values()) if kind is None else [DESCRIPTIONS[kind]]
        self._describe(group, deadline, kinds, promise)
        return promise

    def request(self, kind: QueryKind, deadline: float, group: str = "", node: int | None = None) -> Promise[Any]:
        """Send a request of any kind. Returns a promise.

        It is sent to the coordinator of `group`, or to the broker `node`, or to any broker if neither is given.
        """
        broker = None if node is None else str(node)
        return self._start(PendingQuery(kind, group, broker, deadline, RetryTimer(self._retry_backoff)))

    def _describe(
        self, group: str, deadline: float, kinds: list[QueryKind], promise: Promise[GroupDescription]
    ) -> None:
        first, *remaining = kinds

        def on_done(done: Promise[GroupDescription]) -> None:
            if done.value is not None:
                promise.set_result(replace(done.value, coordinator=self._coordinators[group].coordinator))
            elif done.error is not None and _is_other_type(done.error):
                if remaining:
                    self._describe(group, deadline, remaining, promise)
                else:
                    promise.set_exception(error_for(Errors.GROUP_ID_NOT_FOUND, f"group {group!r}"))
            elif done.error is not None:
                promise.set_exception(done.error)

        query: PendingQuery[GroupDescription]
        query = PendingQuery(first, group, None, deadline, RetryTimer(self._retry_backoff), caller=promise)
        self._start(query).add_done_callback(on_done)

    def _start(self, query: PendingQuery[T]) -> Promise[T]:
        if query.group and query.group not in self._coordinators:
            self._coordinators[query.group] = CoordinatorManager(self._config, query.group, self._rng)
        self._pending.append(query)
        return query.promise

    # --- driving ---------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> PollResult:
        """Returns the requests to send at `now` (ms)."""
        requests: list[UnsentRequest] = []
        waits = [self._poll_query(query, now, requests) for query in tuple(self._pending)]
        for coordinator in self._coordinators.values():
            lookup = coordinator.poll(now)
            requests += lookup.requests
            waits.append(lookup.wait_ms)
        self._pending = [query for query in self._pending if not query.promise.done]
        for group, coordinator in self._coordinators.items():
            coordinator.request_lookup(any(query.group == group for query in self._pending))
        return PollResult(requests, min(waits, default=FOREVER))

    def _poll_query(self, query: PendingQuery[Any], now: float, requests: list[UnsentRequest]) -> float:
        if query.promise.done:
            return FOREVER
        coordinator = self._coordinators.get(query.group)
        if coordinator is not None:
            query.attempt_failed(coordinator.last_error)
            error = coordinator.take_error()
            if error is not None:
                query.promise.set_exception(error)
                return 0.0  # the caller of this promise may start another query
        if now >= query.deadline:
            query.report_timeout()
            return 0.0
        wait = query.wait_ms(now)
        if wait > 0:
            return wait
        node = query.node
        if coordinator is not None:
            coordinator.request_lookup()
            if coordinator.coordinator is None:
                return query.deadline - now
            node = str(coordinator.coordinator.id)
        requests.append(self._request(query, node))
        return query.wait_ms(now)

    def _request(self, query: PendingQuery[Any], node: str | None) -> UnsentRequest:
        query.on_sent()
        kind = query.kind
        return UnsentRequest(
            kind.api,
            kind.message(query.group),
            lambda reply: self._on_reply(query, reply),
            node=node,
            min_version=kind.min_version,
            needs=kind.needs,
            max_version=kind.max_version,
        )

    def _on_reply(self, query: PendingQuery[Any], reply: Reply) -> None:
        query.on_response()
        try:
            if reply.error is not None:
                raise reply.error
            query.promise.set_result(query.kind.parse(reply))
        except KafkaError as error:
            if not error.retriable or (isinstance(error, BrokerError) and error.code in query.kind.final_codes):
                query.promise.set_exception(error)
                return
            query.retry(error, reply.now)
            query.attempt_failed(error)
            coordinator = self._coordinators.get(query.group)
            if coordinator is not None and (reply.error is not None or isinstance(error, CoordinatorError)):
                coordinator.mark_unknown(error, reply.now)
            if reply.error is not None:
                self._metadata.request_update()  # the broker may have been removed or have another address


class PendingQuery(PendingCall[T]):
    """A query or change without a result.

    It is sent to the broker `node`, or to the group's coordinator if `node` is None. Without a
    group, any broker receives it.
    """

    __slots__ = ("_caller", "group", "kind", "node")

    def __init__(
        self,
        kind: QueryKind,
        group: str,
        node: str | None,
        deadline: float,
        backoff: RetryTimer,
        caller: Promise[Any] | None = None,
    ) -> None:
        super().__init__(deadline, backoff)
        self._caller = caller or self.promise  # what the user's call waits for; it may need several queries
        self.kind = kind
        self.group = group
        self.node = node

    def attempt_failed(self, error: KafkaError | None) -> None:
        """Store the last error of the query, or of the lookup of its coordinator, for the call that waits for it."""
        self.promise.attempt_failed(error)
        self._caller.attempt_failed(error)

    def report_timeout(self) -> None:
        """Fail the promise with TimeoutError, whose cause is the last error."""
        of_group = f"of group {self.group!r} " if self.group else ""
        self.time_out(f"{self.kind.api.name} {of_group}received no response within the timeout")


def _is_other_type(error: KafkaError) -> bool:
    """Returns True if the error means that the group may be of another type.

    The coordinator then has no group of this name and type, or does not support the type.
    """
    return isinstance(error, UnsupportedVersionError) or (
        isinstance(error, BrokerError) and error.code == Errors.GROUP_ID_NOT_FOUND
    )
