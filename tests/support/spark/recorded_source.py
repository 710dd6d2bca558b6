"""Compares our source with Spark's own Kafka source, or with what was recorded of it.

Spark's source exists for one version of pyspark (`spark_jars.SPARK_VERSION`). With that version, `tox -e spark-parity`
runs both, and checks that the record is what Spark's source returns; KCONSUMER_RECORD=1 writes the record. With every
other version only ours runs, and its results must equal the record.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.spark.spark_jars import has_own_source
from support.spark.spark_parity import OURS, THEIRS, Outcome

RECORDED = Path(__file__).with_name("recorded_source.json")
RANDOM = re.compile(r"-[0-9a-f]{8}\b")  # in names of topics
NOW = datetime(2025, 1, 1)  # records written by tests with a time of their own are older


class Parity:
    """The comparisons of one test, which are recorded by the name of the test and their order."""

    def __init__(self, test: str) -> None:
        self._test, self._number = test, 0
        #: The formats that the test must read, ours first.
        self.sources = (OURS, THEIRS) if has_own_source() else (OURS,)

    def outcomes(self, found: Sequence[Outcome]) -> tuple[Outcome, Outcome]:
        """Returns the results of Spark's source and of ours in the form in which the former are recorded.

        `found`: the results of `sources`. In their place, the rows have the number of rows and a digest.
        """
        ours, *live = found
        for theirs in live:
            assert theirs.rows == ours.rows
            self._record(brief(theirs))
        name = f"{self._test} {self._number}"
        self._number += 1
        recorded = json.loads(RECORDED.read_text())[name]
        for theirs in live:
            assert recorded == brief(theirs)
        return Outcome(**recorded), Outcome(**brief(ours))

    def _record(self, found: dict[str, Any]) -> None:
        if os.environ.get("KCONSUMER_RECORD"):
            every = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
            every[f"{self._test} {self._number}"] = found
            lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every))
            RECORDED.write_text(f"{{\n{lines}\n}}\n")


def brief(outcome: Outcome) -> dict[str, Any]:
    """Returns an outcome as JSON has it, which is the same in each run: without random names and present times."""
    rows = RANDOM.sub("", repr(fixed(outcome.rows)))
    short = replace(outcome, rows=[(len(outcome.rows), sha256(rows.encode()).hexdigest()[:16])])
    text = RANDOM.sub("", json.dumps(asdict(short), sort_keys=True))
    found: dict[str, Any] = json.loads(text)
    return found


def fixed(value: Any) -> Any:
    """Returns a value with `now` in place of each time that is not one of the test, and without mutable types."""
    if isinstance(value, list | tuple):
        return [fixed(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return "now" if isinstance(value, datetime) and value >= NOW else value
