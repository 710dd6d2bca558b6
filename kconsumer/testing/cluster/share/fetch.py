"""Handles ShareFetch: acknowledges records, and acquires others, for which it may wait."""

from __future__ import annotations

from typing import Any

from kconsumer._common.error_codes import Errors
from kconsumer.schema.share_group import (
    SHARE_FETCH,
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
)
from kconsumer.testing.cluster.delayed import Delayed, Source
from kconsumer.testing.cluster.fetch_reads import PartitionError
from kconsumer.testing.cluster.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kconsumer.testing.cluster.requests import GroupError, Pending, Request, handles
from kconsumer.testing.cluster.share.acquisition import Acquired, Acquisition, Limits
from kconsumer.testing.cluster.share.partition import SharePartition
from kconsumer.testing.cluster.share.partitions import SharePartitions
from kconsumer.testing.cluster.share.requests import AckResults, ShareRequests, partition_rows, session_key
from kconsumer.testing.cluster.share.sessions import ShareSession
from kconsumer.testing.cluster.share_states import TopicIdPartition
from kconsumer.testing.cluster.state import ClusterState
from kconsumer.testing.cluster.stored_batch import StoredBatch, split_batches

RECORD_LIMIT = 1  # the acquire mode in which `max_records` is exact
_OVERHEAD = 12  # bytes of a batch that its size does not count


class ShareReader:
    """Reads share partitions for one request, in turn, until its limits are reached."""

    def __init__(self, request: Request) -> None:
        message = request.message
        self.min_bytes, self.max_bytes = message.min_bytes, message.max_bytes
        self._member_id = message.member_id
        exact = request.version >= 2 and message.share_acquire_mode == RECORD_LIMIT
        self._limits = Limits(message.max_records, message.batch_size, exact)

    def can_complete(self, shares: list[SharePartition]) -> bool:
        """Returns whether `min_bytes` can be read from share partitions, or one begins before its log."""
        ready = [share for share in shares if share.can_acquire()]
        total = 0
        for share in ready:
            log, offset = share.partition.log, share.next_fetch_offset()
            if offset < log.start:
                return True
            end = _end_offset(share)
            if offset >= end:
                continue
            (segment, start), (last_segment, stop) = log.position(offset), log.position(end)
            total += stop - start if segment == last_segment else self.min_bytes
        return bool(ready) and total >= self.min_bytes

    def read_all(self, shares: list[SharePartition], now: float) -> dict[SharePartition, ShareFetchPartitionData]:
        """Acquire records of those share partitions that have some. Returns their rows in the response.

        Those whose records were read before, and were not acquired, come first. Brokers remember where they are.
        """
        ready = [share for share in shares if share.can_acquire()]
        ready.sort(key=lambda share: share.read_offset != share.next_fetch_offset())
        limit = self.max_bytes // len(ready) if ready else 0
        left, min_one, acquired = self.max_bytes, True, 0
        rows = {}
        for share in ready:
            log, offset = share.partition.log, share.next_fetch_offset()
            share.read_offset = offset
            row = rows[share] = ShareFetchPartitionData(partition_index=share.partition.index, records=b"")
            if offset < log.start:
                share.follow_log_start(log.start)
                continue
            end = _end_offset(share)
            if offset >= end:
                continue
            read = log.read(offset, min(limit, left), end, min_one=min_one)
            left, min_one = max(0, left - len(read.data)), min_one and not read.data
            limits = self._limits._replace(max_records=self._limits.max_records - acquired)
            batches = split_batches(_whole(read.data))
            aborted = [
                (ended.producer_id, ended.first_offset) for ended in log.aborted_between(offset, read.upper_bound)
            ]
            found = Acquisition(share, self._member_id, limits, batches, offset, now).run(
                aborted if share.read_committed else ()
            )
            if found:
                row.records = _slice(read.data, batches, found)
                row.acquired_records = [
                    AcquiredRecords(first_offset=r.first, last_offset=r.last, delivery_count=r.deliveries)
                    for r in found
                ]
                acquired += sum(range_.last - range_.first + 1 for range_ in found)
        return rows


def _end_offset(share: SharePartition) -> int:
    log = share.partition.log
    return log.last_stable_offset if share.read_committed else log.high_watermark


def _whole(data: bytes) -> bytes:
    """Returns the whole batches at the beginning of `data`, without an incomplete one at its end."""
    at = 0
    while at + _OVERHEAD <= len(data):
        size = _OVERHEAD + int.from_bytes(data[at + 8 : at + _OVERHEAD])
        if at + size > len(data):
            break
        at += size
    return data[:at]


def _slice(data: bytes, batches: list[StoredBatch], acquired: list[Acquired]) -> bytes:
    """Returns the bytes of the batches with acquired records.

    As on a broker, the result is all of `data` if it has only one whole batch, even if an incomplete one follows.
    """
    if len(batches) == 1:
        return data
    first, last = acquired[0].first, acquired[-1].last
    return b"".join(batch.data for batch in batches if batch.last_offset >= first and batch.base_offset <= last)


Rows = dict[TopicIdPartition, ShareFetchPartitionData]


