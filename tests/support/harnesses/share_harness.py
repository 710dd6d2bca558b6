"""The managers of a share consumer without network or clock: tests give responses and check requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kconsumer._core.metrics import ResponseTally
from kconsumer._internal.managers import Reply, UnsentRequest
from kconsumer.config.option_groups import GroupRebalanceConfig, MetadataConfig, RetryConfig, ShareConfig
from kconsumer.coordinator.consumer_protocol.topic_names import TopicNames
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.engine.waiting import run
from kconsumer.errors import KafkaError
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metrics.registry import Metrics
from kconsumer.schema.consumer_group import ConsumerGroupHeartbeatAssignment, ConsumerGroupHeartbeatTopicPartitions
from kconsumer.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kconsumer.schema.share_group import (
    AcquiredRecords,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartitionData,
    ShareFetchResponse,
    ShareGroupHeartbeatResponse,
)
from kconsumer.share.acknowledgements import AcquiredBatch, Commit, PartitionAcknowledgements
from kconsumer.share.buffer import CompletedShareFetch, ShareBuffer
from kconsumer.share.collector import ShareCollector, plain_deserializers
from kconsumer.share.config import ShareConsumerConfig
from kconsumer.share.manager import ShareManager
from kconsumer.share.member import ShareMember
from kconsumer.share.membership import ShareMembership
from kconsumer.share.metrics import ShareMetrics
from kconsumer.share.session import TopicIdPartition
from kconsumer.state.cluster import Cluster
from kconsumer.state.subscription import SubscriptionState
from kconsumer.testing.batches import Rec, build_batch
from kconsumer.types import Node, TopicPartition

INTERVAL_MS = 5000
T_ID = b"t" * 16
LOCK_MS = 30_000


class ShareHarness:
    """One member with its managers; `now` moves by hand. Topic t has four partitions, led by brokers 1 and 2."""

    def __init__(self, *, assigned: Iterable[int] = (), **options: Any) -> None:
        self.config = ShareConsumerConfig(bootstrap_servers="broker:9092", group_id="g", **options)
        self.now = 1000.0
        self.latency_ms = 0.0  # of responses
        self.throttle_ms = 0  # of fetches
        self.cluster = Cluster()
        self.subscription = SubscriptionState()
        self.assignment = self.subscription.assignment
        self.metadata = MetadataManager(self.config.select(MetadataConfig), self.cluster, self.subscription)
        self.coordinator = CoordinatorManager(self.config.select(RetryConfig), "g")
        self.coordinator.coordinator = Node(1, "broker", 9092)
        self.member = ShareMember("g", "me")
        rebalance = self.config.select(GroupRebalanceConfig)
        names = TopicNames(self.cluster, self.metadata)
        self.membership = ShareMembership(rebalance, self.member, self.subscription, self.coordinator, names)
        self.metrics = Metrics()
        metrics = ShareMetrics(self.metrics)
        self.buffer = ShareBuffer(metrics)
        self.manager = ShareManager(
            self.config.select(ShareConfig),
            self.member,
            self.cluster,
            self.subscription,
            self.metadata,
            self.buffer,
            metrics,
        )
        self.collector = ShareCollector(self.config, self.buffer, metrics)
        self.collector.deserialize = plain_deserializers(self.config)
        self.subscription.subscribe(["t"])
        self.learn()
        self.subscription.assign_from_group([TopicPartition("t", number) for number in assigned])
        self.results: list[tuple[PartitionAcknowledgements, KafkaError | None]] = []
        self.manager.on_acknowledged = lambda each, error: self.results.append((each, error))

    def learn(self, leaders: Mapping[int, int] | None = None) -> None:
        """Deliver metadata. Even partitions are led by broker 1, odd ones by broker 2, unless `leaders` differs."""
        moved = leaders or {}
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n, host="broker", port=9092) for n in (1, 2)],
            topics=[
                MetadataResponseTopic(
                    name="t",
                    topic_id=T_ID,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=i,
                            leader_id=moved.get(i, 1 + i % 2),
                            leader_epoch=len(moved),
                            replica_nodes=[1, 2],
                            isr_nodes=[1, 2],
                        )
                        for i in range(4)
                    ],
                )
            ],
        )
        self.cluster.update(response, 12, full=True, keep=lambda _topic, _internal: True)

    # --- membership ---

    def heartbeats(self) -> list[UnsentRequest]:
        """Returns the heartbeats to send now."""
        return self.membership.poll(self.now).requests

    def beat(self) -> UnsentRequest:
        """Returns the only heartbeat to send now."""
        (request,) = self.heartbeats()
        return request

    def respond(self, request: UnsentRequest, epoch: int = 1, assigned: Iterable[int] | None = None) -> None:
        """Respond to a heartbeat with an epoch, and with these partitions of t if not None."""
        assignment = None
        if assigned is not None:
            row = ConsumerGroupHeartbeatTopicPartitions(topic_id=T_ID, partitions=list(assigned))
            assignment = ConsumerGroupHeartbeatAssignment(topic_partitions=[row])
        self.reply(
            request,
            ShareGroupHeartbeatResponse(
                member_id="me", member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment
            ),
        )

    def join(self, assigned: Iterable[int] = (0,)) -> None:
        """Join the group, with these partitions of t."""
        self.membership.user_polled(self.now)
        self.respond(self.beat(), 1, assigned)

    # --- fetches and acknowledgements ---

    def requests(self) -> dict[str, UnsentRequest]:
        """Returns the requests of the share manager to send now, by broker."""
        return {request.node or "": request for request in self.manager.poll(self.now).requests}

    def request(self) -> UnsentRequest:
        """Returns the only request of the share manager to send now."""
        ((_, request),) = self.requests().items()
        return request

    def acquire(self, request: UnsentRequest, **partitions: Any) -> None:
        """Respond to a ShareFetch. `p0=[(0, 4)]` are acquired ranges, `p0=6` is an error code."""
        rows = [self._row(int(name[1:]), value) for name, value in partitions.items()]
        named = {row.partition_index for row in rows}
        rows += [
            ShareFetchPartitionData(partition_index=part.partition_index, records=b"")
            for topic in request.message.topics
            for part in topic.partitions
            if part.partition_index not in named
        ]
        response = ShareFetchResponse(
            throttle_time_ms=self.throttle_ms,
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[ShareFetchableTopicResponse(topic_id=T_ID, partitions=rows)] if rows else [],
        )
        self.reply(request, response)

    def _row(self, number: int, value: Any) -> ShareFetchPartitionData:
        if isinstance(value, int):
            return ShareFetchPartitionData(partition_index=number, error_code=value, records=b"")
        count = value[-1][1] - value[0][0] + 1
        return ShareFetchPartitionData(
            partition_index=number,
            records=build_batch([Rec(value=b"v")] * count, base_offset=value[0][0]),
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1) for first, last in value
            ],
        )

    def confirm(self, request: UnsentRequest, **codes: int) -> None:
        """Respond to a ShareAcknowledge: success for each partition, unless `p0=6` names an error code."""
        rows = [
            ShareAcknowledgePartitionData(
                partition_index=part.partition_index, error_code=codes.get(f"p{part.partition_index}", 0)
            )
            for topic in request.message.topics
            for part in topic.partitions
        ]
        response = ShareAcknowledgeResponse(
            responses=[ShareAcknowledgeTopicResponse(topic_id=T_ID, partitions=rows)] if rows else []
        )
        self.reply(request, response)

    def reply(self, request: UnsentRequest, message: Any) -> None:
        """Deliver a response."""
        sent_at = self.now - self.latency_ms
        request.handler(Reply(message, None, self.now, request.api.max_version, request.node or "1", sent_at))

    def fail(self, request: UnsentRequest, error: KafkaError) -> None:
        """Let a request fail without a response."""
        request.handler(Reply(None, error, self.now, node=request.node or "1"))

    def collect_into(self, batch: AcquiredBatch, fetch: CompletedShareFetch) -> None:
        """Decode the records of a fetch."""
        run(self.collector.collect(fetch, batch, self.now), lambda wait: None)

    def collect(self) -> AcquiredBatch:
        """Returns the records of the first data in the buffer."""
        fetch = self.buffer.pop(500)
        batch = AcquiredBatch(fetch.node_id, fetch.partition, fetch.topic_partition)
        self.collect_into(batch, fetch)
        return batch

    def fetched(self, **partitions: Any) -> list[AcquiredBatch]:
        """Fetch once from each broker, respond with these acquired ranges, and return the records."""
        self.manager.want_records()
        for node, request in self.requests().items():
            mine = {name: value for name, value in partitions.items() if str(1 + int(name[1:]) % 2) == node}
            self.acquire(request, **mine)
        found = []
        while self.buffer.has_data():
            found.append(self.collect())
        return found

    def acknowledge(self, batch: AcquiredBatch, kind: int = 1, commit: Commit | None = None) -> None:
        """Acknowledge all records of a batch that have no acknowledgement, and pass them to the manager."""
        batch.set_all(kind)
        (taken,) = batch.take()
        taken.commit = commit
        if commit is not None:
            commit.add(taken.topic_partition)
            taken.deadline = commit.deadline
        self.manager.acknowledge([taken])


def acknowledged(request: UnsentRequest) -> dict[int, list[tuple[int, int, list[int]]]]:
    """Returns the acknowledgements of a request, by partition."""
    return {
        part.partition_index: [
            (b.first_offset, b.last_offset, b.acknowledge_types) for b in part.acknowledgement_batches
        ]
        for topic in request.message.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


def named(request: UnsentRequest) -> list[int]:
    """Returns the partitions that a ShareFetch names, without those it forgets."""
    return [part.partition_index for topic in request.message.topics for part in topic.partitions]


def completed(records: bytes, acquired: list[tuple[int, int, int]]) -> CompletedShareFetch:
    """Returns data of partition 0 as it is in the buffer."""
    rows = [AcquiredRecords(first_offset=f, last_offset=last, delivery_count=n) for f, last, n in acquired]
    return CompletedShareFetch(1, TopicIdPartition(T_ID, 0), TopicPartition("t", 0), records, rows, ResponseTally())
