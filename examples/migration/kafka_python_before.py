"""Prints the orders of a topic until Ctrl-C, and commits each partition, with kafka-python:
python kafka_python_before.py HOST:PORT GROUP TOPIC.
"""

import json
import sys

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        if assigned:  # the first assignment may be empty
            print("reading", sorted(partition.partition for partition in assigned))

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass


def main(servers: str, group: str, topic: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        value_deserializer=json.loads,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            for partition, records in consumer.poll(timeout_ms=1000, max_records=500).items():
                for record in records:
                    headers = dict(record.headers)
                    amount = record.value["amount"]
                    print(record.partition, record.offset, record.key, amount, record.timestamp, headers)
                consumer.commit({partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)})
    except KeyboardInterrupt:
        for partition, end in sorted(consumer.end_offsets(consumer.assignment()).items()):
            print(f"{partition.topic}-{partition.partition}: committed {consumer.committed(partition)} of {end}")
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
