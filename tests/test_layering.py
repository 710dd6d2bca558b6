"""Holds the tree to the layering rule: who may import whom (docs/design/overview.md).

Reads `import` and `cimport` lines, so it needs neither a build nor a broker.  Imports for the type checker
alone (under `if TYPE_CHECKING:`) are free: they tie nothing together when the program runs.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FACTS = {
    "backoff",
    "error_codes",
    "error_tables",
    "errors",
    "transitions",
    "types",
    "deferred_calls",
    "repeated_failures",
}
TOOLS = (
    FACTS
    | {"clock", "_core", "schema", "config", "compression"}
    | {"assignors", "listener", "metrics", "deserializers"}
)
MANAGED = TOOLS | {"state", "records", "managers", "metadata", "offsets", "coordinator", "fetching"}
PUBLIC = MANAGED | {
    "_foreign_methods",
    "net",
    "engine",
    "arrow",
    "decode",
    "consumer",
    "groups",
    "ranges",
    "deferred_signals",
    "offset_arguments",
    "_version",
}

# Layer (the name after `kconsumer.`) -> the layers it may import besides itself.
ALLOWED: dict[str, set[str]] = {
    "backoff": set(),
    "error_codes": set(),
    "error_tables": {"error_codes"},
    "errors": {"error_codes"},
    "transitions": {"errors"},
    "types": set(),
    "clock": set(),
    "deferred_calls": set(),
    "repeated_failures": set(),
    "deferred_signals": set(),
    "_version": set(),
    "_core": {"errors", "types"},
    "schema": set(),
    "_foreign_methods": set(),
    "config": FACTS | {"_core"},
    "compression": FACTS | {"_core"},
    "records": FACTS | {"_core", "_foreign_methods", "compression", "arrow"},
    "arrow": FACTS | {"_core"},
    "assignors": FACTS | {"_core", "_version"},
    "listener": FACTS | {"_core"},
    "metrics": FACTS,
    "deserializers": FACTS,
    "offset_arguments": FACTS | {"_core", "records"},
    "decode": FACTS | {"_core", "records", "compression", "arrow"},
    "net": FACTS | {"_version", "_core", "schema", "config", "clock", "metrics"},
    "state": FACTS | {"schema"},
    "managers": FACTS | {"schema", "clock"},
    "metadata": TOOLS | {"state", "managers"},
    "offsets": TOOLS | {"state", "managers", "metadata", "coordinator"},
    "coordinator": TOOLS | {"state", "managers", "metadata"},
    "fetching": TOOLS | {"state", "records", "managers", "metadata", "coordinator"},
    "engine": MANAGED | {"net", "arrow", "_version", "deferred_signals"},
    "consumer": PUBLIC,
    "groups": PUBLIC,
    "ranges": PUBLIC,
    "aio": PUBLIC,
    "testing": PUBLIC,
    "spark": {"", "arrow", "clock", "config", "errors", "ranges", "types"},
    "cli": {"", "arrow", "assignors", "clock", "config", "engine", "errors", "groups", "types"},
    "__main__": {"cli"},
    "": PUBLIC | {"aio", "testing"},  # kconsumer/__init__.py gathers the public names
}

CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", re.MULTILINE)


class ImportFinder(ast.NodeVisitor):
    """Collects every module named by an import statement that may run, at any depth."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_If(self, node: ast.If) -> None:
        """Pass over what only the type checker reads."""
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        """`import a.b`."""
        self.found += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`, where b may be a module of the package itself."""
        assert node.level == 0, "imports are absolute"
        if node.module == "kconsumer":
            self.found += [submodule_or_package(alias.name) for alias in node.names]
        else:
            self.found.append(str(node.module))


def submodule_or_package(name: str) -> str:
    """Return what `from kconsumer import name` imports: a module of the package, or a name of the package itself."""
    places = (ROOT / "kconsumer" / f"{name}.py", ROOT / "kconsumer" / name)
    return f"kconsumer.{name}" if any(place.exists() for place in places) else "kconsumer"


def imports(path: Path) -> list[str]:
    """The modules a source file imports or cimports."""
    text = path.read_text()
    if path.suffix == ".py":
        finder = ImportFinder()
        finder.visit(ast.parse(text))
        return finder.found
    return [first or second for first, second in CYTHON_IMPORT.findall(text)]


def layer_of(module: str) -> str:
    """The layer a module of kconsumer is in: `kconsumer.net.client` -> `net`."""
    return [*module.split("."), ""][1]


SOURCES = sorted(path for pattern in ("*.py", "*.pyx", "*.pxd") for path in (ROOT / "kconsumer").rglob(pattern))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    """A file imports only from its own layer and the layers its row allows."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    layer = "" if parts[1] == "__init__" else parts[1]
    assert layer in ALLOWED, f"kconsumer/{layer} has no row in ALLOWED: say who it may import"
    named = {layer_of(module) for module in imports(path) if module.split(".")[0] == "kconsumer"}
    assert set() == named - ALLOWED[layer] - {layer}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_and_foreign_packages_stay_out(path: Path) -> None:
    """The library never imports its own plugins, and pyspark, pyarrow and asyncio only where they belong."""
    layer = path.relative_to(ROOT / "kconsumer").parts[0]
    homes = {
        "kconsumer_assignors": set(),
        "pyspark": {"spark"},
        "pyarrow": {"spark", "arrow.py", "cli"},
        "polars": {"arrow.py"},
        "pandas": {"arrow.py", "spark"},
        "asyncio": {"aio"},
    }
    roots = {module.split(".")[0] for module in imports(path)}
    assert [] == [name for name, home in homes.items() if name in roots and layer not in home]


def test_only_the_clock_reads_time() -> None:
    """No module but clock.py imports `time`."""
    assert ["kconsumer/clock.py"] == [str(path.relative_to(ROOT)) for path in SOURCES if "time" in imports(path)]


PUBLIC_MODULES = {"kconsumer"} | {
    f"kconsumer.{name}" for name in ("arrow", "assignors", "errors", "groups", "ranges", "types")
}
# What the command and the Spark source import although it is not public, and why.
INTERNAL_MODULES = {
    "kconsumer.clock": "tests inject virtual time",
    "kconsumer.config.options": "names, aliases and secrecy of the options of a consumer",
    "kconsumer.engine.state_dump": "the report that the command prints on SIGUSR1",
}
APPLICATIONS = sorted(path for path in SOURCES if path.relative_to(ROOT).parts[1] in ("cli", "spark"))


def test_applications_use_public_names() -> None:
    """The command and the Spark source import what any program may import, apart from the modules listed above."""
    own = {f"kconsumer.{name}" for name in ("cli", "spark")}
    found = {module for path in APPLICATIONS for module in imports(path) if module.split(".")[0] == "kconsumer"}
    foreign = {module for module in found if ".".join(module.split(".")[:2]) not in own}
    assert set(INTERNAL_MODULES) == foreign - PUBLIC_MODULES


PLUGINS = sorted((ROOT / "assignors").rglob("*.py"))


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_use_public_names(path: Path) -> None:
    """The built-in assignors see what a stranger's plugin sees."""
    public = {"kconsumer", "kconsumer.assignors", "kconsumer.types", "kconsumer.errors"}
    mine = [module for module in imports(path) if module.split(".")[0] == "kconsumer"]
    assert [] == [m for m in mine if m not in public and m.rsplit(".", 1)[0] != "kconsumer"]


def test_sources_were_found() -> None:
    """A check over no files would pass; this one says there are some."""
    assert len(SOURCES) > 10
    assert PLUGINS


def test_loggers_do_not_run_handlers_under_a_lock() -> None:
    """What an engine runs logs through `get_logger`, so that log handlers never run while its lock is held."""
    folders = ["engine", "fetching", "membership", "net", "requests", "state"]
    paths = [path for folder in folders for path in (ROOT / "kconsumer" / folder).rglob("*.py")]
    assert [] == [path.name for path in paths if "logging.getLogger(" in path.read_text()]


# Packages in which a field of an object is assigned only in the module of its class.
OWNED = ("state", "fetching", "offsets", "metadata", "groups", "ranges")
# Module -> fields of classes of other modules that it assigns.
FOREIGN_FIELDS: dict[str, set[str]] = {
    "fetching/error_actions.py": {"topic_partition", "offset"},  # completes an error that it raises
    "offsets/error_actions.py": {"topic_partition", "offset"},  # completes an error that it raises
    "offsets/reset_manager.py": {"now"},  # a property of SubscriptionState
    "state/subscription.py": {"now"},  # of the tally, which it made
    "metadata/manager.py": {"until"},  # ends a backoff early, or restores it
    "groups/manager.py": {"lookup_requested"},  # the way to ask CoordinatorManager for a lookup
    "groups/client.py": {"closed"},  # of the guard: Ctrl-C may come between a call and its effect, not within a store
    "ranges/client.py": {"closed", "ended", "holder"},  # the same
}


def own_attributes(tree: ast.Module) -> set[str]:
    """The fields that classes of a module declare, or assign as `self.name`."""
    found = set()
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        found |= {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        found |= {name for owner, name in stores(cls) if owner == "self"}
    return found


def stores(tree: ast.AST) -> list[tuple[str, str]]:
    """All assignments to an attribute: the object and the attribute as written."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return [(ast.unparse(node.value), node.attr) for node in nodes]


def test_fields_are_assigned_by_their_class() -> None:
    """No module assigns a field of an object of another module's class, but for those that FOREIGN_FIELDS names."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCES if path.suffix == ".py"}
    declared = {path: own_attributes(tree) for path, tree in trees.items()}
    fields = set().union(*declared.values())
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        module = str(path.relative_to(ROOT / "kconsumer"))
        foreign = {attr for owner, attr in stores(tree) if owner != "self" and attr in fields - declared[path]}
        if foreign and module.startswith(OWNED):
            found[module] = foreign
    assert FOREIGN_FIELDS == found
