"""Prints the orders of a topic until Ctrl-C, and commits each batch, with confluent-kafka:
python confluent_before.py HOST:PORT GROUP TOPIC.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition


def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
    print("reading", sorted(partition.partition for partition in partitions))


def main(servers: str, group: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic], on_assign=assigned)
    try:
        while True:
            messages = consumer.consume(500, timeout=1.0)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
                order = json.loads(message.value())
                _, created = message.timestamp()
                headers = dict(message.headers() or [])
                print(message.partition(), message.offset(), message.key(), order["amount"], created, headers)
            if messages:
                consumer.commit(asynchronous=False)
    except KeyboardInterrupt:
        for at in sorted(consumer.committed(consumer.assignment())):
            _, end = consumer.get_watermark_offsets(at)
            print(f"{at.topic}-{at.partition}: committed {at.offset} of {end}")
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
