"""The table of docs/guides/errors.md has each error class of the library once."""

from __future__ import annotations

import re
from pathlib import Path

from kconsumer import errors

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "errors.md"


def test_every_error_is_in_one_row() -> None:
    """Each class is named once."""
    table = PAGE.read_text(encoding="utf-8").split("\n| a program | errors |\n")[1]
    rows = re.findall(r"`(\w+Error)`", table)
    classes = {
        name
        for name in dir(errors)
        if isinstance(cls := getattr(errors, name), type) and issubclass(cls, errors.KafkaError)
    }
    assert sorted(classes) == sorted(rows)
