"""A cluster for tests of fetching: real state and managers on one side, partition logs that respond on the
other."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import KafkaError
from kconsumer.fetching.partition_status import explain
from kconsumer.fetching.session import FetchSession
from kconsumer.net.describe import broker_id
from kconsumer.schema.fetch import FetchableTopicResponse, FetchPartition, FetchPartitionData, FetchResponse
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.testing.batches import build_batch
from kconsumer.testing.cluster.fetch_sessions import FetchContext, FetchSessionCache, Results
from kconsumer.types import PartitionStatus, TopicPartition
from support.harnesses.wiring import CallCounter, make_components

TOPIC_ID = bytes(range(16))


@dataclass
class Log:
    """A partition's log on a broker: batches by base offset."""

    starts: list[int] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    start: int = 0

    def append(self, count: int, *, epoch: int = 0, **options: Any) -> None:
        """Append one batch of `count` records whose values are their offsets."""
        values = [b"%d" % offset for offset in range(self.end, self.end + count)]
        self.add(build_batch(values, base_offset=self.end, leader_epoch=epoch, **options), self.end + count)

    def add(self, batch: bytes, end: int) -> None:
        """Append any bytes as the next batch; the log then ends at `end`."""
        self.starts.append(self.end)
        self.batches.append(batch)
        self.end = end

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns whole batches from the one that contains `offset`, up to `max_bytes` but at least one."""
        if offset >= self.end:
            return b""
        first = bisect_right(self.starts, offset) - 1
        out = self.batches[first]
        for batch in self.batches[first + 1 :]:
            if len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out


class FetchHarness:
    """A cluster with one topic `t`, where broker p % brokers leads partition p. Nothing happens unless the test calls
    it.

    `sessions` is the number of fetch sessions that each broker keeps; without sessions every request is a full one and
    names every partition. `rng` gives the jitter of backoffs, which are exact without it.
    """

    def __init__(
        self,
        partitions: int = 1,
        brokers: int = 1,
        *,
        assign: bool = True,
        sessions: int = 0,
        rng: random.Random | None = None,
        **options: Any,
    ) -> None:
        options.setdefault("auto_offset_reset", "earliest")
        self.config = ConsumerConfig(bootstrap_servers="localhost:9092", **options)
        self.now = 1000.0
        self.brokers = brokers
        self.topic_id: bytes | None = TOPIC_ID
        self.version = 17
        self.epochs = dict.fromkeys(range(partitions), 0)
        self.leaders = {p: p % brokers for p in range(partitions)}
        self.tps = [TopicPartition("t", p) for p in range(partitions)]
        self.logs = {tp: Log() for tp in self.tps}
        self.caches: defaultdict[str, FetchSessionCache] = defaultdict(
            lambda: FetchSessionCache(sessions, itertools.count(100).__next__)
        )
        self.components = make_components(self.config, rng=rng)
        self.cluster, self.subscription = self.components.cluster, self.components.subscription
        self.assignment, self.positions = self.components.assignment, self.components.positions
        self.assignment.changes.set_now(self.now)
        self.metadata_requests = CallCounter(self.components.metadata, "request_update")
        self.metrics, self.buffer = self.components.metrics, self.components.buffer
        self.manager, self.collector = self.components.fetch, self.components.collector
        self.update_metadata()
        if assign:
            self.subscription.assign(set(self.tps))
            for tp in self.tps:
                self.seek(tp, 0)

    def wait(self, ms: float) -> None:
        """Advance the clock, also that of the partition states."""
        self.now += ms
        self.assignment.changes.set_now(self.now)

    def status(self, tp: TopicPartition, **known: Any) -> PartitionStatus:
        """Returns the partition's row of `partition_states()`. `known` replaces fields of its context."""
        situation = self.manager.context(tp, self.assignment.get(tp), self.now)._replace(**known)
        return explain(situation, read_committed=self.config.read_committed)

    def update_metadata(self) -> None:
        """Deliver a full metadata response with the present leaders, then validate positions as the manager does."""
        partitions = [
            MetadataResponsePartition(
                partition_index=p,
                leader_id=leader,
                leader_epoch=self.epochs[p],
                replica_nodes=list(range(self.brokers)),
                isr_nodes=list(range(self.brokers)),
            )
            for p, leader in self.leaders.items()
        ]
        topic = MetadataResponseTopic(name="t", partitions=partitions)
        if self.topic_id is not None:
            topic.topic_id = self.topic_id
        brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in range(self.brokers)]
        self.cluster.update(MetadataResponse(brokers=brokers, topics=[topic]), 12, full=True)
        self.positions.validate_all(self.cluster)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek as `Consumer.seek` does."""
        self.positions.seek(tp, offset)
        self.positions.validate_all(self.cluster)

    def validate(self) -> None:
        """Complete the validation of positions that wait for it, without a truncation."""
        for tp in self.positions.partitions_to_validate(self.now):
            self.assignment.get(tp).complete_validation()

    def poll(self) -> list[UnsentRequest]:
        """Returns the fetches to send now."""
        return self.manager.poll(self.now).requests

    def respond(self, request: UnsentRequest, **changes: Any) -> None:
        """Respond to a fetch from the logs. `changes`: a partition's number as "p0" to a dict of response fields."""
        version = min(self.version, request.max_version)
        error, session_id, results = self.process(request, **changes)
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        for (name, _), data in results.items():
            out = topics.get(name)
            if out is None:
                out = topics[name] = FetchableTopicResponse()
                setattr(out, "topic_id" if version > 12 else "topic", name)
            out.partitions.append(data)
        response = FetchResponse(error_code=error, responses=list(topics.values()), session_id=session_id)
        for field_name in ("error_code", "node_endpoints", "throttle_time_ms", "session_id"):
            if field_name in changes:
                setattr(response, field_name, changes[field_name])
        self.reply(request, response)

    def process(self, request: UnsentRequest, **changes: Any) -> tuple[int, int, Results]:
        """Let the broker process a fetch. Returns error, session id and results of its response; `changes` as above."""
        version = min(self.version, request.max_version)
        cache = self.caches[(request.node or "").lstrip("*")]
        context = cache.open(request.message, version, lambda _: "t", self.now)
        if not context.error:
            self.check_agreement(request, context)
        results: Results = {}
        left = request.message.max_bytes
        for key, row in context.rows.items():
            changed = changes.get(f"p{row.index}", {})
            results[key] = self._read(row.asked, changed, left, first=left == request.message.max_bytes)
            left -= len(results[key].records or b"")
        return context.finish(results, self.now)

    def check_agreement(self, request: UnsentRequest, context: FetchContext) -> None:
        """Check that broker and client read an incremental request in the same way."""
        session = self.session(broker_id(request.node or ""))
        if request.message.session_epoch > 0:
            assert {row.index: row.asked.fetch_offset for row in context.rows.values()} == {
                tp.partition: asked.offset for tp, asked in session.requested.items()
            }

    def session(self, node: int = 0) -> FetchSession:
        """Returns the client's session with a broker."""
        sessions: list[FetchSession] = [target.session for target in self.manager.planner if target.node.id == node]
        return sessions[0]

    def _read(self, asked: FetchPartition, changes: dict[str, Any], left: int, *, first: bool) -> FetchPartitionData:
        """Returns a partition's part of a response with room for `left` bytes; the first batch is sent whole."""
        log = self.logs[TopicPartition("t", asked.partition)]
        records = log.read(asked.fetch_offset, min(left, asked.partition_max_bytes))
        data = FetchPartitionData(
            partition_index=asked.partition,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=records if first or len(records) <= left else b"",
        )
        for name, value in changes.items():
            setattr(data, name, value)
        return data

    def reply(self, request: UnsentRequest, message: Any = None, error: KafkaError | None = None) -> None:
        """Complete a request with a response or an error."""
        version = min(self.version, request.max_version)
        request.handler(Reply(message, error, self.now, version, request.node or ""))

    def fetch(self) -> int:
        """Respond to the requests of one poll. Returns their number."""
        requests = self.poll()
        for request in requests:
            self.respond(request)
        return len(requests)

    def collect(self, max_records: int = 500) -> dict[TopicPartition, list[int]]:
        """Returns the offsets that a poll returns. Checks that each record has the value of its offset."""
        out: dict[TopicPartition, list[int]] = {}
        records = self.collector.collect(max_records)
        self.positions.delivery.open = False  # as `poll` ends
        for record in records:
            assert b"%d" % record.offset == record.value
            out.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        return out


def offsets(request: UnsentRequest) -> dict[int, int]:
    """Returns the fetch offsets of a request by partition."""
    return {p.partition: p.fetch_offset for topic in request.message.topics for p in topic.partitions}
