"""Print docstrings drawn at random, with file and line, for a reader who did not write them.

    python tools/sample_docstrings.py --seed 7 --count 100 [PATH...]

The same seed draws the same docstrings from the same tree. Paths limit the sample; without any it is drawn from the
whole library.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = [ROOT / "kconsumer", ROOT / "assignors", ROOT / "pyspark_kconsumer", ROOT / "pytest_kconsumer"]

CYTHON_DOCSTRING = re.compile(r'^(?P<indent>[ \t]*)"""(?P<text>.*?)"""', re.MULTILINE | re.DOTALL)
CYTHON_HEADER = re.compile(r"(?P<indent>[ \t]*)(?P<subject>(?:cdef|cpdef|def|class)\b.*?)(?::\s*)?(?:#.*)?")


class Docstring(NamedTuple):
    """A docstring of the library, and where it is."""

    path: str
    line: int
    subject: str
    text: str


def of_python(source: str, path: str) -> Iterator[Docstring]:
    """Yields the docstrings of a Python module, its own among them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                subject = "module" if isinstance(node, ast.Module) else node.name
                yield Docstring(path, node.body[0].lineno, subject, text)


def of_cython(source: str, path: str) -> Iterator[Docstring]:
    """Yields the docstrings of a Cython module, its own among them."""
    for match in CYTHON_DOCSTRING.finditer(source):
        subject = _cython_subject(source[: match.start()].splitlines(), len(match["indent"]))
        line = source.count("\n", 0, match.start()) + 1
        text = "\n".join(part.strip() for part in match["text"].strip().splitlines())
        yield Docstring(path, line, subject, text)


def _cython_subject(before: list[str], indent: int) -> str:
    """Returns the first line of the header that a docstring belongs to. It is the nearest one with less indentation.

    `before` contains the lines before the docstring, and `indent` is the docstring's indentation. Without a header the
    docstring is that of the module.
    """
    for line in reversed(before):
        header = CYTHON_HEADER.fullmatch(line)
        if header is not None and len(header["indent"]) < indent:
            return header["subject"]
    return "module"


def docstrings(paths: list[Path]) -> list[Docstring]:
    """Returns all docstrings below the paths, in the order of files and lines."""
    found: list[Docstring] = []
    for path in paths:
        for file in [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.pyx")]):
            name = str(file.resolve().relative_to(ROOT))
            read = of_python if file.suffix == ".py" else of_cython
            found += sorted(read(file.read_text(encoding="utf-8"), name), key=lambda each: each.line)
    return found


def main(arguments: list[str]) -> int:
    """Print the sample. Returns 2 if there are fewer docstrings than asked for."""
    parser = argparse.ArgumentParser(description="Print docstrings drawn at random, with file and line.")
    parser.add_argument("--seed", type=int, required=True, help="the same seed draws the same sample")
    parser.add_argument("--count", type=int, default=100, help="how many docstrings (100)")
    parser.add_argument("paths", nargs="*", type=Path, default=LIBRARY, help="files and folders (the library)")
    options = parser.parse_args(arguments)
    found = docstrings(options.paths)
    if len(found) < options.count:
        sys.stderr.write(f"there are only {len(found)} docstrings\n")
        return 2
    drawn = sorted(random.Random(options.seed).sample(found, options.count))
    for number, (path, line, subject, text) in enumerate(drawn, 1):
        indented = text.replace("\n", "\n    ")
        sys.stdout.write(f"{number}. {path}:{line} {subject}\n    {indented}\n\n")
    sys.stdout.write(f"{options.count} of {len(found)} docstrings, seed {options.seed}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
