"""Positions and partitions as users type them."""

from __future__ import annotations

import argparse

import pytest

from kconsumer.cli import positions
from kconsumer.cli.positions import Position, parse_partitions, parse_position

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position("earliest")),
        ("latest", Position("latest")),
        ("0", Position("offset", 0)),
        ("1500", Position("offset", 1500)),
        ("@1714564800000", Position("time", 1_714_564_800_000)),
        ("@2024-05-01", Position("time", 1_714_521_600_000)),
        ("@2024-05-01T12:00", Position("time", 1_714_564_800_000)),
        ("@2024-05-01T12:00:00.250Z", Position("time", 1_714_564_800_250)),
        ("@2024-05-01T14:00+02:00", Position("time", 1_714_564_800_000)),
        ("-100", Position("tail", 100)),
        ("-1h", Position("time", NOW_MS - 3_600_000)),
        ("-90s", Position("time", NOW_MS - 90_000)),
        ("-2d12h", Position("time", NOW_MS - 60 * 3_600_000)),
        ("-1w5m", Position("time", NOW_MS - 7 * 86_400_000 - 300_000)),
        ("-9999w", Position("time", 0)),
        (f"-{2**63 - 1}", Position("tail", 2**63 - 1)),
        ("0" * 20 + "7", Position("offset", 7)),
    ],
)
def test_positions(text: str, expected: Position, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time ago is relative to the present; other times are absolute, UTC unless they name an offset."""
    monkeypatch.setattr(positions, "_now_ms", lambda: NOW_MS)
    assert expected == parse_position(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("yesterday", ""),
        ("-1y", ""),
        ("--1", ""),
        ("1h", ""),
        ("-h", ""),
        ("@", ""),
        ("@1900-01-01", ""),
        (f"@{2**63}", ""),
        (f"-{2**63}", ""),
        ("9" * 5000, ""),
        (f"-{'9' * 5000}d", ""),
        ("", ""),
        ("2024-05-01T12:00", "; did you mean @2024-05-01T12:00?"),
    ],
)
def test_other_texts(text: str, hint: str) -> None:
    """Any other text is refused with the forms that there are, and with the form that was meant if that is known."""
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse_position(text)
    assert str(caught.value).startswith(f"{text!r} is not earliest, latest, an offset, -N, a time ago such as -1h, or")
    assert str(caught.value).endswith(f"@2024-05-01T12:00{hint}")


@pytest.mark.parametrize(("text", "expected"), [("0", [0]), ("2,0", [2, 0]), ("0,3-5", [0, 3, 4, 5]), ("7-7", [7])])
def test_partitions(text: str, expected: list[int]) -> None:
    """Partitions are numbers and ranges, separated by commas."""
    assert expected == parse_partitions(text)
