"""Parses positions in logs, such as `earliest`, an offset or a time, and lists of partitions."""

from __future__ import annotations

import argparse
import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from kconsumer._core.lock import Clock

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
POSITION_HELP = (
    "A POSITION is earliest, latest, an offset, -N for N offsets before the end of each partition, a time ago such as "
    "-1h or -2d12h (units: s m h d w), or a time such as @2024-05-01T12:00 (ISO-8601, UTC by default) or "
    "@1714564800000 (ms since 1970). A time means the first record that is not older."
)
_NUMBER = "0{0,99}[0-9]{1,19}"  # what may fit into an int64; Python converts no longer text
_AGO = re.compile(f"-((?:{_NUMBER}[smhdw])+)")


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a log."""

    kind: str  # earliest, latest, offset, tail or time
    value: int = 0  # the offset, how many offsets before the end, or the time in ms since 1970


def parse_position(text: str) -> Position:
    """Parse `earliest`, `latest`, an offset, `@` followed by a time, or `-` followed by a number or a duration.

    The time is in ms since 1970 or in ISO-8601 (UTC by default). Raises ArgumentTypeError for other text.
    """
    if text in ("earliest", "latest"):
        return Position(text)
    plain = re.fullmatch(f"([-@]?)({_NUMBER})", text)
    if plain is not None and int(plain[2]) < 1 << 63:
        return Position({"": "offset", "-": "tail", "@": "time"}[plain[1]], int(plain[2]))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        parts = re.findall(r"([0-9]+)([smhdw])", ago[1])
        return Position("time", max(0, _now_ms() - sum(int(number) * UNITS_MS[unit] for number, unit in parts)))
    moment = _iso_time(text.removeprefix("@"))
    if moment is not None and moment >= 0 and text.startswith("@"):
        return Position("time", moment)
    hint = f"; did you mean @{text}?" if moment is not None and not text.startswith("@") else ""
    raise argparse.ArgumentTypeError(
        f"{text!r} is not earliest, latest, an offset, -N, a time ago such as -1h, "
        f"or a time such as @1714564800000 or @2024-05-01T12:00{hint}"
    )


def parse_partitions(text: str) -> list[int]:
    """Parse numbers of partitions, such as `0` or `0,3-5`. Raises ArgumentTypeError for other text."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of a partition, or a list such as 0,3-5")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def _iso_time(text: str) -> int | None:
    """Returns a time in ISO-8601 as ms since 1970, or None for other text."""
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    return None


def _now_ms() -> int:
    """Returns the present time in ms since 1970. Tests replace this function."""
    return Clock().wall_ms()
