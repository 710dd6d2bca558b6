"""Reads offset ranges of partitions, or whole topics, as `kconsumer.ranges` does. Everything that waits is awaitable.

    read_range    read one range of one partition batch by batch; reports offsets without a record, with the reasons
    RangeClient   read many ranges over the same connections, look up offsets and topics, commit
    read_topic    read all partitions of a topic into a table in memory
    scan_topic    read all partitions of a topic batch by batch

Each of these creates its own consumers, which join no group and do not auto-commit.
"""

from kconsumer.aio.range_client import RangeClient, read_range
from kconsumer.aio.range_reader import RangeReader
from kconsumer.aio.topic_reader import TopicReader, read_topic, scan_topic
from kconsumer.ranges.client_base import TopicListing
from kconsumer.ranges.gaps import Gap
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST

__all__ = [
    "EARLIEST",
    "LATEST",
    "Gap",
    "RangeClient",
    "RangeReader",
    "TopicListing",
    "TopicReader",
    "read_range",
    "read_topic",
    "scan_topic",
]
