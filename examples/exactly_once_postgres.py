"""Reads and processes each record once, and stores the results in PostgreSQL, with psycopg:
python examples/exactly_once_postgres.py localhost:9092 my-group from-topic postgresql://user@localhost/database.

Results and the offsets of what was read are committed in one transaction of the database. The group only divides the
partitions among the processes; no offset is committed to Kafka.
"""

from __future__ import annotations

import signal
import sys

import psycopg

from kconsumer import Consumer, ConsumerRecords, TopicPartition
from kconsumer.errors import WakeupError

TABLES = """
CREATE TABLE IF NOT EXISTS results (value text);
CREATE TABLE IF NOT EXISTS offsets (
    "group" text, topic text, "partition" int, next_offset bigint, PRIMARY KEY ("group", topic, "partition")
);
"""


class AnotherProcessError(Exception):
    """Another process has stored results of this partition since this one has read its offset."""


class Results:
    """The tables in the database, and the offsets in them as this process knows them."""

    def __init__(self, database: psycopg.Connection, group: str) -> None:
        self._database, self._group = database, group
        self._known: dict[TopicPartition, int] = {}

    def seek(self, consumer: Consumer, partitions: tuple[TopicPartition, ...]) -> None:
        """Continue these partitions where the last transaction ended. Runs when they are assigned."""
        with self._database.transaction(), self._database.cursor() as cursor:
            for tp in partitions:
                row = (self._group, *tp)
                cursor.execute("INSERT INTO offsets VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING", row)
                cursor.execute(
                    'SELECT next_offset FROM offsets WHERE ("group", topic, "partition") = (%s, %s, %s)', row
                )
                self._known[tp] = (cursor.fetchone() or (0,))[0]
        for tp in partitions:
            if self._known[tp]:
                consumer.seek(tp, self._known[tp])
            else:
                consumer.seek_to_beginning(tp)

    def store(self, records: ConsumerRecords) -> None:
        """Write the results of a batch, and its offsets, in one transaction."""
        offsets = {tp: at.offset for tp, at in records.next_offsets().items()}
        with self._database.transaction(), self._database.cursor() as cursor:
            write_results(cursor, records)
            for tp, offset in offsets.items():
                # A process that was suspended, and has lost its partitions meanwhile, changes no row here.
                cursor.execute(
                    'UPDATE offsets SET next_offset = %s WHERE ("group", topic, "partition") = (%s, %s, %s)'
                    " AND next_offset = %s",
                    (offset, self._group, *tp, self._known[tp]),
                )
                if cursor.rowcount != 1:
                    raise AnotherProcessError(tp)
            before_commit()
        self._known |= offsets


def write_results(cursor: psycopg.Cursor, records: ConsumerRecords) -> None:
    """A placeholder for your work."""
    values = [(record.value.decode().upper(),) for record in records if record.value is not None]
    cursor.executemany("INSERT INTO results VALUES (%s)", values)


def before_commit() -> None:
    """A place for checks of your own. An exception here undoes the transaction."""


def transfer(consumer: Consumer, results: Results, records: ConsumerRecords) -> None:
    """Store the results of a batch. If another process was faster, read its partitions again from where they are."""
    try:
        results.store(records)
    except AnotherProcessError:
        results.seek(consumer, tuple(consumer.assignment()))


def main(servers: str, group: str, source: str, url: str, number: str = "0") -> None:
    """Run until Ctrl-C. Each process of the group needs a number of its own, and the same one after a restart."""
    with psycopg.connect(url, autocommit=True) as database:
        with database.transaction():
            database.execute("SELECT pg_advisory_xact_lock(1)")  # two processes must not create a table at once
            database.execute(TABLES)
        results = Results(database, group)
        with Consumer(
            bootstrap_servers=servers,
            group_id=group,
            group_instance_id=f"{group}-{number}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.subscribe([source], on_assign=results.seek)
            signal.signal(signal.SIGINT, lambda _number, _frame: consumer.wakeup())
            try:
                while True:
                    records = consumer.poll(timeout=1.0)
                    if records:
                        transfer(consumer, results, records)
            except WakeupError:
                print("leaving the group")


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit("usage: exactly_once_postgres.py HOST:PORT GROUP FROM-TOPIC DATABASE-URL [NUMBER]")
    main(*sys.argv[1:])
