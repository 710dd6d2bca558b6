"""Random filters: the rows of a query do not depend on whether Spark pushes its filter to the source."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kconsumer.testing import FakeCluster

SEED = int(os.environ.get("KCONSUMER_FILTER_SEED", "1"))
FILTERS = int(os.environ.get("KCONSUMER_FILTERS", "20"))  # the long form: 600
TIMES_MS = [0, 1, 999, 1000, 1_700_000_000_000, 1_700_000_000_001, 1_700_000_060_000, 253_402_300_800_000]
NUMBERS = ["-9223372036854775808", "-1", "0", "1", "2", "3L", "7", "1.5", "2.0D", "9223372036854775807", "'2'",
           "cast('1' as tinyint)", "NULL", "(SELECT 2)", "(SELECT max(n) FROM VALUES (1), (3) AS v(n))"]  # fmt: skip
TEXTS = ["'t'", "'u'", "'T'", "'t-2'", "''", "NULL", "'t' COLLATE UTF8_LCASE", "concat('t', '-2')", "(SELECT 'u')"]
MOMENTS = ["timestamp_millis(0)", "timestamp_millis(-1)", "timestamp_millis(-5000)", "timestamp_micros(999500)",
           "timestamp'2023-11-14 22:13:20.001'", "timestamp_ntz'2023-11-14 22:13:20'", "date'2023-11-14'",
           "timestamp'9999-12-31 23:59:59.999999'", "timestamp_millis(1700000060000)", "NULL",
           "(SELECT timestamp_millis(1000))", "'2023-11-14 22:13:20'"]  # fmt: skip
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COMPARE = ["=", "<=>", "<>", "<", "<=", ">", ">="]
COLUMNS = {"topic": TEXTS, "partition": NUMBERS, "offset": NUMBERS, "timestamp": MOMENTS, "timestampType": NUMBERS[:7],
           "key": ["cast('k1' as binary)", "NULL", "X''"], "value": ["cast('v3' as binary)", "NULL"]}  # fmt: skip


def atom(rng: random.Random) -> str:
    """Returns a condition on one column."""
    column = rng.choice([*COLUMNS, "partition", "offset", "timestamp", "topic"])
    operands = COLUMNS[column]
    forms: list[Callable[[], str]] = [
        lambda: f"{column} {rng.choice(COMPARE)} {rng.choice(operands)}",
        lambda: f"{rng.choice(operands)} {rng.choice(COMPARE)} {column}",
        lambda: f"{column} {rng.choice(['', 'NOT '])}IN ({', '.join(rng.choices(operands, k=rng.randint(1, 3)))})",
        lambda: f"{column} IS {rng.choice(['', 'NOT '])}NULL",
        lambda: f"{column} BETWEEN {rng.choice(operands)} AND {rng.choice(operands)}",
        lambda: f"topic LIKE '{rng.choice(['t%', '%-2', '%t%', 't', '_', '%'])}'",
        lambda: f"cast({column} as string) {rng.choice(COMPARE)} {rng.choice(TEXTS)}",
        lambda: f"{rng.choice(['partition', 'offset'])} IN (SELECT n FROM VALUES (1), (2), (NULL) AS v(n))",
        lambda: f"coalesce({column} = {rng.choice(operands)}, {rng.choice(['true', 'false'])})",
        lambda: rng.choice(["offset % 2 = 0", "partition + 1 = 2", "offset = partition", "true", "NULL"]),
    ]
    return rng.choice(forms)()


def condition(rng: random.Random, depth: int = 2) -> str:
    """Returns a condition made of some others."""
    if depth == 0 or rng.random() < 0.3:
        return atom(rng)
    operator = rng.choice([" AND ", " AND ", " OR "])
    made = operator.join(condition(rng, depth - 1) for _ in range(2))
    return f"NOT ({made})" if rng.random() < 0.2 else f"({made})"


def produce(cluster: FakeCluster) -> None:
    """Produce records with and without keys, values and timestamps to three topics."""
    for topic, partitions in (("t", 3), ("u", 1), ("t-2", 2)):
        cluster.create_topic(topic, partitions, retention_ms=-1)  # the old records would be deleted after five minutes
        for number in range(24):
            cluster.produce(
                topic, [b"v%d" % number if number % 5 else None], partition=number % partitions,
                key=b"k%d" % number if number % 3 else None, timestamp=TIMES_MS[number % len(TIMES_MS)],
            )  # fmt: skip


@pytest.mark.random
@pytest.mark.timeout(200 + 5 * FILTERS)
def test_filters_select_the_same_rows_pushed_or_not(spark: Any) -> None:
    """Random conditions over all columns, with nulls, casts, collations and subqueries, select the rows of Spark's own
    evaluation; with a time zone of the session that is not UTC, too.
    """
    with FakeCluster() as cluster:
        produce(cluster)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t,u,t-2"}
        reader = spark.read.format("kconsumer").options(**options)
        copy = spark.createDataFrame(reader.load().toArrow(), reader.load().schema).cache()
        different = []
        try:
            spark.conf.set(PUSHDOWN, "true")
            for seed in range(SEED, SEED + FILTERS):
                spark.conf.set("spark.sql.session.timeZone", ["UTC", "Asia/Kolkata"][seed % 2])
                where = condition(random.Random(seed))
                expected, found = (outcome(frame, where) for frame in (copy, reader.load()))
                if isinstance(expected, list) and expected != found:
                    different.append((seed, where, expected, found))
        finally:
            spark.conf.set(PUSHDOWN, "false")
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            copy.unpersist()
    assert [] == different


def test_queries_of_one_data_frame_have_their_own_filters(spark: Any) -> None:
    """A query of a DataFrame has all its rows after a query with a filter, and next to one in a union."""
    with FakeCluster() as cluster:
        produce(cluster)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t,u,t-2"}
        frame = spark.read.format("kconsumer").options(**options).load()
        selected = frame.where("topic = 'u'")
        assert [24, 72, 36] == [each.count() for each in (selected, frame, frame.where("offset % 2 = 0"))]
        assert 96 == selected.union(frame).count()


def outcome(frame: Any, where: str) -> Any:
    """Returns the sorted places of the rows that a condition selects, or the beginning of an error."""
    try:
        return sorted(map(tuple, frame.where(where).select("topic", "partition", "offset").collect()))
    except Exception as error:  # of Spark, for a cast that fails, for example
        return str(error)[:300]
