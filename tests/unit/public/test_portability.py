"""What tools/portability.py finds in Python sources."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "portability.py"))


def test_no_source_uses_what_a_platform_lacks() -> None:
    """Modules and functions that Windows or macOS lack are used only behind a check."""
    assert [] == TOOL["names"]()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import fcntl", {"fcntl"}),
        ("from os import fork", {"os", "os.fork"}),
        ("if sys.platform != 'win32':\n    os.fork()", set()),
        ("if sys.platform == 'win32':\n    pass\nelse:\n    os.fork()", set()),
        ("if hasattr(os, 'fork'):\n    os.fork()", set()),
        ("if ready:\n    os.fork()", {"os.fork"}),
    ],
)
def test_uses_on_windows(code: str, found: set[str]) -> None:
    """A name counts unless a check of the platform, or of the name, excludes it."""
    assert found == {name for _line, name in TOOL["uses"](ast.parse(code), "win32")}
