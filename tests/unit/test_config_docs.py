"""docs/options.md is what the option table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_options_page_is_current() -> None:
    """The page was written from the table as it is now."""
    command = [sys.executable, str(ROOT / "docs" / "make_options.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (0, "") == (done.returncode, done.stderr)
