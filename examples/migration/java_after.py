"""Prints the orders of a topic until Ctrl-C, and commits each batch:
python java_after.py HOST:PORT GROUP TOPIC.
"""

import signal
import sys

from kconsumer import Consumer, RebalanceListener, TopicPartition
from kconsumer.errors import WakeupError


class Listener(RebalanceListener):
    def on_partitions_assigned(self, _consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        print("reading", sorted(partition.partition for partition in partitions))

    def on_partitions_revoked(self, _consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        pass


def main(servers: str, group: str, topic: str) -> None:
    options = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "key.deserializer": "str",
        "value.deserializer": "str",
    }
    with Consumer.from_config(options) as consumer:
        signal.signal(signal.SIGINT, lambda _number, _frame: consumer.wakeup())
        consumer.subscribe([topic], listener=Listener())
        try:
            while True:
                records = consumer.poll(timeout=1.0)
                for record in records:
                    print(record.partition, record.offset, record.key, record.value, record.timestamp)
                if records:
                    consumer.commit(records.next_offsets())
        except WakeupError:
            print("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
