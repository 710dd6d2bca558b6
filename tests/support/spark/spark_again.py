"""Undoes a stream's last micro-batch: it is planned and logged, but neither committed nor in the sink's own log.

A driver that is killed while a micro-batch runs leaves this state; the next run executes it again with the same
offsets.
"""

from __future__ import annotations

from pathlib import Path

from support.spark.spark_parity import Stream


def undo_last(stream: Stream) -> None:
    """Remove the records of Spark that the last micro-batch was completed."""
    for log in (stream.folder / "checkpoint" / "commits", stream.folder / "out" / "_spark_metadata"):
        last = newest(log)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def newest(log: Path) -> Path:
    """Returns the newest entry of one of Spark's logs."""
    return max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
