"""Handles ShareAcknowledge, with which a member acknowledges records without fetching others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kconsumer._common.error_codes import Errors
from kconsumer.schema import SHARE_ACKNOWLEDGE, Api
from kconsumer.schema.share_group import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kconsumer.testing.cluster.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kconsumer.testing.cluster.groups.group import GroupError
from kconsumer.testing.cluster.requests import Handler, Request
from kconsumer.testing.cluster.share.requests import AckResults, ShareRequests, session_key

if TYPE_CHECKING:
    from kconsumer.testing.cluster.share.sessions import ShareSession


class ShareAcknowledgeHandler:
    """Handles ShareAcknowledge."""

    def __init__(self, requests: ShareRequests) -> None:
        self._requests = requests

    def handlers(self) -> Mapping[Api, Handler]:
        """Returns the handler of the API."""
        return {SHARE_ACKNOWLEDGE: self._handle}

    def _handle(self, request: Request, now: float) -> ShareAcknowledgeResponse:
        message = request.message
        try:
            session = self._session(request)
        except GroupError as error:
            return ShareAcknowledgeResponse(error_code=error.error)
        results = self._requests.acknowledge(request, now)
        if message.share_session_epoch == FINAL_EPOCH:
            self._requests.end_session(session, now)
        return self._respond(message.group_id, results)

    def _session(self, request: Request) -> ShareSession:
        """Returns the session of a request. Raises GroupError if it is not valid."""
        message = request.message
        key = session_key(message)
        if message.share_session_epoch == INITIAL_EPOCH:
            raise GroupError(Errors.INVALID_SHARE_SESSION_EPOCH)
        return request.broker.share_sessions.advance(key, message.share_session_epoch)

    def _respond(self, group_id: str, results: AckResults) -> ShareAcknowledgeResponse:
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        leaders = []
        for key, (error, message) in results.items():
            row = ShareAcknowledgePartitionData(partition_index=key[1], error_code=error, error_message=message)
            if error == Errors.NOT_LEADER_OR_FOLLOWER:
                row.current_leader = self._requests.leader_of(key)
                leaders.append(row.current_leader)
            topics.setdefault(key[0], ShareAcknowledgeTopicResponse(topic_id=key[0])).partitions.append(row)
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._requests.lock_ms(group_id),
            responses=list(topics.values()),
            node_endpoints=self._requests.endpoints(leaders),
        )
