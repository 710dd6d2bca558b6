"""The Kafka consumer for Python: see `Consumer`.

The names in `__all__` and the modules in `PUBLIC_MODULES` are public. All other modules are internal and may change in
any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer import assignors, errors
from kconsumer._core.decode import ConsumerRecord
from kconsumer._version import VERSION
from kconsumer.assignors import Assignment, Assignor, ClusterView, RebalanceProtocol, Subscription
from kconsumer.config.options import ConsumerConfig
from kconsumer.consumer import Consumer
from kconsumer.decode import decode_batches
from kconsumer.listener import RebalanceListener
from kconsumer.metrics.reporters import Metric, MetricsReporter
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

if TYPE_CHECKING:
    from kconsumer import cluster, groups, health
    from kconsumer._client.table_base import TableStatus
    from kconsumer._core.decode import ShareRecord
    from kconsumer._internal.status import ConnectionStatus, ConsumerStatus, GroupStatus
    from kconsumer.aio.consumer import AsyncConsumer
    from kconsumer.config.signature import ConsumerOptions, ShareConsumerOptions
    from kconsumer.filters import HeaderFilter, KeyFilter, RawRecord
    from kconsumer.ranges import RangeClient, read_range, read_topic
    from kconsumer.share.consumer import ShareConsumer
    from kconsumer.share.types import AcknowledgeType
    from kconsumer.table import TopicTable

__version__ = VERSION

PUBLIC_MODULES = (
    "aio",
    "arrow",
    "assignors",
    "cli",
    "cluster",
    "deserializers",
    "errors",
    "filters",
    "groups",
    "health",
    "opentelemetry",
    "parallel",
    "prometheus",
    "ranges",
    "registry",
    "spark",
    "testing",
    "types",
)

__all__ = [
    "AcknowledgeType",
    "Assignment",
    "Assignor",
    "AsyncConsumer",
    "ClusterView",
    "ConnectionStatus",
    "Consumer",
    "ConsumerConfig",
    "ConsumerOptions",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerStatus",
    "GroupMetadata",
    "GroupStatus",
    "HeaderFilter",
    "IsolationLevel",
    "KeyFilter",
    "Metric",
    "MetricName",
    "MetricsReporter",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionStatus",
    "RangeClient",
    "RawRecord",
    "RebalanceListener",
    "RebalanceProtocol",
    "ShareConsumer",
    "ShareConsumerOptions",
    "ShareRecord",
    "Subscription",
    "SubscriptionPattern",
    "TableStatus",
    "TimestampType",
    "TopicPartition",
    "TopicTable",
    "__version__",
    "assignors",
    "cluster",
    "decode_batches",
    "errors",
    "groups",
    "health",
    "read_range",
    "read_topic",
]


#: Names that few programs need -> the modules that define them, which are imported when they are first used.
LAZY = {
    "AcknowledgeType": "share.types",
    "AsyncConsumer": "aio.consumer",
    "ConnectionStatus": "_internal.status",
    "ConsumerOptions": "config.signature",
    "ConsumerStatus": "_internal.status",
    "GroupStatus": "_internal.status",
    "HeaderFilter": "filters",
    "KeyFilter": "filters",
    "RangeClient": "ranges",
    "RawRecord": "filters",
    "ShareConsumer": "share.consumer",
    "ShareConsumerOptions": "config.signature",
    "ShareRecord": "_core.decode",
    "TableStatus": "_client.table_base",
    "TopicTable": "table",
    "read_range": "ranges",
    "read_topic": "ranges",
}


def __getattr__(name: str) -> object:
    """Import `cluster`, `groups` or `health`, or the module of a name of `LAZY`, when they are first used.

    Returns the module or the name. Raises ImportError for a name of another client, and AttributeError for any other.
    """
    from importlib import import_module  # not `from kconsumer import groups`, which would call this function again

    if name in ("cluster", "groups", "health"):
        return import_module(f"kconsumer.{name}")
    if name in LAZY:
        return getattr(import_module(f"kconsumer.{LAZY[name]}"), name)
    from kconsumer._common.foreign_methods import MODULE

    if name in MODULE:  # an AttributeError with a hint would be replaced in `from kconsumer import …`
        raise ImportError(f"cannot import name {name!r} from 'kconsumer'; {MODULE[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
