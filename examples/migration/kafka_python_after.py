"""Prints the orders of a topic until Ctrl-C, and commits each partition:
python kafka_python_after.py HOST:PORT GROUP TOPIC.
"""

import json
import sys

from kconsumer import Consumer, RebalanceListener, TopicPartition


class Listener(RebalanceListener):
    def on_partitions_assigned(self, _consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        print("reading", sorted(partition.partition for partition in partitions))

    def on_partitions_revoked(self, _consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        pass


def main(servers: str, group: str, topic: str) -> None:
    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=json.loads,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            for partition, records in consumer.poll(timeout=1.0, max_records=500).by_partition().items():
                for record in records:
                    headers = dict(record.headers)
                    amount = record.value["amount"]
                    print(record.partition, record.offset, record.key, amount, record.timestamp, headers)
                consumer.commit({partition: records[-1].offset + 1})
    except KeyboardInterrupt:
        ends = consumer.end_offsets(consumer.assignment())
        for partition, at in sorted(consumer.committed(ends).items()):
            print(f"{partition}: committed {at and at.offset} of {ends[partition]}")
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
