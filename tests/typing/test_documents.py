"""The programs of the documentation are type-checked, as a reader's editor does it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.harnesses.doc_blocks import BLOCKS, ROOT

# For programs of readers who write no types, and for libraries that have none or that are not installed.
ALLOWED = (
    *("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--allow-subclassing-any"),
    *("--no-warn-return-any", "--disable-error-code=import-untyped", "--disable-error-code=import-not-found"),
    "--no-warn-unused-ignores",  # of the library, which is checked without these options
)


def test_programs_of_the_documentation_type_check(tmp_path: Path) -> None:
    """`mypy --strict` finds no error in any program of the pages, apart from what lacks types."""
    files = {}
    for block in BLOCKS:
        if block.language == "python" and "kconsumer" in block.text:  # not those that a migration begins with
            file = tmp_path / f"{re.sub(r'[^a-z0-9]+', '_', block.page.lower())}_{block.line}.py"
            file.write_text("\n" * (block.line - 1) + block.text, encoding="utf-8")
            files[file.name] = block.page
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *ALLOWED, *map(str, sorted(tmp_path.iterdir()))]
    environment = {**os.environ, "MYPYPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    at = re.compile(r"^.*?(\w+\.py):", re.MULTILINE)
    found = at.sub(lambda match: f"{files.get(match[1], match[1])}:", done.stdout)
    assert "" == found, found
    assert 0 == done.returncode, done.stderr
    assert len(files) > 90
