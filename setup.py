"""The extension table and the build kinds; everything else is in pyproject.toml.

KCONSUMER_BUILD=release (default) | quick (not optimized, for tests of packages) | trace (line tracing for coverage) |
asan (address and undefined-behaviour checks) | asan-quick (the same, not optimized) |
tsan (races between threads; for a Python that is built with ThreadSanitizer, too)
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

WINDOWS = sys.platform == "win32"
KIND = os.environ.get("KCONSUMER_BUILD", "release")
WARNINGS = ["-Wall", "-Wsign-compare", "-Wconversion"]
# -g0: debug information would name the folder of the build, so that no two builds were equal.
KINDS = {
    "release": {"extra_compile_args": ["/O2", "/W3"] if WINDOWS else ["-O2", "-g0", *WARNINGS]},
    "quick": {"extra_compile_args": ["/Od"] if WINDOWS else ["-O0", "-g0", *WARNINGS]},
    "trace": {
        "extra_compile_args": ["-O0", *WARNINGS],
        "define_macros": [
            ("CYTHON_TRACE", "1"),
            ("CYTHON_TRACE_NOGIL", "1"),
            ("CYTHON_USE_SYS_MONITORING", "0"),
        ],
    },
    "asan": {
        # Pythons are often built with -fwrapv, which would be passed on and make signed overflow well-defined.
        "extra_compile_args": [
            *("-O1", "-g", "-fno-omit-frame-pointer", "-fno-wrapv", "-fsanitize=address,undefined"),
            *WARNINGS,
        ],
        "extra_link_args": ["-fsanitize=address,undefined"],
    },
    "tsan": {
        "extra_compile_args": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread", *WARNINGS],
        "extra_link_args": ["-fsanitize=thread"],
    },
}
# Compiles in a third of the time, for `make test`.
KINDS["asan-quick"] = KINDS["asan"] | {
    "extra_compile_args": ["-O0" if flag == "-O1" else flag for flag in KINDS["asan"]["extra_compile_args"]]
}
if KIND not in KINDS:
    raise SystemExit(f"KCONSUMER_BUILD={KIND!r} is not one of {', '.join(KINDS)}")

DIRECTIVES = {
    "language_level": 3,
    # An index beyond the end of a list raises IndexError, though that costs 0.3 % of a loop over records.
    "boundscheck": True,
    "wraparound": False,
    "cdivision": True,
    "linetrace": KIND == "trace",
    "freethreading_compatible": True,  # docs/design/free-threading.md says what makes it so
}

# One extension per .pyx of this folder; each includes the parts in the folder of its name.
CORE = Path("kconsumer/_core")


def options(module: str) -> dict[str, list]:
    """Returns the options with which a module is compiled."""
    found = KINDS[KIND]
    if module == "decode" and KIND == "release" and not WINDOWS:
        # With -O2, gcc does not inline all of the loop over records, which then takes 20 % longer.
        found = found | {"extra_compile_args": [*found["extra_compile_args"], "-O3"]}
    return found


EXTENSIONS = [
    Extension(f"kconsumer._core.{path.stem}", [path.as_posix()], **options(path.stem))
    for path in sorted(CORE.glob("*.pyx"))
]


def remove_stale() -> None:
    """Remove what earlier builds in this folder made of modules that do not exist any more: it could be imported."""
    modules = {path.stem for path in CORE.glob("*.pyx")}
    for path in CORE.iterdir():
        if path.suffix in (".so", ".pyd", ".c") and path.name.partition(".")[0] not in modules:
            path.unlink()


# The address of the repository is a fact of the workflow that builds a release, so no page of another one is linked.
REPOSITORY = os.environ.get("KCONSUMER_REPOSITORY", "")
PAGES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
    "Security": "/security/policy",
}

if __name__ == "__main__":  # the processes that generate C may import this file
    remove_stale()
    setup(
        ext_modules=cythonize(EXTENSIONS, compiler_directives=DIRECTIVES, nthreads=os.cpu_count() or 1),
        options={"build_ext": {"parallel": True}},  # as many compilers at a time as there are cores
        project_urls={name: REPOSITORY + path for name, path in PAGES.items()} if REPOSITORY else {},
    )
