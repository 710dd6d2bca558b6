"""Find words that this project does not use, in files and folders: python tools/language_check.py PATH...

The words are the table at the end of docs/design/glossary.md. They are looked for in everything that a file says:
identifiers (`last_answer` and `LastAnswer` contain "answer"), docstrings, comments, messages and prose.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs" / "design" / "glossary.md"
HEADING = "## Words that are not used"
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}


class Finding(NamedTuple):
    """A forbidden word in a text."""

    line: int
    word: str
    instead: str


def forbidden_words(glossary: str) -> dict[str, str]:
    """Returns the words and phrases of the glossary's table, each with what is said instead."""
    table = glossary.partition(HEADING)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {word.strip().lower(): row[1] for row in rows[2:] for word in row[0].split(",")}


def pattern(words: dict[str, str]) -> re.Pattern[str]:
    """Returns an expression that matches any of the words; a phrase may be spread over lines of a comment."""
    longest_first = sorted(words, key=len, reverse=True)
    choices = "|".join(re.escape(word).replace("\\ ", r"[\s#]+") for word in longest_first)
    return re.compile(rf"\b(?:{choices})\b", re.IGNORECASE)


def findings(text: str, words: dict[str, str]) -> Iterator[Finding]:
    """Yields each forbidden word of a text, identifiers being read as the words they are made of."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
    for match in pattern(words).finditer(spaced):
        word = re.sub(r"[\s#]+", " ", match[0]).lower()
        yield Finding(spaced.count("\n", 0, match.start()) + 1, word, words[word])


def files(paths: list[Path]) -> Iterator[Path]:
    """Yields the files among the paths and below them that people read; not the glossary, which lists the words."""
    for path in paths:
        inside = path.rglob("*") if path.is_dir() else [path]
        yield from sorted(file for file in inside if file.suffix in SUFFIXES and file.resolve() != GLOSSARY)


def main(arguments: list[str]) -> int:
    """Print the findings in the paths of the command line. Returns 1 if there are any."""
    words = forbidden_words(GLOSSARY.read_text(encoding="utf-8"))
    found = 0
    for file in files([Path(argument) for argument in arguments]):
        for line, word, instead in findings(file.read_text(encoding="utf-8"), words):
            sys.stdout.write(f'{file}:{line}: "{word}": say {instead}\n')
            found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
