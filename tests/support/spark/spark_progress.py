"""The texts in which Spark shows a query, which must not contain secrets."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any


def plan_of(frame: Any) -> str:
    """Returns the plans of a batch query in every form in which Spark prints them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain(mode="extended")
        frame.explain(mode="formatted")
    return shown.getvalue() + str(frame._jdf.queryExecution().toString())


def run_stream(frame: Any, table: str, folder: Path) -> str:
    """Run a stream into a table of the session until it has read all records. Returns progress, status and
    checkpoint.
    """
    query = frame.writeStream.format("memory").queryName(table).trigger(availableNow=True)
    running = query.option("checkpointLocation", str(folder)).start()
    running.awaitTermination(120)
    assert running.exception() is None
    written = "".join(path.read_text() for path in folder.rglob("[0-9]*") if path.is_file())
    return f"{running.lastProgress} {running.recentProgress} {running.status} {written}"
