"""Reads how far a pipeline is, from the checkpoint of its queries, and stores who runs it.

Spark writes a file for each micro-batch: `offsets/N` before the micro-batch runs, with the offsets where it ends, and
`commits/N` afterwards. So a micro-batch that has only the first file is running, or was interrupted. `run.json` is
written by the pipeline itself: which process runs it, or how the last run ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from kconsumer.spark.offsets import from_document
from kconsumer.types import TopicPartition

__all__ = ["CheckpointFiles", "LocalFiles", "QueryProgress", "RunNote", "local_folder", "query_progress", "read_note"]

NOTE = "run.json"


class CheckpointFiles(Protocol):
    """Files below the folder of a checkpoint. Paths are relative to it."""

    def times(self, folder: str) -> dict[str, int]:
        """Returns the names of the files in a folder, with the times (ms since 1970) at which they were written."""
        ...

    def text(self, path: str) -> str | None:
        """Returns what a file contains, or None if it does not exist."""
        ...


class LocalFiles:
    """A checkpoint on a disk of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def times(self, folder: str) -> dict[str, int]:
        """As `CheckpointFiles.times`."""
        path = self._root / folder
        return {each.name: int(each.stat().st_mtime * 1000) for each in path.iterdir()} if path.is_dir() else {}

    def text(self, path: str) -> str | None:
        """As `CheckpointFiles.text`."""
        file = self._root / path
        return file.read_text(encoding="utf-8") if file.is_file() else None


def local_folder(path: str) -> Path | None:
    """Returns the folder of this machine that `path` names, or None if there is none, as for `hdfs://…`."""
    folder = Path(re.sub("^file:(//[^/]*)?", "", path))  # Hadoop reads `%20` and `#` in such a URL as they are
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class QueryProgress:
    """How far a query is. Numbers are those of micro-batches, -1 if there was none."""

    planned: int  # the newest micro-batch whose offsets were stored
    planned_ms: int  # when they were stored, in ms since 1970
    planned_ends: Mapping[TopicPartition, int]  # the offsets where it ends
    done: int  # the newest micro-batch that has finished
    done_ms: int
    done_ends: Mapping[TopicPartition, int]  # the offsets up to which everything is written


def query_progress(files: CheckpointFiles, query: str) -> QueryProgress | None:
    """Returns how far the query `query` (`rows` or `windows`) is, or None if it has not planned a micro-batch yet."""
    offsets, commits = (_numbered(files.times(f"{query}/{name}")) for name in ("offsets", "commits"))
    if not offsets:
        return None
    planned, done = max(offsets), max(commits, default=-1)
    return QueryProgress(
        planned, offsets[planned], _ends(files, query, planned),
        done, commits.get(done, 0), _ends(files, query, done),
    )  # fmt: skip


def _numbered(times: Mapping[str, int]) -> dict[int, int]:
    return {int(name): when for name, when in times.items() if name.isdigit()}


def _ends(files: CheckpointFiles, query: str, number: int) -> dict[TopicPartition, int]:
    """Returns the offsets where a micro-batch ends, {} if Spark has deleted its file or has not written all of it.

    The file is a version, a line about the micro-batch, and a line for each source. A pipeline has one source.
    """
    lines = (files.text(f"{query}/offsets/{number}") or "").splitlines()
    try:
        return from_document(json.loads(lines[2])) if len(lines) > 2 else {}
    except (ValueError, AttributeError):
        return {}


@dataclass(frozen=True)
class RunNote:
    """Which process runs the pipeline, or how its last run ended."""

    state: str  # running, stopped, finished or failed
    time_ms: int  # since when, in ms since 1970
    host: str
    pid: int
    version: str  # of kconsumer
    error: str = ""

    def to_json(self) -> str:
        """Returns the note as the text of its file."""
        return json.dumps(asdict(self))


def read_note(files: CheckpointFiles) -> RunNote | None:
    """Returns the note in a checkpoint, or None if there is none that can be read."""
    try:
        found: dict[str, Any] = json.loads(files.text(NOTE) or "")
        known = {each.name for each in fields(RunNote)}  # a later version may write more
        return RunNote(**{name: value for name, value in found.items() if name in known})
    except (ValueError, TypeError, AttributeError):  # an earlier version wrote none; a process may have died meanwhile
        return None
