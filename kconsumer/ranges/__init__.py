"""Reading without a group: exact ranges of partitions, or a whole topic, as Arrow columns.

    read_range    one range of one partition, batch after batch, every offset accounted for
    RangeClient   the same for many ranges: keeps its connections, pickles, survives a fork; offsets, topics, commits
    borrow        a RangeClient of this process for a while, of several with the same options one that is free
    read_topic    all partitions of a topic at once, as a table in memory; `scan_topic`: batch after batch

All of them make consumers of their own that belong to no group and commit nothing of themselves.
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
