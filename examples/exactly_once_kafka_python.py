"""Reads, processes and writes each record once, with kafka-python's producer (3.0 and newer):
python examples/exactly_once_kafka_python.py localhost:9092 my-group from-topic to-topic.

Output records and the offsets of what was read are committed in one transaction. A consumer of the target topic with
isolation_level="read_committed" sees each result once, however often this program is killed and started again.
"""

from __future__ import annotations

import signal
import sys

from kafka import KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from kconsumer import Consumer, ConsumerRecords
from kconsumer.errors import WakeupError


def process(value: bytes | None) -> bytes | None:
    """A placeholder for your work. Returns the value to write."""
    return None if value is None else value.upper()


def transfer(consumer: Consumer, producer: KafkaProducer, records: ConsumerRecords, target: str) -> None:
    """Write the results of a batch and commit its offsets in one transaction. If it is aborted, the batch is read
    again.
    """
    producer.begin_transaction()
    try:
        for record in records:
            producer.send(target, key=record.key, value=process(record.value))
        offsets = {tp: OffsetAndMetadata(at.offset) for tp, at in records.next_offsets().items()}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        producer.commit_transaction()
    except ProducerFencedError:
        raise  # another process has this transactional id
    except KafkaError:
        producer.abort_transaction()
        rewind(consumer, records)


def rewind(consumer: Consumer, records: ConsumerRecords) -> None:
    """Seek back to the first of these records, in each partition that the consumer still owns."""
    for partition in records.partitions() & consumer.assignment():
        consumer.seek(partition, records.records(partition)[0].offset)


def main(servers: str, group: str, source: str, target: str, number: str = "0") -> None:
    """Run until Ctrl-C.

    Each process of the group needs its own transactional id and instance id, and the same ones after a restart. They
    contain its number.
    """
    identity = f"{group}-{number}"
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=identity)
    producer.init_transactions()  # aborts what an earlier run of this process left open
    with Consumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id=identity,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        signal.signal(signal.SIGINT, lambda _number, _frame: consumer.wakeup())
        try:
            while True:
                records = consumer.poll(timeout=1.0)
                if records:
                    transfer(consumer, producer, records, target)
        except WakeupError:
            print("leaving the group")
    producer.close()


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: exactly_once_kafka_python.py HOST:PORT GROUP FROM-TOPIC TO-TOPIC [NUMBER]")
    main(*sys.argv[1:])
