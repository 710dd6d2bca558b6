"""In which order files of tests run on parallel workers, of which each takes whole files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """These files go first, so that in the end no worker ends with one of them; the others as they are."""
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))
