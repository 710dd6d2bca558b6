"""Prints every module of the library, by folder, with the first sentence of its docstring, in Markdown.

    python docs/site/file_map.py [FOLDER]

The documentation site has the same text as a page of its section "Design" (`hooks.py`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[2] / "kconsumer"
HEAD = "# File map\n\nEvery module of the library, by folder, with the first sentence of its docstring.\n"


def file_map(folder: str = "") -> str:
    """Return the sections of a folder of `kconsumer/` and of those in it; by default those of all folders."""
    sections = []
    for path in [LIBRARY / folder, *sorted((LIBRARY / folder).rglob("*/"))]:
        rows = [f"| `{module.name}` | {sentence(module)} |" for module in modules(path)]
        if rows:
            name = path.relative_to(LIBRARY.parent if path == LIBRARY else LIBRARY)
            sections.append("\n".join([f"## `{name}/`", "", "| file | content |", "| --- | --- |", *rows, ""]))
    return "\n".join([HEAD, *sections])


def modules(folder: Path) -> Iterator[Path]:
    """Yield the modules of a folder, without those that only make it a package."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".py", ".pyx") and path.name != "__init__.py":
            yield path


def sentence(module: Path) -> str:
    """Return the first sentence of the docstring of a module, or "" if it has none."""
    text = module.read_text(encoding="utf-8")
    docstring = (ast.get_docstring(ast.parse(text)) if module.suffix == ".py" else _first_literal(text)) or ""
    return re.split(r"(?<=\.)\s|\n\s*\n", docstring.strip())[0].replace("\n", " ").replace("|", "\\|")


def _first_literal(text: str) -> str:
    found = re.search(r'"""(.*?)"""', text, re.DOTALL)
    return found[1] if found else ""


if __name__ == "__main__":
    print(file_map(*sys.argv[1:2]))
