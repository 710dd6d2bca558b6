"""Copy the tracked and new files of this tree elsewhere, for builds that must not mix with the one in place.

Object files and generated C say nothing about the flags they were made with, so the trace and asan builds each get a
folder of their own: copy_tree.py DESTINATION.  Files whose content is unchanged are left alone, so a second build
compiles only what changed.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (".py", ".pyi", ".pyx", ".pxd")


def main() -> None:
    """Make DESTINATION hold what a commit made now would hold, besides what a build left there."""
    copy_tree(Path(sys.argv[1]))


def copy_tree(destination: Path) -> None:
    """Copy every file that is tracked or new, unless the copy is the same already; remove sources that are gone."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split("\0")
    for copy in destination.rglob("*.p*"):
        if copy.suffix in SOURCES and not (ROOT / copy.relative_to(destination)).exists():
            copy.unlink()
    for name in filter(None, names):
        source, target = ROOT / name, destination / name
        if not source.is_file() or (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


if __name__ == "__main__":
    main()
