"""Keeps state per partition while a group rebalances: python examples/rebalance_listener.py localhost:9092 group topic.

Counts records per partition. A count belongs to the owner of the partition: the member commits the offsets and drops
the count when the partition moves to another member.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from kconsumer import Consumer, RebalanceListener, TopicPartition


class CountKeeper(RebalanceListener):
    """Counts records by partition. `poll` and `close` run its callbacks on the thread that calls them."""

    def __init__(self) -> None:
        self.counts: Counter[TopicPartition] = Counter()

    def on_partitions_assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Print the new partitions. With the cooperative protocol, `partitions` contains only these."""
        for partition in partitions:
            print(f"+ {partition}, from offset {consumer.position(partition)}")

    def on_partitions_revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Commit, because the member owns the partitions until this method returns. Then drop their counts."""
        consumer.commit({partition: consumer.position(partition) for partition in partitions})
        self._drop(partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Drop the counts. The member was removed from the group, so a commit would fail."""
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            print(f"- {partition}, {self.counts.pop(partition, 0)} records counted")


def main(servers: str, group: str, *topics: str) -> None:
    """Count records until Ctrl-C."""
    keeper = CountKeeper()
    with Consumer(
        bootstrap_servers=servers,
        group_id=group,
        assignors=["cooperative-sticky"],
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe(topics, listener=keeper)
        while True:
            for record in consumer.poll(timeout=1.0):
                keeper.counts[record.topic_partition] += 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: rebalance_listener.py HOST:PORT GROUP TOPIC…")
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
