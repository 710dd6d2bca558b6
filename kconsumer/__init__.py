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
    from kconsumer import cluster, groups
    from kconsumer._core.decode import ShareRecord
    from kconsumer._internal.status import ConnectionStatus, ConsumerStatus, GroupStatus
    from kconsumer.ranges import RangeClient, read_range, read_topic
    from kconsumer.share.consumer import ShareConsumer
    from kconsumer.share.types import AcknowledgeType

__version__ = VERSION

PUBLIC_MODULES = (
    "aio",
    "arrow",
    "assignors",
    "cli",
    "cluster",
    "deserializers",
    "errors",
    "groups",
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
    "ClusterView",
    "ConnectionStatus",
    "Consumer",
    "ConsumerConfig",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerStatus",
    "GroupMetadata",
    "GroupStatus",
    "IsolationLevel",
    "Metric",
    "MetricName",
    "MetricsReporter",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "PartitionStatus",
    "RangeClient",
    "RebalanceListener",
    "RebalanceProtocol",
    "ShareConsumer",
    "ShareRecord",
    "Subscription",
    "SubscriptionPattern",
    "TimestampType",
    "TopicPartition",
    "__version__",
    "assignors",
    "cluster",
    "decode_batches",
    "errors",
    "groups",
    "read_range",
    "read_topic",
]


def __getattr__(name: str) -> object:
    """Import `cluster` and `groups`, and the names of `ranges`, `share` and `status`, when they are first used.

    Few programs need them all.

    Returns the module or the name. Raises ImportError for a name of another client, and AttributeError for any other.
    """
    if name in ("RangeClient", "read_range", "read_topic"):
        from kconsumer import ranges

        return getattr(ranges, name)
    if name in ("AcknowledgeType", "ShareConsumer", "ShareRecord"):
        return _share(name)
    if name in ("ConnectionStatus", "ConsumerStatus", "GroupStatus"):
        from kconsumer._internal import status

        return getattr(status, name)
    if name in ("cluster", "groups"):
        from importlib import import_module  # not `from kconsumer import groups`, which would call this function again

        return import_module(f"kconsumer.{name}")
    from kconsumer._common.foreign_methods import MODULE

    if name in MODULE:  # an AttributeError with a hint would be replaced in `from kconsumer import …`
        raise ImportError(f"cannot import name {name!r} from 'kconsumer'; {MODULE[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _share(name: str) -> object:
    from kconsumer._core.decode import ShareRecord
    from kconsumer.share.consumer import ShareConsumer
    from kconsumer.share.types import AcknowledgeType

    return {"AcknowledgeType": AcknowledgeType, "ShareConsumer": ShareConsumer, "ShareRecord": ShareRecord}[name]
