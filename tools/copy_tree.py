"""Copy the tracked and new files of this tree to a folder, for builds that must not mix with the one in place.

Object files and generated C do not record the flags of their build, so the trace and asan builds each have a folder of
their own: copy_tree.py DESTINATION. Files whose content is unchanged are not copied again, so a second build compiles
only what changed.
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
    """Copy to the DESTINATION of the command line what a commit would contain now. Results of builds there stay."""
    copy_tree(Path(sys.argv[1]))


def copy_tree(destination: Path) -> None:
    """Copy every tracked or new file whose copy differs, and remove copies of deleted sources."""
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
