"""What tools/portability.py finds in Python sources, and which C files it reuses."""

from __future__ import annotations

import ast
import os
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


@pytest.mark.parametrize(
    ("changed", "current"), [(None, True), ("codec.pyx", False), ("codec.pxd", False), ("wire.pxd", False)]
)
def test_c_files_that_are_generated_again(changed: str | None, current: bool, tmp_path: Path) -> None:
    """A C file is reused only if neither its .pyx file nor a .pxd file has changed since."""
    for name in ("codec.pyx", "codec.pxd", "wire.pxd", "codec.c"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (100, 300 if name == changed else 200))
    assert current is TOOL["is_current"](tmp_path / "codec.c", tmp_path / "codec.pyx")
