"""Makes a stream's last micro-batch undone: planned and logged, but neither finished nor in the sink's own log.

That is what a driver leaves that was killed while a micro-batch ran; the next run does it again, with the same offsets.
"""

from __future__ import annotations

from pathlib import Path

from support.spark.spark_parity import Stream


def undo_last(stream: Stream) -> None:
    """Forget that the last micro-batch was done."""
    for log in (stream.folder / "checkpoint" / "commits", stream.folder / "out" / "_spark_metadata"):
        last = newest(log)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def newest(log: Path) -> Path:
    """The last entry of one of Spark's logs."""
    return max((path for path in log.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
