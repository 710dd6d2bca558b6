"""The tables of docs/guides/errors.md have each error class of the library once."""

from __future__ import annotations

import re
from pathlib import Path

from kconsumer import errors

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "errors.md"


def test_every_error_is_in_one_table() -> None:
    """Each class has one row."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    classes = {
        name
        for name in dir(errors)
        if isinstance(cls := getattr(errors, name), type) and issubclass(cls, errors.KafkaError)
    }
    assert sorted(classes) == sorted(rows)
