"""The Python blocks of docs/testing.md are files of tests that pass as they are printed. They need no broker."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

from support.harnesses.doc_blocks import BLOCKS

BLOCKS_OF_THE_PAGE = [block for block in BLOCKS if block.page == "docs/testing.md" and block.language == "python"]


def test_the_examples_pass(tmp_path: Path) -> None:
    """pytest runs each block as a file, with the plugin. Warnings are errors, and every block has a test."""
    for block in BLOCKS_OF_THE_PAGE:
        (tmp_path / f"test_line_{block.line}.py").write_text(block.text, encoding="utf-8")
    options = ["-q", "-ppytest_kconsumer", "-pno:asyncio", "-pno:cacheprovider", "--strict-markers", "-Werror"]
    command = [Path(sysconfig.get_path("scripts"), "pytest"), *options, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert passed is not None, done.stdout
    assert int(passed[1]) == sum(block.text.count("\ndef test_") for block in BLOCKS_OF_THE_PAGE)
    assert all("\ndef test_" in block.text for block in BLOCKS_OF_THE_PAGE)
    assert len(BLOCKS_OF_THE_PAGE) > 8
