"""Checks before a release, and its notes: release.py check v1.2.0 | notes 1.2.0 [CHANGELOG]

`check` compares the tag with the version of the package, which is in kconsumer/_version.py and nowhere else, and
requires a section of CHANGELOG.md with this version, a date and content. `notes` prints that section.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


class ReleaseError(SystemExit):
    """Ends the program with a message that says what to change."""


def version() -> str:
    """Returns the version of the package."""
    found = runpy.run_path(str(ROOT / "kconsumer" / "_version.py"))["VERSION"]
    assert isinstance(found, str)
    return found


def notes(changelog: str, wanted: str) -> str:
    """Returns the text of the changelog's section about a version, without its heading."""
    heading = re.compile(rf"^## \[{re.escape(wanted)}\] - \d{{4}}-\d{{2}}-\d{{2}}$", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section: give it the heading `## [{wanted}] - YYYY-MM-DD`")
    section = re.split(r"^## ", changelog[found.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError(f"the section [{wanted}] of CHANGELOG.md has no entry")
    return section


def check(tag: str, changelog: str) -> None:
    """Raise ReleaseError if this tag must not be released."""
    if tag != f"v{version()}":
        raise ReleaseError(
            f"the tag is {tag}, but kconsumer/_version.py says {version()}: the tag must be v{version()}"
        )
    notes(changelog, version())


def main(arguments: list[str]) -> None:
    """Run one of the commands that the docstring of this module lists."""
    match arguments:
        case ["check", tag]:
            check(tag, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
            print(f"{tag} may be released")
        case ["notes", wanted, *rest]:
            changelog = Path(rest[0]) if rest else ROOT / "CHANGELOG.md"
            print(notes(changelog.read_text(encoding="utf-8"), wanted))
        case _:
            raise ReleaseError(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
