"""Files, modules, classes and attributes that docs/design names exist, and the file map has every module.

Reads sources, so it needs no build. When it fails, the page or the name in the message is out of date.
"""

from __future__ import annotations

import ast
import builtins
import re
import runpy
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "kconsumer"
DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
PAGES = [*DESIGN, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
ALL_PAGES = sorted({*PAGES, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")})
FILE_MAP = runpy.run_path(str(ROOT / "docs" / "site" / "file_map.py"))

IN_TICKS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"[\w*][\w.*-]*(?:/[\w.*-]+)*(?:/|\.(?:py|pyx|pxd|pyi|h|md|toml|ini|cfg))")
NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*|\w+(?:\.\w+)+")

# Names that are not part of this library, each with its origin.
FOREIGN = {
    "PyThreadState_SetAsyncExc": "CPython",
    "_signal.signal": "CPython",
    "os.fork": "Python",
    "concurrent.interpreters": "Python",
    "connections.max.reauth.ms": "an option of brokers",
    "last.offset": "a variable of an example",
    "record.value": "a variable of an example",
    "pushFilters": "pyspark",
    "sasl.jaas.config": "an option by Java's name",
}


def words(page: Path) -> set[str]:
    """Returns what the page has in backticks, outside of code blocks, and of the Java table only our names."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    before, java, table = text.partition("\n| Java | here |\n")
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")] if java else []
    return {word.removesuffix("()") for word in IN_TICKS.findall("\n".join([before, *rows]))}


@cache
def tree() -> set[str]:
    """Returns every file of the project, relative to its root."""
    folders = (
        "kconsumer",
        "assignors",
        "docs",
        "tests",
        "examples",
        "benchmarks",
        "tools",
        "pyspark_kconsumer",
        "pytest_kconsumer",
    )
    found = {str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()}
    return found | {path.name for path in ROOT.iterdir()}


def exists(path: str) -> bool:
    """Returns whether a path of a page is one from the root or from `kconsumer/`, or the last part of a name there."""
    folder = path.endswith("/")
    pattern = re.escape(path).replace(r"\*", "[^/]*")
    anywhere = "" if "/" in path.rstrip("/") else "(?:.*/)?"
    whole = re.compile(f"(?:kconsumer/|tests/)?{anywhere}{pattern}" + (".*" if folder else ""))
    return any(whole.fullmatch(file) for file in tree())


@cache
def definitions() -> dict[str, set[str]]:
    """Returns the names that each module and each class has; modules by their path from `kconsumer`, with dots.

    A class also has the names of its base classes.
    """
    found: dict[str, set[str]] = {}
    bases: list[tuple[str, str]] = []
    for path in [*LIBRARY.rglob("*.py"), *LIBRARY.rglob("*.pyi")]:
        module = ".".join(path.relative_to(LIBRARY).with_suffix("").parts).removesuffix(".__init__")
        _add_module(ast.parse(path.read_text(encoding="utf-8")), found.setdefault(module, set()), found, bases)
    for name, base in bases:
        found[name] |= found.get(base, set())
    return found


def _add_module(module: ast.Module, names: set[str], found: dict[str, set[str]], bases: list[tuple[str, str]]) -> None:
    for node in module.body:
        names |= _targets(node)
        if isinstance(node, ast.ClassDef):
            named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            bases += [(node.name, base.id) for base in named if isinstance(base, ast.Name)]
            own = found.setdefault(node.name, set())
            for inner in ast.walk(node):
                own |= _targets(inner)
                if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
                    own.add(inner.attr)


def _targets(node: ast.AST) -> set[str]:
    """Returns the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def known(name: str) -> bool:
    """Returns whether a dotted name is a module, a class, or an attribute of one; `kconsumer.` may precede it."""
    name = name.removeprefix("kconsumer.")
    if name in FOREIGN or name in definitions() or hasattr(builtins, name):
        return True
    before, _, last = name.rpartition(".")
    if not before:
        return any(name in names for names in definitions().values())
    if "." in before and before not in definitions():  # module.Class.attribute
        return known(before) and last in definitions().get(before.rpartition(".")[2], set())
    return last in definitions().get(before, set())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    """A path in backticks is a file or folder of the project; a link leads to one."""
    assert [] == sorted(word for word in words(page) if PATH.fullmatch(word) and not exists(word))
    text = page.read_text(encoding="utf-8")
    links = {link for link in LINK.findall(text) if "://" not in link}
    assert [] == sorted(link for link in links if not (page.parent / link).exists())


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_every_name_exists(page: Path) -> None:
    """A class, a module or an attribute in backticks is one of the library."""
    names = {word for word in words(page) if NAME.fullmatch(word) and not PATH.fullmatch(word)}
    assert [] == sorted(name for name in names if not known(name))


def test_the_file_map_has_a_sentence_for_every_module() -> None:
    """Every module of the library is in the section of its folder, and begins with a docstring."""
    listed, folder = {}, ""
    for line in FILE_MAP["file_map"]().splitlines():
        if heading := re.fullmatch(r"## `(.*)/`", line):
            folder = "" if heading[1] == "kconsumer" else f"{heading[1]}/"
        elif row := re.match(r"\| `([\w.]+)` \| (.*) \|$", line):
            listed[folder + row[1]] = row[2]
    modules = [path for suffix in ("py", "pyx") for path in LIBRARY.rglob(f"*.{suffix}") if path.name != "__init__.py"]
    assert sorted(str(path.relative_to(LIBRARY)) for path in modules) == sorted(listed)
    assert [] == [module for module, sentence in listed.items() if not sentence]


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_and_lists_have_their_own_lines(page: Path) -> None:
    """No tool has joined the rows of a table or the items of a list into a paragraph, which a browser shows as text."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    joined = [line for line in text.splitlines() if re.search(r"\| \| ?:?-{3}|^\s*[-*] .*\. [-*] [A-Z`*]", line)]
    assert joined == []
