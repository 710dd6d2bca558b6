"""Dead letters: writes records that could not be read to files, one JSON object per line.

A file is named after query, micro-batch and range and is renamed into place when it is complete. So a task that runs
again replaces its dead letters and adds none. `executor.py` decides which records become dead letters.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from kconsumer.errors import ConfigError
from kconsumer.spark.planning import OffsetRange

__all__ = ["DeadLetter", "folder", "write"]


@dataclass(frozen=True)
class DeadLetter:
    """A range of offsets that gave no row."""

    kind: str  # corrupt: fails its checks; undecodable: does not match valueFormat; lost: deleted before it was read
    topic: str
    partition: int
    start: int
    end: int  # exclusive
    reason: str
    key: str | None = None  # of a single record, in base 64, as is `value`
    value: str | None = None


def encoded(data: bytes | None) -> str | None:
    """Return bytes in base 64."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def folder(path: str) -> Path:
    """Return the folder of a deadLetterPath. Raises ConfigError for a URL that is not a path of a file system."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise ConfigError(
            f"deadLetterPath={path} is not in a file system: use a folder that all executors have mounted"
        )
    return Path(parts.path if parts.scheme else path)


def write(root: Path, run: tuple[str, ...], task: OffsetRange, found: Iterable[DeadLetter]) -> Path | None:
    """Write the dead letters of one range. Returns the file, or None without dead letters.

    `run` names the query and its micro-batch.
    """
    lines = [json.dumps(asdict(letter)) + "\n" for letter in found]
    target = root.joinpath(*run, f"{quote(task.topic, safe='')}-{task.partition}-{task.start}-{task.end}.jsonl")
    if not lines:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.writelines(lines)
    os.chmod(part, 0o644)
    os.replace(part, target)
    return target
