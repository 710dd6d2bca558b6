"""The pipeline's worked example: orders from a topic become cleaned Parquet and a table of revenue by the minute.

Starts Apache Kafka, writes orders, runs the pipeline of orders.toml, compares its outputs with the orders, and plots
the revenue. It stops everything that it starts, also on Ctrl-C. The exit code is 0 if all outputs are right.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import orders as shop
from plot import draw

from kconsumer.errors import KafkaError
from kconsumer.spark.pipeline import load, run

HERE = Path(__file__).resolve().parent
OUT = Path("build/pipeline")  # as orders.toml has it
TOPIC = "orders"
ORDERS = 200_000


def read(name: str) -> Any:
    """Return the output `name` of the pipeline as an Arrow table."""
    import pyarrow.dataset as ds

    return ds.dataset(OUT / name, format="parquet", partitioning="hive").to_table()


def revenue() -> dict[tuple[datetime, str], int]:
    """Return the revenue in cents that the pipeline has computed, by minute and country."""
    table = read("revenue").select(["window_start", "country", "cents"]).to_pylist()
    return {(row["window_start"].astimezone(UTC), row["country"]): row["cents"] for row in table}


def expected(count: int, minutes: set[datetime]) -> dict[tuple[datetime, str], int]:
    """Return the revenue in cents of the orders themselves, by minute and country.

    `minutes`: the minutes for which the pipeline has written the revenue; other minutes are left out.
    """
    found: Counter[tuple[datetime, str]] = Counter()
    for order in shop.orders(count):
        minute = datetime.fromtimestamp(order.ordered_at // 60_000 * 60, UTC)
        if minute in minutes:
            found[minute, order.country] += order.cents
    return dict(found)


def verify(count: int) -> int:
    """Compare the outputs with the orders, print the totals, and plot the revenue. Returns the exit code."""
    rows, letters, counted = read("orders"), read("dead_letters"), revenue()
    distinct = len(set(rows["order_id"].to_pylist()))
    minutes = {minute for minute, _ in counted}
    print(f"\n{count:,} orders written, {rows.num_rows:,} rows in {OUT / 'orders'}, {distinct:,} of them different")
    print(f"{shop.spoiled(count)} records were no orders, {letters.num_rows} are in {OUT / 'dead_letters'}:")
    for reason, number in Counter(letters["reason"].to_pylist()).most_common():
        print(f"  {number:4}  {reason}")
    print(f"{len(minutes)} minutes are closed, with a revenue of {sum(counted.values()) / 100:,.2f}:")
    by_country: Counter[str] = Counter()
    for (_, country), cents in counted.items():
        by_country[country] += cents
    for country, cents in by_country.most_common():
        print(f"  {country}  {cents / 100:14,.2f}")
    print(f"drawn in {draw(counted, OUT / 'revenue.png')}")
    wrong = [
        what
        for what, holds in (
            ("rows", count == rows.num_rows == distinct),
            ("dead letters", shop.spoiled(count) == letters.num_rows),
            ("revenue", bool(minutes) and expected(count, minutes) == counted),
        )
        if not holds
    ]
    print(f"FAILED: wrong {', '.join(wrong)}" if wrong else "every order was counted once")
    return int(bool(wrong))


def main() -> int:
    """Run the example and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=ORDERS, help="orders to write (default: %(default)s)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so everything is stopped
    logging.basicConfig(level=logging.ERROR)
    sys.path.append(str(HERE.parents[1] / "tests"))
    from support.brokers.kafka import KafkaCluster

    shutil.rmtree(OUT, ignore_errors=True)
    try:
        print("starting Apache Kafka (the first time Maven fetches it) …", flush=True)
        with KafkaCluster() as kafka:
            kafka.create_topic(TOPIC, shop.PARTITIONS, config={"retention.ms": "-1"})
            shop.fill(kafka.bootstrap_servers, TOPIC, args.orders, lambda _: None)
            print(f"{args.orders:,} orders are in topic {TOPIC!r}; starting Spark …", flush=True)
            started = monotonic()
            config = load(HERE / "orders.toml", [f"source.kafka.bootstrap.servers={kafka.bootstrap_servers}"])
            outcome = run(config)
            print(f"the pipeline took {outcome.rows:,} records in {monotonic() - started:.0f} s, with Spark's start")
        return 130 if outcome.stopped else verify(args.orders)
    except KeyboardInterrupt:
        print("\ninterrupted; everything the example started is stopped")
        return 130
    except (KafkaError, RuntimeError, OSError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
