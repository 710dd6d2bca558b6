"""Generated pages are current, and the reference of the documentation site is complete: public names, KIPs, docstrings
of compiled classes.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import kconsumer
from kconsumer import ConsumerRecord

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"

# Public names without an entry in the reference, each with its reason.
NOT_SHOWN = {
    "kconsumer.__version__": "a text",
    "kconsumer.assignors": "a module; it has a page",
    "kconsumer.errors": "a module; it has a page",
    "kconsumer.cluster": "a module; the page of groups has its functions",
    "kconsumer.groups": "a module; it has a page",
    "kconsumer.health": "a module; the page of status has its functions",
    "kconsumer.arrow.SPARK_COLUMNS": "used by the Spark source",
    "kconsumer.arrow.SparkBatch": "used by the Spark source",
    "kconsumer.arrow.choose": "used by methods with an argument `columns`",
    "kconsumer.arrow.choose_spark": "used by the Spark source",
    "kconsumer.RawRecord": "a ConsumerRecord",
    "kconsumer.filters.RawRecord": "a ConsumerRecord",
    "kconsumer.ranges.borrow": "used by the Spark source",
    "kconsumer.types.K": "a type parameter",
    "kconsumer.types.V": "a type parameter",
}


def public_names() -> dict[str, str]:
    """Returns the public names, each with its first public name: `kconsumer.types.Node` is `kconsumer.Node`.

    The names of `errors` and `cli` have generated pages. Those of `spark` are read from the source, because the module
    needs pyspark.
    """
    names = {f"kconsumer.{name}": getattr(kconsumer, name) for name in kconsumer.__all__}
    first = {id(value): name for name, value in names.items()}
    found = {name: name for name in names}
    for module in sorted(set(kconsumer.PUBLIC_MODULES) - {"errors", "cli", "spark"}):
        content = importlib.import_module(f"kconsumer.{module}")
        own = [n for n, v in vars(content).items() if getattr(v, "__module__", "") == content.__name__ and n[0] != "_"]
        for name in getattr(content, "__all__", own):
            full = f"kconsumer.{module}.{name}"
            found[full] = first.get(id(getattr(content, name)), full)
    return found | {name: name for name in spark_names()}


def spark_names() -> list[str]:
    """Returns the public names of `kconsumer.spark`."""
    tree = ast.parse((ROOT / "kconsumer" / "spark" / "__init__.py").read_text(encoding="utf-8"))
    lists = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets)
    ]
    return [f"kconsumer.spark.{name}" for value in lists for name in ast.literal_eval(value)]


def entries() -> list[str]:
    """Returns the names that pages of the reference show."""
    pages = "\n".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md"))
    return re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)


def test_pages_are_current() -> None:
    """The pages equal what the tables generate now."""
    command = [sys.executable, str(ROOT / "docs" / "make_pages.py"), "--check"]
    # The program imports modules of its folder, which tox forbids to keep the sources out of the import path.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert 0 == done.returncode, done.stderr  # names the command that generates them


def test_every_public_name_has_an_entry() -> None:
    """Every public name has one entry in docs/reference (`::: name`), or a reason here for having none."""
    names = public_names()
    shown = entries()
    assert set() == set(NOT_SHOWN) - set(names)
    assert [] == sorted({name for full, name in names.items() if full not in NOT_SHOWN} - set(shown))
    assert sorted(set(shown)) == sorted(shown)


def test_every_kip_in_the_code_is_in_the_table() -> None:
    """docs/reference/kips.md has each KIP that the library names. Those that only tests and producers need are listed
    here.
    """
    producers = {360, 464, 467, 525, 664, 890, 919, 939, 966, 994, 1073, 1152, 1319}
    sources = [path for path in (ROOT / "kconsumer").rglob("*.py") if "testing" not in path.parts]
    named = {int(kip) for path in sources for kip in re.findall(r"KIP-(\d+)", path.read_text(encoding="utf-8"))}
    table = re.findall(r"^\| KIP-(\d+) \|", (REFERENCE / "kips.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = [int(kip) for kip in table]
    assert producers == named - set(listed)
    assert sorted(set(listed)) == listed


def test_the_stub_has_the_docstring_of_the_compiled_class() -> None:
    """The reference shows the docstring in the stub of ConsumerRecord, which is that of the class."""
    tree = ast.parse((ROOT / "kconsumer" / "_core" / "decode.pyi").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ConsumerRecord"]
    assert [ConsumerRecord.__doc__] == [ast.get_docstring(node, clean=False) for node in classes]
