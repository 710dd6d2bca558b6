"""Reading without a group: exact ranges of partitions, or a whole topic, as Arrow columns.

    read_range    one range of one partition, batch after batch, every offset accounted for
    RangeClient   many ranges over the same connections; can be pickled and used after a fork; offsets, topics, commits
    borrow        a RangeClient from a pool of this process, with the given options
    read_topic    all partitions of a topic at once, as a table in memory; `scan_topic`: batch after batch

Each creates its own consumers, which belong to no group and commit nothing by themselves.
"""

from kconsumer.ranges.client import RangeClient, TopicListing, borrow
from kconsumer.ranges.offset_bounds import EARLIEST, LATEST
from kconsumer.ranges.reader import Gap, RangeReader, read_range
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
