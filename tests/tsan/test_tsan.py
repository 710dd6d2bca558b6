"""ThreadSanitizer finds no race in the memory that threads of the compiled modules share (tox -e tsan).

The headers that share memory between threads do not depend on the interpreter, so programs of C run them here. An
interpreter that is not built with ThreadSanitizer would hide from it what the GIL orders.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
CORE = FOLDER.parents[1] / "kconsumer" / "_core"
RACE = """
#include <pthread.h>
static int shared;
static void *run(void *unused) { shared++; return unused; }
int main(void)
{
    pthread_t threads[2];
    pthread_create(&threads[0], 0, run, 0);
    pthread_create(&threads[1], 0, run, 0);
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 0;
}
"""


def run(source: Path, made: Path, *macros: str) -> subprocess.CompletedProcess[str]:
    """Compile a program with ThreadSanitizer and run it. Returns its output and exit status."""
    flags = ["-g", "-O1", "-Wall", "-Wno-unused-function", "-Werror", "-fsanitize=thread", f"-I{FOLDER}", f"-I{CORE}"]
    subprocess.run(["cc", *flags, *macros, str(source), "-o", str(made), "-pthread", "-ldl"], check=True)
    return subprocess.run([str(made)], capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize(
    ("name", "macros"), [("blocks", []), ("decompressor", []), ("decompressor", ["-DPy_GIL_DISABLED"])]
)
def test_no_race(name: str, macros: list[str], tmp_path: Path) -> None:
    """Threads use the header as the library does, with and without a GIL, and ThreadSanitizer reports nothing."""
    done = run(FOLDER / f"{name}.c", tmp_path / name, *macros)
    assert (0, "") == (done.returncode, done.stderr)


def test_a_race_is_found(tmp_path: Path) -> None:
    """ThreadSanitizer works here: it reports a program with a race."""
    source = tmp_path / "race.c"
    source.write_text(RACE)
    done = run(source, tmp_path / "race")
    assert done.returncode != 0
    assert "data race" in done.stderr
