"""Reads which modules of a package import which, and finds circles.

Reads source files only, so that it needs neither a build nor the package. Imports for the type checker alone (under
`if TYPE_CHECKING:`, and in stubs) count like all others, and those inside functions, too: a reader of a module has to
know what it names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", re.MULTILINE)

Graph = dict[str, set[str]]


class ImportFinder(ast.NodeVisitor):
    """Collects every module named by an import statement."""

    def __init__(self, root: Path, *, typing: bool) -> None:
        self.found: list[str] = []
        self._root = root
        self._typing = typing

    def visit_If(self, node: ast.If) -> None:
        """Skip imports for the type checker alone, unless they count."""
        if self._typing or not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """`import a.b`."""
        self.found += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`, where b may be a module or a name of a."""
        assert node.level == 0, "imports are absolute"
        assert node.module is not None
        folder = self._root.joinpath(*node.module.split("."))
        for alias in node.names:
            places = (folder / f"{alias.name}.py", folder / f"{alias.name}.pyx", folder / alias.name)
            self.found.append(f"{node.module}.{alias.name}" if any(p.exists() for p in places) else node.module)


@cache
def imports(path: Path, root: Path, *, typing: bool = True) -> tuple[str, ...]:
    """Returns the modules that a source file imports or cimports; `root` is the folder of the packages.

    With `typing=False`, imports for the type checker alone are left out.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".py", ".pyi"):
        finder = ImportFinder(root, typing=typing)
        finder.visit(ast.parse(text))
        return tuple(finder.found)
    return tuple(first or second for first, second in CYTHON_IMPORT.findall(text))


def sources(root: Path, package: str) -> list[Path]:
    """Returns the source files of a package."""
    return sorted(path for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd") for path in (root / package).rglob(pattern))


def module_of(path: Path, root: Path) -> str:
    """Returns the name of the module that a file is, or is a part of; a package is its `__init__.py`.

    The folder with the parts of a compiled module has the name of the module.
    """
    if path.parent.with_suffix(".pyx").exists():
        path = path.parent
    return ".".join(part for part in path.relative_to(root).with_suffix("").parts if part != "__init__")


def module_graph(root: Path, package: str) -> Graph:
    """Returns which modules of a package import which."""
    paths = sources(root, package)
    modules = {module_of(path, root) for path in paths}
    graph: Graph = {module: set() for module in modules}
    for path in paths:
        module = module_of(path, root)
        graph[module] |= {name for name in imports(path, root) if name in modules} - {module}
    return graph


def package_graph(graph: Mapping[str, Iterable[str]], root: Path) -> Graph:
    """Returns which packages import which; a module outside any package below the first stands for itself."""

    def package(module: str) -> str:
        parent = module.rpartition(".")[0]
        return module if "." not in parent or root.joinpath(*module.split("."), "__init__.py").exists() else parent

    packages: Graph = {}
    for module, imported in graph.items():
        packages.setdefault(package(module), set()).update(package(other) for other in imported)
    return {name: others - {name} for name, others in packages.items()}


def circles(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Returns the groups of nodes that all reach each other (Tarjan's strongly connected components)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(node: str) -> Iterator[tuple[str, ...]]:
        numbers[node] = lowest[node] = len(numbers)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in numbers:
                yield from visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], numbers[other])
        if lowest[node] == numbers[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                yield tuple(sorted(members))

    return [circle for node in sorted(graph) if node not in numbers for circle in visit(node)]
