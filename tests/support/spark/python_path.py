"""The PYTHONPATH of processes that tests start: they import the packages that the test process imports."""

from __future__ import annotations

import os
from pathlib import Path

import kconsumer
import kconsumer_assignors

TESTS = Path(__file__).parents[2]


def python_path() -> str:
    """Returns the folders of kconsumer and its assignors, which may be installed or in the source tree, and tests/."""
    packages = (Path(str(package.__file__)).parents[1] for package in (kconsumer, kconsumer_assignors))
    return os.pathsep.join(dict.fromkeys(map(str, (*packages, TESTS))))
