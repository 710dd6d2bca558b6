"""Dead letters: what could not be read, one JSON object a line, in files that a task run again writes again.

A file is named after query, micro-batch and range, and appears whole; so a repeated task replaces its letters and adds
none. What is a letter and when is decided in `executor.py`.
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
    """Offsets from `start` up to, not including, `end` that gave no row.

    `kind`: `corrupt` (bytes that fail their checks), `undecodable` (a record that is not what valueFormat says) or
    `lost` (deleted before it was read). A single record's key and value are in base 64.
    """

    kind: str
    topic: str
    partition: int
    start: int
    end: int
    reason: str
    key: str | None = None
    value: str | None = None


def encoded(data: bytes | None) -> str | None:
    """Bytes for a letter."""
    return None if data is None else base64.b64encode(data).decode("ascii")


def folder(path: str) -> Path:
    """The folder of a deadLetterPath. ConfigError for what is not in a file system."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise ConfigError(
            f"deadLetterPath={path} is not in a file system: give a folder that all executors have mounted"
        )
    return Path(parts.path if parts.scheme else path)


def write(root: Path, run: tuple[str, ...], task: OffsetRange, letters: Iterable[DeadLetter]) -> Path | None:
    """Write the letters of one task of a run (a query and its micro-batch), None if there are none."""
    lines = [json.dumps(asdict(letter)) + "\n" for letter in letters]
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
