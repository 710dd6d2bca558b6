"""The packages that users install: the sdist has all sources, the wheel has all compiled modules, and the import is
light.

Builds once per run from a copy of the tree, so that neither an old file list nor the output of an earlier build can
hide a missing file. The compiler does not optimize here: these tests are about what a package contains.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.brokers.kafka_jars import locked

ROOT = Path(__file__).parent.parent
CORE = ROOT / "kconsumer" / "_core"
MODULES = sorted(path.stem for path in CORE.glob("*.pyx"))
PLUGINS = {"range", "roundrobin", "sticky", "cooperative-sticky"}

pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command, which must succeed. Returns its output."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "KCONSUMER_BUILD": "quick", **environment},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command} failed:\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout


def lend_generated_code(tree: Path) -> None:
    """Copy the generated C files of this tree, newer than their sources, into another one, to save generating them
    again.
    """
    for file in CORE.glob("*.c"):
        shutil.copy2(file, tree / "kconsumer" / "_core")


def build_once(run_folder: Path, kind: str, build: Callable[[Path], None]) -> Path:
    """Returns the package of this kind, which the first worker that needs it builds into a folder of the run."""
    folder, part = run_folder / kind, run_folder / f"{kind}-part"
    with locked(run_folder / f"{kind}.lock"):
        if not folder.exists():
            build(part)
            part.rename(folder)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="session")
def sdist(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of the files that git tracks or would add."""

    def build(out: Path) -> None:
        tree = tmp_path_factory.mktemp("tree")
        run(sys.executable, ROOT / "tools" / "copy_tree.py", tree, cwd=ROOT)
        lend_generated_code(tree)
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, tree, cwd=tree)

    return build_once(run_folder, "sdist", build)


@pytest.fixture
def unpacked(sdist: Path, tmp_path: Path) -> Path:
    """The unpacked sdist."""
    return unpack(sdist, tmp_path / "unpacked")


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack the sdist into a new folder. Returns the tree with this tree's generated C files."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    lend_generated_code(tree)
    return tree


@pytest.fixture(scope="session")
def wheel(sdist: Path, run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the sdist, as pip builds it for a user without a prebuilt one."""

    def build(out: Path) -> None:
        tree = unpack(sdist, tmp_path_factory.mktemp("unpacked"))
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree, cwd=tree)

    return build_once(run_folder, "wheel", build)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked wheel, for sys.path."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(code: str, folder: Path) -> str:
    """Run code with `folder` first on sys.path and without the source tree."""
    return run(sys.executable, "-c", code, cwd=folder, PYTHONPATH=str(folder), PYTHONSAFEPATH="1")


def test_sdist_contains_every_source(sdist: Path) -> None:
    """The sdist contains all .py, .pyx, .pxd, .pyi and .h files and no generated ones."""
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    kinds = ("*.py", "*.pyx", "*.pxd", "*.pyi", "*.h", "py.typed")
    sources = [
        path
        for kind in kinds
        for folder in ("kconsumer", "assignors", "pyspark_kconsumer", "pytest_kconsumer")
        for path in (ROOT / folder).rglob(kind)
    ]
    assert MODULES
    assert [] == sorted(str(path.relative_to(ROOT)) for path in sources if str(path.relative_to(ROOT)) not in names)
    assert [] == [name for name in names if name.endswith((".c", ".so"))]


def test_wheel_contains_compiled_modules_and_types(wheel: Path) -> None:
    """The wheel contains one extension module and one stub per .pyx file, the typing markers and both packages, and no
    tests.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    wanted = {f"kconsumer/_core/{module}{end}" for module in MODULES for end in (suffix, ".pyi")}
    wanted |= {"kconsumer/py.typed", "kconsumer_assignors/py.typed", "kconsumer_assignors/__init__.py"}
    assert set() == wanted - names
    assert {"kconsumer", "kconsumer_assignors", "pyspark_kconsumer", "pytest_kconsumer"} == {
        n.split("/")[0] for n in names if ".dist-info/" not in n
    }


def test_entry_points_load_from_the_wheel(installed: Path) -> None:
    """The command, the four assignors and the plugin of pytest are entry points whose targets exist in the wheel."""
    code = """
import importlib.metadata, json, kconsumer
(found,) = [d for d in importlib.metadata.distributions(path=['.']) if d.name == 'kconsumer']
points = [p for p in found.entry_points if p.group in ('kconsumer.assignors', 'console_scripts', 'pytest11')]
print(json.dumps({p.name: (p.load() is not None, kconsumer.__file__) for p in points}))
"""
    loaded = json.loads(python(code, installed))
    assert PLUGINS | {"kconsumer", "pytest_kconsumer"} == set(loaded)
    assert {str(installed / "kconsumer" / "__init__.py")} == {file for _loaded, file in loaded.values()}


def test_import_is_light(installed: Path) -> None:
    """`import kconsumer` loads no optional or heavy package and a limited number of modules; the first consumer imports
    the engine.
    """
    code = """
import json, sys
before = set(sys.modules)
import kconsumer
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    loaded = json.loads(python(code, installed))
    strangers = {"pyarrow", "pyspark", "pandas", "numpy", "rich"}
    heavy = {"asyncio", "importlib.metadata", "email", "difflib", "zipfile", "ssl", "kconsumer.engine.base"}
    assert not (strangers | heavy) & set(loaded)
    assert len(loaded) < 150


def test_strict_editable_install_works(unpacked: Path, tmp_path: Path) -> None:
    """`pip install -e . --config-settings editable_mode=strict`, which links files, gives a package that imports."""
    venv = tmp_path / "venv"
    packages = sysconfig.get_paths()["purelib"]  # for the build tools and dependencies; its .pth files are not read
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path)
    options = ["--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=strict"]
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--quiet", *options]
    run(*pip, "--editable", unpacked, cwd=tmp_path, PYTHONPATH=packages)
    code = f"import importlib, kconsumer; [importlib.import_module('kconsumer._core.' + m) for m in {MODULES}]"
    run(venv / "bin" / "python", "-c", code, cwd=tmp_path, PYTHONPATH=packages)


def test_installed_metadata_matches_the_tree() -> None:
    """The installed package has the version of this tree; an older installation fails."""
    text = (ROOT / "kconsumer" / "_version.py").read_text()
    assert f'VERSION = "{importlib.metadata.version("kconsumer")}"' in text
