"""Writes dead letters to files, one JSON object per line. They describe records that could not be read.

The path of a file contains the names of the query and the micro-batch, and the range of offsets. So a task that runs
again replaces its file, also if the range is another one or has no dead letters any more. A file is renamed to its path
when it is complete. `executor.py` decides which records become
dead letters.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from kconsumer.errors import ConfigError
from kconsumer.spark.offsets import LATEST
from kconsumer.spark.planning import OffsetRange

__all__ = ["DeadLetter", "encoded", "folder", "write"]


@dataclass(frozen=True)
class DeadLetter:
    """A range of offsets for which a query returns no rows, and the reason."""

    kind: str  # corrupt: fails its checks; undecodable: does not match valueFormat; lost: deleted before it was read
    topic: str
    partition: int
    start: int
    end: int  # exclusive
    reason: str
    key: str | None = None  # in base 64; only if the kind is undecodable
    value: str | None = None  # in base 64; only if the kind is undecodable


def encoded(data: bytes | None) -> str | None:
    """Returns `data` in base 64, or None if it is None."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def folder(path: str) -> Path:
    """Returns the folder that the option deadLetterPath names: a path, or a URL with the scheme `file`.

    Raises ConfigError for a URL with another scheme.
    """
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise ConfigError(
            f"deadLetterPath={path} is not in a file system: use a folder that all executors have mounted"
        )
    return Path(parts.path if parts.scheme else path)


def write(root: Path, run: tuple[str, ...], task: OffsetRange, found: Iterable[DeadLetter]) -> Path | None:
    """Write the dead letters of the range `task` to one file. Returns its path, or None if there are no dead letters.

    `run` contains the names of the query and the micro-batch, which become folders below `root`. Deletes the files of
    earlier attempts to read offsets of this range: the ranges of one attempt do not overlap.
    """
    lines = [json.dumps(asdict(letter)) + "\n" for letter in found]
    target = root.joinpath(*run, f"{quote(task.topic, safe='')}-{task.partition}-{task.start}-{task.end}.jsonl")
    for path in target.parent.glob(f"{quote(task.topic, safe='')}-{task.partition}-*.jsonl"):
        if path != target and _overlaps(path, task):
            path.unlink(missing_ok=True)
    if not lines:
        target.unlink(missing_ok=True)
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.writelines(lines)
    os.chmod(part, 0o644)
    os.replace(part, target)
    return target


def _overlaps(path: Path, task: OffsetRange) -> bool:
    """Returns whether a file is for a range of the same partition that has offsets in common with `task`."""
    found = re.fullmatch(r"-(-?\d+)-(-?\d+)", path.stem.removeprefix(f"{quote(task.topic, safe='')}-{task.partition}"))
    if found is None:  # another topic
        return False
    start, end = int(found[1]), int(found[2])
    return (end > task.start or end == LATEST) and (task.end > start or task.end == LATEST)
