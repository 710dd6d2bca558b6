"""The command `python -m kconsumer.spark.pipeline CONF.toml`. This file can also be passed to spark-submit.

Exit codes: 0 finished, or stopped by a signal; 1 failed, and can be started again; 2 the configuration is wrong; 130
ended by a second signal.
"""

from __future__ import annotations

import argparse
import logging
import sys

from kconsumer.errors import ConfigError, KafkaError
from kconsumer.spark.pipeline import dry_run, load, replay, run, status


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m kconsumer.spark.pipeline", description="Stream a Kafka topic to a table with Spark."
    )
    parser.add_argument("config", metavar="CONF.toml", help="file with source, valid rows, and sink of the pipeline")
    parser.add_argument("--dry-run", action="store_true", help="check everything and show the plan; write nothing")
    parser.add_argument("--status", action="store_true",
                        help="say where the pipeline is, running or not, and what is wrong with it; write nothing"
                        )  # fmt: skip
    parser.add_argument("--replay", nargs=2, metavar=("FROM", "TO"),
                        help="read a range of time again, such as 2026-05-01 2026-05-02T12:00, and write the valid rows"
                             " that the table lacks"
                        )  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="override a key of the file, such as run.trigger='10 seconds'; may be repeated"
                        )  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a pipeline. Returns the exit code."""
    given = arguments().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = load(given.config, given.overrides)
        if given.dry_run or given.status:
            found = dry_run(config) if given.dry_run else status(config)
            sys.stdout.write("".join(check.line() + "\n" for check in found))
            return int(any(check.level == "fail" for check in found))
        if given.replay:
            done = replay(config, *given.replay)
            sys.stderr.write(f"{done.records:,} records read, {done.invalid:,} of them invalid; {done.written:,} rows"
                             " were not in the table and have been written\n")  # fmt: skip
            return 0
        outcome = run(config)
    except ConfigError as error:
        sys.stderr.write(f"{given.config}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except (KafkaError, OSError) as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    how = "stopped" if outcome.stopped else "finished"
    sys.stderr.write(
        f"{how}: {outcome.rows:,} records in {outcome.batches} micro-batches, {outcome.invalid:,} of them invalid\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
