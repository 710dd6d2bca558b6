"""Checks the layering rules: which layers may import which (docs/design/overview.md).

Reads `import` and `cimport` lines, so it needs neither a build nor a broker. Imports for the type checker alone (under
`if TYPE_CHECKING:`, and in stubs) count like all others.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from support.oracles.import_graph import circles, imports, module_graph, module_of, package_graph, sources

ROOT = Path(__file__).parent.parent

FACTS = {
    "backoff",
    "closing",
    "error_codes",
    "error_tables",
    "errors",
    "extras",
    "polled_timer",
    "transitions",
    "types",
    "deferred_calls",
    "repeated_failures",
    "signal_safe_lock",
}
TOOLS = FACTS | {"_core", "schema", "config", "compression"} | {"assignors", "listener", "metrics", "deserializers"}
MANAGED = TOOLS | {"state", "status", "records", "requests", "managers", "progress"}
MANAGED |= {"metadata", "offsets", "coordinator", "fetching", "telemetry"}
PUBLIC = MANAGED | {
    "foreign_methods",
    "net",
    "engine",
    "arrow",
    "decode",
    "decoded_columns",
    "filters",
    "formats",
    "consumer",
    "consumer_base",
    "client_base",
    "blocking_client",
    "cluster",
    "groups",
    "ranges",
    "deferred_signals",
    "offset_arguments",
    "table",
    "table_base",
    "table_contents",
    "table_follower",
    "_version",
}

EXPORTERS = {"metrics", "opentelemetry", "prometheus"}

PRIVATE = ("_common", "_internal", "_client")  # packages of unrelated modules

# Layer (the name after `kconsumer.`) -> the layers it may import besides itself.
ALLOWED: dict[str, set[str]] = {
    "backoff": set(),
    "closing": set(),
    "error_codes": set(),
    "error_tables": {"error_codes"},
    "errors": {"error_codes", "types"},
    "extras": set(),
    "transitions": {"errors"},
    "types": set(),
    "deferred_calls": {"signal_safe_lock", "types"},
    "polled_timer": set(),
    "repeated_failures": set(),
    "signal_safe_lock": set(),
    "deferred_signals": {"_core"},
    "_version": set(),
    "_core": {"errors", "types"},
    "schema": {"_core"},
    "foreign_methods": set(),
    "html_table": set(),
    "config": FACTS | {"_core"},
    "compression": FACTS | {"_core"},
    "records": FACTS | {"_core", "foreign_methods", "compression", "arrow", "html_table"},
    "arrow": FACTS | {"_core", "html_table"},
    "assignors": FACTS | {"_core", "_version"},
    "listener": FACTS | {"_core"},
    "metrics": FACTS | {"_core"},
    "deserializers": FACTS,
    "filters": FACTS | {"_core"},
    "prometheus": FACTS | {"metrics"},
    "opentelemetry": FACTS | {"_version", "_core", "aio", "consumer", "metrics", "records"},
    "offset_arguments": FACTS | {"_core", "records"},
    "decode": FACTS | {"_core", "records", "compression", "arrow"},
    "requests": FACTS | {"schema"},
    "net": FACTS | {"_version", "_core", "schema", "config", "metrics", "requests"},
    "state": FACTS | {"_core", "schema"},
    "managers": FACTS | {"_core", "requests", "schema"},
    "progress": FACTS | {"managers"},
    "status": FACTS,
    "health": FACTS | {"status", "health_probes"},
    "health_probes": FACTS | {"status"},
    "metadata": TOOLS | {"state", "managers", "progress"},
    "offsets": TOOLS | {"state", "managers", "progress", "metadata", "coordinator"},
    "coordinator": TOOLS | {"state", "managers", "progress", "metadata"},
    "fetching": TOOLS | {"state", "records", "managers", "progress", "metadata", "coordinator"},
    "telemetry": TOOLS | {"managers"},
    "engine": MANAGED | {"net", "arrow", "_version", "deferred_signals", "foreign_methods"},
    "share": PUBLIC,
    "consumer": PUBLIC,
    "consumer_base": PUBLIC - {"consumer", "blocking_client"},
    "blocking_client": TOOLS | {"client_base", "deferred_signals"},
    "table": PUBLIC,
    "table_base": TOOLS | {"arrow", "client_base", "status", "offset_arguments", "table_contents", "table_follower"},
    "table_contents": FACTS | {"_core"},
    "table_follower": FACTS | {"_core", "table_contents"},
    "client_base": TOOLS | {"engine", "health", "state", "status", "foreign_methods"},
    "aio": PUBLIC | {"share"},
    "cluster": {"groups", "types"},
    "groups": PUBLIC,
    "parallel": PUBLIC | {"aio", "share"},
    "ranges": PUBLIC,
    "testing": PUBLIC,
    "formats": FACTS | {"_core"},
    "decoded_columns": FACTS | {"arrow", "formats", "records"},
    "registry": FACTS | {"arrow", "_core", "config", "formats"},
    "spark": FACTS | {"", "arrow", "config", "_core", "formats", "ranges", "registry", "signal_safe_lock"} | EXPORTERS,
    # `kconsumer fake-cluster` runs a cluster of `testing`.
    "cli": {
        "",
        "arrow",
        "assignors",
        "cluster",
        "_core",
        "config",
        "engine",
        "errors",
        "groups",
        "health",
        "parallel",
        "registry",
        "testing",
    }
    | {"types"},
    "__main__": {"cli"},
    "": PUBLIC | {"aio", "testing", "share", "health"},  # kconsumer/__init__.py gathers the public names
}


def layer_of(module: str) -> str:
    """Returns the layer of a module of kconsumer, for example `net` for `kconsumer.net.client`.

    Each module of PRIVATE is a layer of its own: `backoff` for `kconsumer._common.backoff`.
    """
    first, *rest = [*module.split("."), ""][1:]
    return rest[0] or first if first in PRIVATE else first


SOURCES = sources(ROOT, "kconsumer")


def layer_violations(root: Path, path: Path) -> set[str]:
    """Returns the layers that a file imports although the row of its layer does not allow it."""
    layer = layer_of(module_of(path, root))
    if layer in PRIVATE:  # its docstring
        return set(imports(path, root))
    assert layer in ALLOWED, f"kconsumer/{layer} has no row in ALLOWED: say who it may import"
    named = {layer_of(module) for module in imports(path, root) if module.split(".")[0] == "kconsumer"}
    return named - ALLOWED[layer] - {layer}


def test_imports_point_down() -> None:
    """A file imports only from its own layer and the layers its row allows."""
    found = {str(path.relative_to(ROOT)): layer_violations(ROOT, path) for path in SOURCES}
    assert {} == {name: layers for name, layers in found.items() if layers}


def test_every_row_has_a_layer() -> None:
    """Every row of ALLOWED is for an existing layer."""
    assert set(ALLOWED) | set(PRIVATE) == {layer_of(module_of(path, ROOT)) for path in SOURCES}


# Packages in which packages import each other in circles, with the reason. No modules do.
CIRCLES = {
    "kconsumer.net": "connections use SASL and TLS, which use the transports and background tasks of the package",
    "kconsumer.testing": "its drivers use the model; the model its groups and share groups, which use its state",
}


def package_with_circles(circle: tuple[str, ...]) -> str | None:
    """Returns the package of CIRCLES that contains all of a circle, or None."""
    names = (name for name in CIRCLES if all(f"{module}.".startswith(f"{name}.") for module in circle))
    return next(names, None)


def test_no_import_circles() -> None:
    """No modules import each other in a circle, and no packages, except inside of those that CIRCLES names."""
    graph = module_graph(ROOT, "kconsumer")
    assert [] == circles(graph)
    found = circles(package_graph(graph, ROOT))
    assert [] == [circle for circle in found if package_with_circles(circle) is None]
    assert set(CIRCLES) == {package_with_circles(circle) for circle in found}


def plant(root: Path, **files: str) -> None:
    """Write a small tree of packages; `__` in a name separates folders."""
    for name, text in files.items():
        path = root / "kconsumer" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_planted_upward_import_is_found(tmp_path: Path) -> None:
    """The rule finds a manager that imports the engine, also inside a function."""
    plant(
        tmp_path,
        fetching__bad="def f():\n    from kconsumer.engine import base\n",
        fetching__good="import kconsumer.state",
    )
    bad, good = sources(tmp_path, "kconsumer")
    assert ({"engine"}, set()) == (layer_violations(tmp_path, bad), layer_violations(tmp_path, good))


def test_planted_circles_are_found(tmp_path: Path) -> None:
    """Both rules find circles: of modules inside a layer, also for the type checker, and of packages."""
    plant(
        tmp_path,
        net__a="from kconsumer.net import b",
        net__b="import kconsumer.net.c",
        net__c="def f():\n    from kconsumer.net.a import x",
        net__d="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kconsumer.net.e",
        net__e="import kconsumer.net.d",
        state__one="import kconsumer.net.d",
        net__f="import kconsumer.state.two",
        state__two="",
    )
    (tmp_path / "kconsumer" / "state" / "two.pyi").write_text("import kconsumer.state.three")
    (tmp_path / "kconsumer" / "state" / "three.pyx").write_text("from kconsumer.state.two cimport x")
    graph = module_graph(tmp_path, "kconsumer")
    expected = [
        ("kconsumer.net.a", "kconsumer.net.b", "kconsumer.net.c"),
        ("kconsumer.net.d", "kconsumer.net.e"),
        ("kconsumer.state.three", "kconsumer.state.two"),
    ]
    assert expected == circles(graph)
    assert [("kconsumer.net", "kconsumer.state")] == circles(package_graph(graph, tmp_path))


# Package -> what may import it while the program runs: folders and modules of kconsumer/.
HOMES: dict[str, set[str]] = {
    "kconsumer_assignors": set(),
    "pyspark": {"spark"},
    "pyarrow": {"spark", "arrow.py", "cli", "formats", "registry"},
    "polars": {"arrow.py"},
    "pandas": {"arrow.py", "spark"},
    "asyncio": {"aio", "parallel"},
}


def test_heavy_and_foreign_packages_stay_out() -> None:
    """The library never imports its own plugins, and it imports pyspark, pyarrow and asyncio only in the modules
    listed.
    """
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in SOURCES
        for name in HOMES.keys() & {module.split(".")[0] for module in imports(path, ROOT, typing=False)}
        if path.relative_to(ROOT / "kconsumer").parts[0] not in HOMES[name]
    ]
    assert [] == found


def test_only_the_clock_reads_time() -> None:
    """clock.pyx is the only module that imports `time`."""
    found = [str(path.relative_to(ROOT)) for path in SOURCES if "time" in imports(path, ROOT)]
    assert ["kconsumer/_core/lock/clock.pyx"] == found


def public_modules() -> set[str]:
    """Returns the modules that `kconsumer/__init__.py` declares public, and the package itself."""
    tree = ast.parse((ROOT / "kconsumer" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PUBLIC_MODULES":
            return {"kconsumer"} | {f"kconsumer.{name}" for name in ast.literal_eval(node.value)}
    raise AssertionError("no PUBLIC_MODULES in kconsumer/__init__.py")


PUBLIC_MODULES = public_modules()


def test_the_overview_names_what_is_public() -> None:
    """docs/design/overview.md lists the public modules, and each of them exists."""
    text = (ROOT / "docs" / "design" / "overview.md").read_text(encoding="utf-8")
    listed = re.search(r"## What is public\n(.*?)\n## ", text, re.DOTALL)
    assert listed is not None
    names = set(re.findall(r"`([a-z]+)`", listed[1]))
    assert PUBLIC_MODULES - {"kconsumer"} == {f"kconsumer.{name}" for name in names}
    assert PUBLIC_MODULES <= {module_of(path, ROOT) for path in SOURCES}


def test_documents_import_public_names() -> None:
    """Programs in README and docs import only public modules."""
    pages = [ROOT / "README.md", *(path for path in (ROOT / "docs").glob("*.md"))]
    found = re.findall(
        r"^\s*(?:from|import) (kconsumer[.\w]*)", "\n".join(p.read_text("utf-8") for p in pages), re.MULTILINE
    )
    assert found
    assert [] == [
        name
        for name in found
        if not any(f"{name}.".startswith(f"{public}.") for public in PUBLIC_MODULES - {"kconsumer"})
        and name != "kconsumer"
    ]


# Private modules that the command and the Spark source import, with the reason.
INTERNAL_MODULES = {
    "kconsumer._core.lock": "tests inject virtual time",
    "kconsumer.config.kinds": "how a secret refers to the environment or a file",
    "kconsumer.config.options": "names, aliases and secrecy of the options of a consumer",
    "kconsumer.engine.state_dump": "the report that the command prints on SIGUSR1",
    "kconsumer.formats.avro_columns": "the decoder of Avro",
    "kconsumer.formats.avro_schemas": "the parser of Avro schemas",
    "kconsumer.formats.column_types": "the types of decoded columns",
    "kconsumer.formats.decoders": "the interface of decoders",
    "kconsumer.formats.json_columns": "the decoder of JSON",
    "kconsumer.formats.header_ids": "schema ids in the headers of records",
    "kconsumer.formats.protobuf_columns": "the decoder of Protocol Buffers",
    "kconsumer.metrics.registry": "the metrics of a pipeline",
    "kconsumer.metrics.reporters": "the reporters of its metrics, which are those of a consumer",
    "kconsumer.registry.source_formats": "types and checks by a registry",
    "kconsumer.ranges.limits": "the limits of the batches of several ranges",
    "kconsumer.ranges.topic_steps": "the reader of several ranges with one consumer",
    "kconsumer._common.signal_safe_lock": "a lock that Ctrl-C does not leave locked",
}
APPLICATIONS = sorted(path for path in SOURCES if path.relative_to(ROOT).parts[1] in ("cli", "spark"))


def test_applications_use_public_names() -> None:
    """The command and the Spark source import only public modules and those listed above."""
    own = {f"kconsumer.{name}" for name in ("cli", "spark")}
    found = {module for path in APPLICATIONS for module in imports(path, ROOT) if module.split(".")[0] == "kconsumer"}
    foreign = {module for module in found if ".".join(module.split(".")[:2]) not in own}
    assert set(INTERNAL_MODULES) == foreign - PUBLIC_MODULES


PLUGINS = sorted((ROOT / "assignors").rglob("*.py"))


def test_plugins_use_public_names() -> None:
    """The built-in assignors import only what a third-party plugin may import."""
    mine = {module for path in PLUGINS for module in imports(path, ROOT) if module.split(".")[0] == "kconsumer"}
    assert set() == mine - PUBLIC_MODULES


def test_sources_were_found() -> None:
    """The checks above find source files; without files they would always pass."""
    assert len(SOURCES) > 10
    assert PLUGINS


def test_loggers_do_not_run_handlers_under_a_lock() -> None:
    """Modules that run in an engine log through `get_logger`, so that log handlers never run while its lock is held."""
    folders = [
        "coordinator",
        "engine",
        "fetching",
        "groups",
        "metadata",
        "metrics",
        "net",
        "offsets",
        "state",
        "telemetry",
    ]
    paths = [path for folder in folders for path in (ROOT / "kconsumer" / folder).rglob("*.py")]
    assert [] == [path.name for path in paths if "logging.getLogger(" in path.read_text()]


# Packages in which only the module of a class assigns the fields of its objects.
OWNED = ("coordinator", "state", "fetching", "offsets", "metadata", "groups", "ranges", "net", "engine")
# Module -> fields that it assigns although their classes are in other modules.
FOREIGN_FIELDS: dict[str, set[str]] = {
    "coordinator/classic_protocol/embedded.py": {"generation_id", "rack_id"},  # of a message that it has decoded
    "coordinator/consumer_protocol/heartbeat.py": {  # of a message that it builds
        "rack_id",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "topic_partitions",
    },
    "fetching/error_actions.py": {"topic_partition", "offset"},  # completes an error that it raises
    "offsets/error_actions.py": {"topic_partition", "offset"},  # completes an error that it raises
    "metadata/manager.py": {"until"},  # ends a backoff early, or restores it
    "net/tls/context.py": {"options"},  # of an ssl.SSLContext
    # An exception may come at a call of a method, which would lose or repeat records.
    "engine/access_guard.py": {"holder"},  # of its base, at the end of a guarded method
    "engine/base.py": {"open", "version"},
    "fetching/collector.py": {"open"},  # of the batch that it takes
    "groups/client.py": {"closed"},  # of the guard: Ctrl-C may come between a call and its effect, not within a store
    "ranges/client.py": {"ended", "holder"},  # the same
    "ranges/client_base.py": {"closed"},  # the same
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


def test_tests_have_one_door_to_the_inside() -> None:
    """Tests reach the engine, the guard and the model of an object through `support/harnesses/inside.py` only."""
    reach = re.compile(r"(?<!self)(?<!cls)\._(engine|guard|config|cluster|server|nodes_by_id)\b")
    support = ROOT / "tests" / "support"
    doors = {
        support / "harnesses" / "inside.py",
        support / "oracles" / "memory_reader.py",
    }  # a program without `support`
    own = (
        "simulation",
        "soak",
        "brokers",
        "databases",
        "scenarios",
    )  # fields of their own classes, and members of them
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path not in doors and path.parent.name not in own
        for line in path.read_text().splitlines()
        if reach.search(line)
    ]
    assert [] == found
