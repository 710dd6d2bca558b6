"""`python -m kconsumer.spark.pipeline CONF.toml`; this file can be given to spark-submit as well.

Exit codes: 0 done or stopped as told, 1 it failed and may be started again, 2 the file has to be changed.
"""

from __future__ import annotations

import argparse
import logging
import sys

from kconsumer.errors import ConfigError, KafkaError
from kconsumer.spark.pipeline import dry_run, load, run


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m kconsumer.spark.pipeline", description="From a topic to a table.")
    parser.add_argument(
        "config", metavar="CONF.toml", help="what to run: where rows come from, what a good one is, where they go"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything, write nothing, show the plan")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="a key of the file with another value, such as run.trigger='10 seconds'")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run it; the exit code."""
    given = arguments().parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        config = load(given.config, given.overrides)
        if given.dry_run:
            found = dry_run(config)
            sys.stdout.write("".join(check.line() + "\n" for check in found))
            return int(any(check.level == "fail" for check in found))
        outcome = run(config)
    except ConfigError as error:
        sys.stderr.write(f"{given.config}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    except (KafkaError, OSError) as error:
        sys.stderr.write(f"failed: {error}\n")
        return 1
    how = "stopped" if outcome.stopped else "done"
    sys.stderr.write(
        f"{how}: {outcome.rows:,} records in {outcome.batches} micro-batches, {outcome.invalid:,} of them invalid\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
