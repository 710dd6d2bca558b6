"""Reads offset ranges of partitions, or whole topics, without joining a group. Records are returned as Arrow columns.

    read_range    read one range of one partition batch by batch; reports offsets without a record, with the reasons
    RangeClient   read many ranges over the same connections, look up offsets and topics, commit; can be pickled
    borrow        borrow a RangeClient with the given options from the pool of this process
    read_topic    read all partitions of a topic into a table in memory
    scan_topic    read all partitions of a topic batch by batch

Each of these creates its own consumers, which join no group and do not auto-commit.
"""

from kconsumer.ranges.client import RangeClient, borrow, read_range
from kconsumer.ranges.client_base import TopicListing
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST
from kconsumer.ranges.reader import Gap, RangeReader
from kconsumer.ranges.topic import TopicReader, read_topic, scan_topic

__all__ = [
    "EARLIEST",
    "LATEST",
    "Gap",
    "RangeClient",
    "RangeReader",
    "TopicListing",
    "TopicReader",
    "borrow",
    "read_range",
    "read_topic",
    "scan_topic",
]
