"""Finds the fenced code blocks of the documentation, and runs those in Python as a reader would.

A block's info string is its language, and `not-run` if tests cannot run it.  `read_until_the_end` stands for the reader
who presses Ctrl-C when a program has printed every record of its topic.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from kconsumer import Consumer

ROOT = Path(__file__).parents[3]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "assignors/README.md",
    "examples/custom_assignor/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)
NOT_RUN = "not-run"
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int  # of its first line of code
    language: str
    runs: bool  # False: marked `not-run`
    text: str

    @property
    def name(self) -> str:
        """Page and line, as test id and file name."""
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """Returns all fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *marks = match[1].split() or [""]
        assert marks in ([], [NOT_RUN]), f"{page}: unknown mark in ```{match[1]}"
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, language, not marks, match[2]))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def indented_blocks(page: str) -> list[str]:
    """Returns the code blocks that are marked by indentation alone, which no test would find."""
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return re.findall(r"\n\n( {4}(?! *[-*0-9]).+)", text)


def run_python(block: Block, replaced: Mapping[str, str]) -> dict[str, Any]:
    """Execute a block in an empty module, with these texts replaced, and return its names.

    Ctrl-C (see `read_until_the_end`) ends a program as a user ends it.
    """
    text = block.text
    for before, after in replaced.items():
        text = text.replace(before, after)
    module = ModuleType("block")
    padding = "\n" * (block.line - 1)  # so that tracebacks show the line of the page
    sys.modules[module.__name__] = module  # dataclasses find their module there
    try:
        with suppress(KeyboardInterrupt):
            exec(compile(padding + text, ROOT / block.page, "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module.__dict__


def read_until_the_end(monkeypatch: pytest.MonkeyPatch, sizes: Mapping[str, int]) -> None:
    """Let polls raise KeyboardInterrupt once a consumer has returned all records of the topics it subscribes to.

    `sizes` has the number of records of each topic; other topics have no end.
    """
    returned: WeakKeyDictionary[Consumer, int] = WeakKeyDictionary()

    def counted(method: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        @wraps(method)
        def poll(self: Consumer, *arguments: Any, **options: Any) -> Any:
            if returned.get(self, 0) >= sum(sizes.get(topic, math.inf) for topic in self.subscription()):
                raise KeyboardInterrupt
            batch = method(self, *arguments, **options)
            returned[self] = returned.get(self, 0) + size(batch)
            return batch

        return poll

    monkeypatch.setattr(Consumer, "poll", counted(Consumer.poll, len))
    monkeypatch.setattr(Consumer, "poll_arrow", counted(Consumer.poll_arrow, lambda batch: batch.num_rows))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a `console` block, each with the output that the page shows."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output
