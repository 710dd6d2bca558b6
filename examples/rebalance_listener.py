"""Keep state per partition while a group rebalances: python examples/rebalance_listener.py localhost:9092 group topic.

Counts records per partition. A count belongs to whoever owns the partition: it is dropped when the partition goes to
another member, after the offsets it stands for are committed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from kconsumer import Consumer, RebalanceListener, TopicPartition


class CountKeeper(RebalanceListener):
    """Callbacks run on the thread that polls, inside `poll` and `close`; `partitions` is sorted."""

    def __init__(self) -> None:
        self.counts: Counter[TopicPartition] = Counter()

    def on_partitions_assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """New partitions only, with the cooperative protocol."""
        for partition in partitions:
            print(f"+ {partition}, from offset {consumer.position(partition)}")

    def on_partitions_revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Still ours: the last moment to commit."""
        consumer.commit({partition: consumer.position(partition) for partition in partitions})
        self._drop(partitions)

    def on_partitions_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        """Not ours any more (this member was thrown out): a commit would fail."""
        self._drop(partitions)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            print(f"- {partition}, {self.counts.pop(partition, 0)} records counted")


def main(servers: str, group: str, *topics: str) -> None:
    """Count until Ctrl-C."""
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
