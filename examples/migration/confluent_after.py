"""Prints the orders of a topic until Ctrl-C, and commits each batch:
python confluent_after.py HOST:PORT GROUP TOPIC.
"""

import sys

from kconsumer import Consumer, TopicPartition


def assigned(_consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
    print("reading", sorted(partition.partition for partition in partitions))


def main(servers: str, group: str, topic: str) -> None:
    options = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",  # the default of confluent-kafka
        "value.deserializer": "json",
    }
    with Consumer.from_config(options) as consumer:
        consumer.subscribe([topic], on_assign=assigned)
        try:
            while True:
                records = consumer.poll(timeout=1.0)
                for record in records:
                    headers = dict(record.headers)
                    amount = record.value["amount"]
                    print(record.partition, record.offset, record.key, amount, record.timestamp, headers)
                if records:
                    consumer.commit(records)
        except KeyboardInterrupt:
            ends = consumer.end_offsets(consumer.assignment())
            for partition, at in sorted(consumer.committed(ends).items()):
                print(f"{partition}: committed {at and at.offset} of {ends[partition]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
