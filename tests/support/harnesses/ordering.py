"""The order in which parallel workers run test files; a worker takes whole files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Move these files to the front, so that no worker starts one of them last. The others keep their order."""
    items.sort(key=lambda item: names.index(item.path.name) if item.path.name in names else len(names))
