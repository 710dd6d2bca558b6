"""Random pipelines: names of columns, paths, crashes, and how they end."""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, run
from kconsumer.spark.pipeline.runner import PipelineError
from support.spark.killed_run import die_at, run_and_kill
from support.spark.spark_settings import session_settings

__all__ = ["BAD", "ROUNDS", "SEED", "counted", "crash", "document", "name", "plain", "rows"]

SEED = int(os.environ.get("KCONSUMER_PIPELINE_SEED", "1"))
ROUNDS = int(os.environ.get("KCONSUMER_PIPELINE_ROUNDS", "4"))  # the long form: 60
KILLS = ROUNDS > 4  # each takes a session of its own
USED = ["kafka_offset", "event_time", "date", "hour", "_reason", "_record", "_json", "_error", "_no_value", "_corrupt",
        "_kconsumer_json", "value", "valueError", "window_start"]  # fmt: skip
ODD = ["", " ", "select", "Order", "null", "s", "t", "a.b", "a b", "Ü", "u\u0308", "ß", "SS", "L" * 200]
LETTERS = "ab_.-` =/%#[]{}*?\\'\"$:;,()é☃"
BAD = b'{"id": "x"}'
PACKAGES = ("spark.jars", "spark.sql.", "spark.databricks.")  # settings of a session for its packages


class CrashError(Exception):
    """In place of the death of a driver."""


def name(rng: random.Random) -> str:
    """Returns a name of a column: one that the pipeline or SQL uses, perhaps in another case, or any characters."""
    if rng.random() < 0.6:
        text = rng.choice([*USED, *ODD])
        return rng.choice([text.upper(), text.title(), text])
    return rng.choice(["_", ".", "c", "C"]) + "".join(rng.choices(LETTERS, k=rng.randint(0, 4)))


def folder_name(rng: random.Random) -> str:
    """Returns a name of a folder. Hadoop does not allow all characters in one."""
    return rng.choice(["_", ".", "r"]) + "".join(rng.choices(LETTERS.translate({ord("/"): None, ord(":"): None}), k=4))


def crash(given: dict[str, Any], spark: Any, rng: random.Random, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Run a pipeline that may end at one of its steps: by an exception, or, in the long form, often by SIGKILL of all
    its processes.
    """
    step = rng.randint(0, 8)
    if KILLS and rng.random() < 0.5:
        own = {key: value for key, value in spark.sparkContext.getConf().getAll() if key.startswith(PACKAGES)}
        run_and_kill(given, session_settings() | own, step, folder.parent / "output")
        return

    def end() -> None:
        raise CrashError

    with patch.context() as patched:
        die_at(step, end, patched.setattr)
        with contextlib.suppress(PipelineError):
            run(parse(given), spark)


def spelled(rng: random.Random, path: Path) -> str:
    """Returns a path in one of the forms in which users write it."""
    return rng.choice([str(path), str(path), f"{path}/", f"file:{path}", f"file://{path}", os.path.relpath(path)])


def plain(place: str) -> Path:
    """Returns the folder that a pipeline writes to if it is given this path."""
    return Path(re.sub("^file:(//)?", "", place))


def rows(place: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of all files below a folder with the text of their partitions, as the files and folders have
    them.
    """
    import pyarrow.parquet as pq

    folder = plain(place)
    for file in folder.rglob("*.parquet"):
        parts = [part.split("=", 1) for part in file.relative_to(folder).parts[:-1]]
        named = {unquote(key): None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text) for key, text in parts}
        for row in pq.ParquetFile(file).read().to_pylist():
            yield row | named


def document(rng: random.Random, folder: Path, servers: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a random pipeline that reads a topic in several micro-batches, and the fields of its records."""
    fields = ["id", *dict.fromkeys(name(rng) for _ in range(rng.randint(1, 3)))]
    quoted = {field: "`" + field.replace("`", "``") + "`" for field in fields}
    sink: dict[str, Any] = {"path": spelled(rng, folder / folder_name(rng))}
    if rng.random() < 0.7:
        sink["partition_by"] = rng.sample([*fields[1:], "date"], rng.randint(0, 2))
    given = {
        "source": {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
                   "maxOffsetsPerTrigger": 15},
        "decode": {"schema": "`id` long, " + ", ".join(f"{quoted[field]} string" for field in fields[1:]),
                   "metadata": rng.choice([[], ["kafka_partition", "kafka_offset"]]),
                   "parser": rng.choice(["spark", "kconsumer"])},
        "dead_letters": {"path": spelled(rng, folder / f"dead{folder_name(rng)}")},
        "sink": sink,
        "run": {"checkpoint": spelled(rng, folder / f"checkpoint{folder_name(rng)}"), "start_timeout": 300},
    }  # fmt: skip
    return given, fields


@contextlib.contextmanager
def counted(outcomes: Counter[str], seed: int, given: object, nothing_written: Callable[[], bool]) -> Iterator[None]:
    """Count how the pipeline of the block ended. If it is refused, nothing may have been written."""
    try:
        yield
    except ConfigError as error:
        assert nothing_written(), (seed, given)
        outcomes[str(error)] += 1
    except BaseException:
        print("seed", seed, given)
        raise
    else:
        outcomes["written"] += 1
