"""Builds the sdist, and from it the wheel for this Python and machine, into dist/; `make wheels` runs it.

Both are built twice, in different folders. The wheels must have equal hashes, and the sdists equal contents: an sdist
also has the times at which its build copied the files. On Linux, auditwheel gives the wheel the oldest
manylinux tag that fits. twine checks the metadata. At last the wheel is installed into an empty environment, and
tools/try_wheel.py tries it there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, which must succeed."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def commit_time() -> str:
    """Returns the time of the last commit in seconds since 1970, which becomes the time of all files in packages."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def build(folder: Path) -> list[Path]:
    """Build the sdist and the wheel in a new folder. Returns both files."""
    tree, out = folder / "tree", folder / "out"
    run(sys.executable, ROOT / "tools" / "copy_tree.py", tree)
    run(sys.executable, "-m", "build", "--outdir", out, tree)
    return sorted(out.iterdir())


def sha256(file: Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def contents(sdist: Path) -> dict[str, bytes]:
    """Returns the files in an sdist."""
    with tarfile.open(sdist) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member)) is not None}


def compare(first: list[Path], second: list[Path]) -> None:
    """End with an error if two builds differ."""
    for one, other in zip(first, second, strict=True):
        if one.suffix == ".gz" and contents(one) == contents(other):
            print(f"{sha256(one)}  {one.name}: equal contents in two builds")
        elif sha256(one) != sha256(other):
            raise SystemExit(f"{one.name} is not reproducible: two builds of the same sources differ ({one}, {other})")
        else:
            print(f"{sha256(one)}  {one.name}: equal in two builds")


def repair(wheel: Path, out: Path) -> Path:
    """Put the wheel into `out`, on Linux with the tag of the platforms that it runs on. Returns the file there."""
    before = set(out.iterdir())
    if sys.platform == "linux":
        run(BIN / "auditwheel", "repair", "--wheel-dir", out, wheel)
    else:
        shutil.copy2(wheel, out)
    (made,) = set(out.iterdir()) - before
    return made


def try_in_empty_environment(wheel: Path, folder: Path) -> None:
    """Install the wheel into a new environment, and try it away from the source tree."""
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    shutil.copy2(ROOT / "tools" / "try_wheel.py", folder)
    run(python, "-I", "try_wheel.py", cwd=folder)


def main() -> None:
    """Build, compare, check and try the packages of this machine."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # auditwheel calls patchelf
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory(prefix="kconsumer-wheels-") as name:
        folder = Path(name)
        first, second = build(folder / "first"), build(folder / "second")
        compare(first, second)
        sdist, wheel = first
        if sdist.suffix == ".whl":
            sdist, wheel = wheel, sdist
        shutil.copy2(sdist, out)
        repaired = repair(wheel, out)
        run(BIN / "twine", "check", "--strict", *out.iterdir())
        try_in_empty_environment(repaired, folder)
    print(f"dist/ has {sdist.name} and {repaired.name}")


if __name__ == "__main__":
    main()
