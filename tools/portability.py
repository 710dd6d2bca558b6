"""Shows how far kconsumer is from running on Windows and macOS, on a machine that has neither:

    python tools/portability.py              both of the following
    python tools/portability.py names        search the Python sources for what a platform lacks
    python tools/portability.py compile [macosx-x86_64 …]   compile and link every extension, for all targets or these

`compile` uses the compiler of the package ziglang and the headers and libraries of CPython 3.13 for the platform, which
Maven downloads (org.bytedeco:cpython). Warnings are errors. Shown: the C code compiles and links against CPython for
this platform, and for Windows also with the atomic functions of MSVC. Not shown: that the compiler of MSVC accepts it,
and that anything runs. The workflow wheels.yml builds and tries wheels on these platforms.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("kconsumer", "assignors", "pyspark_kconsumer", "pytest_kconsumer")
CORE = ROOT / "kconsumer" / "_core"
BUILD = ROOT / "build" / "portability"
CPYTHON = "3.13.5-1.5.12"  # of CPython, and of the packages that contain it

WARNINGS = ("-Wall", "-Wsign-compare", "-Wconversion", "-Werror")
TARGETS = {  # the target's name for Maven: (for zig, folder of headers, options of the compiler, options of the linker)
    "windows-x86_64": ("x86_64-windows-gnu", "include", ["-DMS_WIN64"], ["{root}/libs/python313.lib"]),
    "macosx-arm64": ("aarch64-macos", "include/python3.13", [], ["-Wl,-undefined,dynamic_lookup"]),
    "macosx-x86_64": ("x86_64-macos", "include/python3.13", [], ["-Wl,-undefined,dynamic_lookup"]),
}

# Modules and attributes that the platform does not have.
MISSING = {
    "win32": {
        *("curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"),
        *("os.fork", "os.forkpty", "os.getuid", "os.geteuid", "os.getgid", "os.register_at_fork", "os.uname"),
        *("os.killpg", "os.setsid", "os.pread", "os.pwrite", "os.sched_getaffinity", "os.posix_fadvise", "os.mkfifo"),
        *("select.epoll", "select.kqueue", "select.poll", "selectors.EpollSelector", "selectors.PollSelector"),
        *("signal.SIGALRM", "signal.SIGCHLD", "signal.SIGHUP", "signal.SIGKILL", "signal.SIGPIPE", "signal.SIGQUIT"),
        *("signal.SIGUSR1", "signal.SIGUSR2", "signal.SIGWINCH", "signal.setitimer", "signal.pthread_kill"),
        *("signal.pthread_sigmask", "signal.sigwait", "signal.pause", "socket.AF_UNIX", "socket.SO_REUSEPORT"),
        *("socket.MSG_DONTWAIT", "socket.MSG_NOSIGNAL", "time.tzset", "asyncio.add_signal_handler"),
    },
    "darwin": {
        *("os.sched_getaffinity", "os.posix_fadvise", "os.fdatasync", "os.memfd_create", "os.eventfd", "os.pipe2"),
        *("select.epoll", "selectors.EpollSelector", "signal.SIGPWR", "signal.sigtimedwait", "socket.MSG_NOSIGNAL"),
        *("socket.SOCK_NONBLOCK", "socket.SOCK_CLOEXEC", "socket.TCP_USER_TIMEOUT"),
    },
}


def names() -> list[str]:
    """Returns every use of a missing name in the sources that no check of `sys.platform` guards."""
    files = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return [
        f"{path.relative_to(ROOT)}:{line}: {name} does not exist on {platform}"
        for path in files
        for platform, missing in MISSING.items()
        for line, name in uses(ast.parse(path.read_text(encoding="utf-8")), platform)
        if name in missing
    ]


def uses(tree: ast.AST, platform: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each module and module attribute that the code uses on this platform."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and (branch := chosen(node, platform)) is not None:
            yield from uses(ast.Module(branch, []), platform)
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"
        yield from uses(node, platform)


def chosen(node: ast.If, platform: str) -> list[ast.stmt] | None:
    """Returns the branch that runs on a platform if the condition is a check of `sys.platform`, or a `hasattr` of a
    missing name; else None.
    """
    match ast.unparse(node.test).replace("'", '"').split():
        case ["sys.platform", "==" | "!=" as operator, name]:
            return node.body if (name.strip('"') == platform) == (operator == "==") else node.orelse
        case [call, name] if call.startswith("hasattr("):
            asked = call.removeprefix("hasattr(").rstrip(",") + "." + name.strip('")')
            return node.orelse if asked in MISSING[platform] else None
    return None


def cpython(target: str) -> Path:
    """Returns the folder with headers and libraries of CPython for a target; downloads it at the first call."""
    root = BUILD / target / "org" / "bytedeco" / "cpython" / target
    if not root.exists():
        artifact = f"org.bytedeco:cpython:{CPYTHON}:jar:{target}"
        copy = f"-Dartifact={artifact}", f"-DoutputDirectory={BUILD}", "-Dmdep.useBaseVersion=true"
        run("mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy", *copy)
        with zipfile.ZipFile(BUILD / f"cpython-{CPYTHON}-{target}.jar") as archive:
            archive.extractall(BUILD / target)
    return root


def run(*command: str | Path) -> None:
    """Run a command, which must succeed."""
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True)


def compile_for(target: str, sources: list[Path]) -> int:
    """Compile and link every extension for a target. Returns the number of failures."""
    zig_target, include, options, libraries = TARGETS[target]
    root, failures = cpython(target), 0
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", zig_target, "-O1")
    variants = [[], ["-DKC_INTERLOCKED"]] if target.startswith("windows") else [[]]
    for source in sources:
        made = BUILD / target / f"{source.stem}.o"
        link = [library.format(root=root) for library in libraries]
        try:
            for variant in variants:
                flags = (*WARNINGS, *options, *variant, f"-I{CORE}", "-isystem", root / include)
                run(*zig, *flags, "-c", source, "-o", made)
            run(*zig, "-shared", made, *link, "-o", made.with_suffix(".linked"))
        except subprocess.CalledProcessError:
            failures += 1
            print(f"{source.name} fails for {target}")
    print(f"{target}: {len(sources) - failures} of {len(sources)} extensions compiled and linked")
    return failures


def is_current(built: Path, source: Path) -> bool:
    """Returns whether a C file is newer than its .pyx file and than every .pxd file of the folder.

    Which .pxd files Cython has read for a C file is not recorded, so all of them count.
    """
    newest = max(path.stat().st_mtime for path in (source, *source.parent.glob("*.pxd")))
    return built.exists() and built.stat().st_mtime >= newest


def generate() -> list[Path]:
    """Generate the C files of all extensions in a folder of this tool. Returns them."""
    folder = BUILD / "c"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in sorted(CORE.glob("*.pyx")):
        made = folder / f"{source.stem}.c"
        built = CORE / f"{source.stem}.c"
        if is_current(built, source):
            shutil.copy2(built, made)
        else:
            run(sys.executable, "-m", "cython", "-3", "-X", "boundscheck=False,wraparound=False,cdivision=True",
                source, "-o", made)  # fmt: skip
    return sorted(folder.glob("*.c"))


def main(arguments: list[str]) -> int:
    """Run the parts that the docstring of this module lists. Returns the exit status."""
    found = names() if "compile" not in arguments else []
    print("\n".join(found) or "no use of a name that a platform lacks")
    failures = (
        sum(compile_for(target, generate()) for target in arguments[1:] or TARGETS) if "names" not in arguments else 0
    )
    return bool(found or failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
