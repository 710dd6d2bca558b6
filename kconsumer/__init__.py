"""The Kafka consumer for Python: see `Consumer`."""

from kconsumer import assignors, errors
from kconsumer._core.record import ConsumerRecord
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.config import ConsumerConfig
from kconsumer.consumer import Consumer
from kconsumer.decode import decode_batches
from kconsumer.listener import RebalanceListener
from kconsumer.records import ConsumerRecords
from kconsumer.types import (
    GroupMetadata,
    IsolationLevel,
    MetricName,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    PartitionStatus,
    SubscriptionPattern,
    TimestampType,
    TopicPartition,
)

__all__ = [
    "Assignment",
    "Assignor",
    "ClusterView",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerRecords",
    "GroupMetadata",
    "IsolationLevel",
    "MetricName",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionStatus",
    "RebalanceListener",
    "RebalanceProtocol",
    "Subscription",
    "SubscriptionPattern",
    "TimestampType",
    "TopicPartition",
    "assignors",
    "decode_batches",
    "errors",
]
