"""Prints the line CIBW_BUILD=… for one platform of the wheels workflow: wheel_builds.py '*-manylinux_x86_64'

The Pythons are those of `build` in [tool.cibuildwheel] of pyproject.toml; a job builds them for its platform only.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def builds(platform: str) -> str:
    """Returns the selectors of all Pythons on a platform, which is a selector such as `*-win_amd64`."""
    pythons = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["cibuildwheel"]["build"]
    return " ".join(python.removesuffix("-*") + platform.removeprefix("*") for python in pythons)


if __name__ == "__main__":
    print(f"CIBW_BUILD={builds(sys.argv[1])}")