class ShareFetchHandler:
    """Handles ShareFetch."""

    def __init__(self, cluster: ClusterState, requests: ShareRequests, partitions: SharePartitions) -> None:
        self._cluster, self._requests, self._partitions = cluster, requests, partitions

    @handles(SHARE_FETCH)
    def _handle(self, request: Request, now: float) -> ShareFetchResponse | Pending:
        message = request.message
        try:
            _check(request)
            session = self._session(request)
        except GroupError as error:
            return ShareFetchResponse(error_code=error.error)
        results = self._requests.acknowledge(request, now)
        if message.share_session_epoch == FINAL_EPOCH:
            self._requests.end_session(session, now)
            return self._respond(request, None, {}, results)
        if message.max_records == 0 or message.max_bytes == 0 or not session.partitions:
            return self._respond(request, session, {}, results)
        return self._fetch(request, session, results, now)

    def _session(self, request: Request) -> ShareSession:
        """Returns the session of a request, which may begin with it. Raises GroupError if it is not valid."""
        message, sessions = request.message, self._requests.sessions[request.broker.id]
        key = session_key(message)
        asked = [key for key, _ in partition_rows(message)]
        if message.share_session_epoch == INITIAL_EPOCH:
            if any(row.acknowledgement_batches for _, row in partition_rows(message)):
                raise GroupError(Errors.INVALID_REQUEST)
            return sessions.open(key, request.connection, asked)
        session = sessions.advance(key, message.share_session_epoch)
        if message.share_session_epoch != FINAL_EPOCH:
            forgotten = [(row.topic_id, index) for row in message.forgotten_topics_data for index in row.partitions]
            session.update(asked, forgotten)
        return session

    def _fetch(
        self, request: Request, session: ShareSession, results: AckResults, now: float
    ) -> ShareFetchResponse | Pending:
        """Returns the response with acquired records, or a pending one if there are none yet."""
        errors, shares = self._find(request, session, now)
        reader = ShareReader(request)
        max_wait_ms = request.message.max_wait_ms
        if not shares or max_wait_ms <= 0 or reader.can_complete(list(shares.values())):
            return self._respond(request, session, errors | self._read(reader, shares, now), results)
        pending = Pending(request)

        def complete(at: float) -> None:
            rows = errors | self._read(reader, shares, at)
            pending.complete(self._respond(request, session, rows, results), at)

        def can_complete() -> bool:
            return reader.can_complete(self._present(request, shares))

        sources: list[Source] = [source for share in shares.values() for source in (share, share.partition.log)]
        Delayed(self._cluster.timers, pending, sources, can_complete, complete).start(now, max_wait_ms)
        return pending

    def _find(
        self, request: Request, session: ShareSession, now: float
    ) -> tuple[Rows, dict[TopicIdPartition, SharePartition]]:
        """Returns the share partitions of a session, and the error rows of those that cannot be read."""
        errors: Rows = {}
        shares: dict[TopicIdPartition, SharePartition] = {}
        for key in session.read_order(request.message.share_session_epoch):
            code = self._requests.topic_error(request, key)
            if not code:
                try:
                    shares[key] = self._partitions.require(request.broker, session.key[0], *key, now)
                    continue
                except PartitionError as error:
                    code = error.code
            errors[key] = ShareFetchPartitionData(partition_index=key[1], error_code=code, records=b"")
        return errors, shares

    def _present(self, request: Request, shares: dict[TopicIdPartition, SharePartition]) -> list[SharePartition]:
        """Returns the share partitions that the broker still leads."""
        group_id = request.message.group_id
        return [share for key, share in shares.items() if self._partitions.get(request.broker, group_id, *key) is share]

    def _read(self, reader: ShareReader, shares: dict[TopicIdPartition, SharePartition], now: float) -> Rows:
        """Returns the rows of the share partitions from which records can be acquired."""
        present = [share for share in shares.values() if share.leader_epoch == share.partition.leader_epoch]
        return {
            (share.partition.topic.id, share.partition.index): row
            for share, row in reader.read_all(present, now).items()
        }

    # --- responses ---

    def _respond(
        self, request: Request, session: ShareSession | None, rows: Rows, results: AckResults
    ) -> ShareFetchResponse:
        """Returns a response with rows, and with the results of acknowledgements.

        A response in a session that began earlier leaves out rows without records and errors.
        """
        epoch = request.message.share_session_epoch
        if session is not None and epoch != INITIAL_EPOCH:
            rows = {
                key: row
                for key, row in rows.items()
                if session.must_report(key, changed=bool(row.records), failed=bool(row.error_code))
            }
        for key, (error, message) in results.items():
            row = rows.setdefault(key, ShareFetchPartitionData(partition_index=key[1], records=b""))
            row.acknowledge_error_code, row.acknowledge_error_message = error, message
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        leaders = []
        for key, row in rows.items():
            if Errors.NOT_LEADER_OR_FOLLOWER in (row.error_code, row.acknowledge_error_code):
                row.current_leader = self._requests.leader_of(key)
                leaders.append(row.current_leader)
            topics.setdefault(key[0], ShareFetchableTopicResponse(topic_id=key[0])).partitions.append(row)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._requests.lock_ms(request.message.group_id),
            responses=list(topics.values()),
            node_endpoints=self._requests.endpoints(leaders),
        )


def _check(request: Request) -> None:
    """Raise GroupError if the acquire mode is unknown, or if a request that renews locks also fetches records."""
    message: Any = request.message
    if request.version < 2:
        return
    if message.share_acquire_mode not in (0, RECORD_LIMIT):
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR)
    fetches = message.max_wait_ms or message.min_bytes or message.max_bytes or message.max_records
    if message.is_renew_ack and fetches:
        raise GroupError(Errors.INVALID_REQUEST)
