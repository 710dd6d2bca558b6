"""Runs the tests of the decoder on a processor that this machine does not have, under qemu-user:

    python tools/emulated.py                              on all targets, which are those of TARGETS
    python tools/emulated.py s390x [pytest's arguments]   on one: aarch64, i386 (32-bit) or s390x (big-endian)

A target's Python and the libraries that kconsumer needs are packages of Debian unstable, which are unpacked into
build/emulated. The wheel is compiled by the package ziglang against the headers of that Python. auditwheel shows which
platforms the wheel suits, tools/try_wheel.py tries it, and the tests run on it. Needs Debian's apt (but not root), and
Debian's package qemu-user.

Debian's python-snappy is 0.5.3, which is older than the wheel's metadata require. Newer versions need cramjam, which
Debian does not have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "emulated"
SUITE = "unstable"
PYTHON = "3.14"  # of the suite, and of the interpreter that runs this file
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = (
    *("python3", "python3-pytest", "python3-pytest-timeout", "python3-pytest-xdist", "python3-hypothesis"),
    *("python3-crc32c", "python3-lz4", "python3-snappy", "python3-zstandard"),
)
HEADERS = (f"libpython{PYTHON}-dev",)
TESTS = (
    "tests/unit/public/test_decode_batches.py",
    *(f"tests/unit/_core/test_{name}.py" for name in ("batch", "message_sets", "read_committed", "crc")),
    *(f"tests/unit/_core/test_{name}.py" for name in ("compression_frames", "wire", "codec")),
)


@dataclass(frozen=True)
class Target:
    """The names of a processor."""

    debian: str  # for Debian
    qemu: str  # the program of qemu-user
    triplet: str  # in Debian's folders, and in the file names of extensions
    machine: str  # in the tags of wheels
    zig: str  # for zig, with the version of glibc


TARGETS = {
    "aarch64": Target("arm64", "qemu-aarch64", "aarch64-linux-gnu", "aarch64", "aarch64-linux-gnu.2.28"),
    "i386": Target("i386", "qemu-i386", "i386-linux-gnu", "i686", "x86-linux-gnu.2.28"),
    "s390x": Target("s390x", "qemu-s390x", "s390x-linux-gnu", "s390x", "s390x-linux-gnu.2.28"),
}


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    """Run a command, which must succeed."""
    subprocess.run([str(part) for part in command], cwd=cwd, check=True, env={**os.environ, **environment})


def unpack(target: Target, folder: Path) -> Path:
    """Unpack the packages of a target from Debian, at the first call. Returns the folder that has its usr/."""
    root, apt, complete = folder / "root", folder / "apt", folder / "complete"
    if complete.exists():
        return root
    shutil.rmtree(folder, ignore_errors=True)
    for part in (apt / "lists" / "partial", apt / "cache" / "archives" / "partial", root):
        part.mkdir(parents=True)
    uris = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"]
    mirror = subprocess.run(uris, check=True, capture_output=True, text=True).stdout.split()[0]
    sources = apt / "sources.list"
    sources.write_text(f"deb [arch={target.debian} signed-by={KEYRING}] {mirror} {SUITE} main\n", encoding="utf-8")
    settings = {
        "APT::Architecture": target.debian,
        "APT::Architectures": target.debian,
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": apt / "lists",
        "Dir::State::Status": "/dev/null",
        "Dir::Cache": apt / "cache",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "root",  # the folders here are not readable for apt's own user
        # Packages are verified by Debian's signature. Its expiry is not checked, because mirrors may be snapshots.
        "Acquire::Check-Valid-Until": "false",
    }
    get = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    run(*get, "update")
    run(*get, "install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES)
    archives = apt / "cache" / "archives"
    run(*get, "download", *HEADERS, cwd=archives)  # without the packages that it depends on, as it is for zig
    for link in ("bin", "lib", "sbin"):
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    for archive in sorted(archives.glob("*.deb")):
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], check=True, capture_output=True).stdout
        command = ["tar", "--extract", "--keep-directory-symlink", "--directory", root]
        subprocess.run(command, input=tar, check=True)
    headers = root / "usr" / "include" / f"python{PYTHON}"
    # Debian's pyconfig.h includes a file of the processor's folder, which zig does not search.
    (headers / target.triplet).symlink_to(f"../{target.triplet}")
    shutil.rmtree(apt)
    complete.touch()
    return root


def build(target: Target, root: Path, folder: Path) -> Path:
    """Build the wheel for a target. Returns its file."""
    tree, out = folder / "tree", folder / "wheel"
    run(sys.executable, ROOT / "tools" / "copy_tree.py", tree)
    shutil.rmtree(out, ignore_errors=True)
    zig = f"{sys.executable} -m ziglang cc -target {target.zig}"
    headers = root / "usr" / "include" / f"python{PYTHON}"
    run(
        *(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            out,
            tree,
        ),
        CC=zig,
        LDSHARED=f"{zig} -shared",
        CFLAGS=f"-I{headers}",  # before the folder of the interpreter that runs this file, whose pyconfig.h is another
        DIST_EXTRA_CONFIG=str(ROOT / "tools" / "parallel-build.cfg"),
        SETUPTOOLS_EXT_SUFFIX=f".cpython-{PYTHON.replace('.', '')}-{target.triplet}.so",
        _PYTHON_HOST_PLATFORM=f"linux-{target.machine}",
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel. Returns the folder with its packages."""
    installed = folder / "installed"
    shutil.rmtree(installed, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    return installed


def write_launcher(target: Target, root: Path, folder: Path) -> Path:
    """Write a program that runs the target's Python. Returns its file.

    It is the `sys.executable` of that Python, so tests can start another one with it.
    """
    launcher = folder / "python"
    python = root / "usr" / "bin" / f"python{PYTHON}"
    # Without PYTHONHOME, a 32-bit Python looks for its library above its `sys.executable` only.
    start = f"PYTHONHOME={root / 'usr'} exec {target.qemu} -0 {launcher} -L {root} {python}"
    launcher.write_text(f'#!/bin/sh\n{start} "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    return launcher


def test(name: str, arguments: list[str]) -> None:
    """Build the wheel for a target, check it, and run the tests on it."""
    target, folder = TARGETS[name], BUILD / name
    root = unpack(target, folder)
    wheel = build(target, root, folder)
    run(sys.executable, "-m", "auditwheel", "show", wheel)
    python = write_launcher(target, root, folder)
    environment = {"PYTHONPATH": str(install(wheel, folder)), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    run(python, ROOT / "tools" / "try_wheel.py", "--without-network", cwd=folder, **environment)
    run(python, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "1200", *(arguments or TESTS), **environment)


def main(arguments: list[str]) -> None:
    """Run the tests on the target that the first argument names, or on all."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise SystemExit(
            f"tools/emulated.py needs Python {PYTHON}, that of Debian {SUITE} (tools/debian-python {PYTHON})"
        )
    for name in arguments[:1] or TARGETS:
        test(name, arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
