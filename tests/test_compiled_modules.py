"""Checks which compiled modules use sockets, clocks and threads: the table in docs/design/overview.md names them.

Reads the sources of `kconsumer/_core`, so it needs no build. A header counts for each module that includes it, itself
or through another header. A module that another one cimports counts for itself only.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE = ROOT / "kconsumer" / "_core"
SYSTEM_HEADER = r'(?:#include <|cdef extern from "|cdef extern from <)'
PYTHON_IMPORT = r"(?m:^\s*(?:from|c?import)\s+)"
# What the table allows -> what shows that a source uses it.
SIGNS = {
    "sockets": re.compile(
        SYSTEM_HEADER + r"(?:sys/(?:socket|epoll|uio|select)|poll|netdb|netinet/\w+|winsock2)\.h"
        r"|->SSL_\w+\(|" + PYTHON_IMPORT + r"(?:socket|_socket|select|selectors|ssl|asyncio)\b"
    ),
    "clock": re.compile(
        SYSTEM_HEADER + r"(?:sys/)?(?:time|timerfd)\.h|\bPyTime_|\bclock_gettime\b|\bnanosleep\b|"
        rf"{PYTHON_IMPORT}(?:time|datetime|libc\.time|posix\.time|kconsumer\.clock)\b"
    ),
    "threads": re.compile(
        SYSTEM_HEADER + r"(?:pthread|threads|sched)\.h|\bPyThread_|\b__thread\b|"
        rf"{PYTHON_IMPORT}(?:threading|_thread|concurrent|cpython\.pythread)\b"
    ),
}
# On Windows, this header replaces those that use the system. Its functions do nothing.
NOT_FOLLOWED = {"windows_stubs.h"}


def own_headers(text: str) -> set[str]:
    """Returns the names of the quoted headers that a source includes."""
    return set(re.findall(r'(?:#include|cdef extern from) "([\w/]+\.h)"', text)) - NOT_FOLLOWED


def used(text: str, folder: Path) -> set[str]:
    """Returns which of SIGNS a source shows, or a header of `folder` that it includes."""
    found = {name for name, sign in SIGNS.items() if sign.search(text)}
    for name in own_headers(text):
        if (folder / name).exists():
            found |= used((folder / name).read_text(encoding="utf-8"), folder)
    return found


def uses(folder: Path) -> dict[str, set[str]]:
    """Returns what each compiled module of a folder, and each part of a module, uses itself."""
    found: dict[str, set[str]] = {}
    for path in sorted((*folder.rglob("*.pyx"), *folder.rglob("*.pxd"))):
        if path.parent != folder or not path.with_suffix("").is_dir():
            found.setdefault(path.stem, set()).update(used(path.read_text(encoding="utf-8"), folder))
    return found


def table() -> list[tuple[str, set[str]]]:
    """Returns the rows of the table: a part, and what it may use. Parts of the same row are separate here."""
    text = (ROOT / "docs" / "design" / "overview.md").read_text(encoding="utf-8")
    section = text.partition("\n## Compiled modules\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `\w+` \| (`.*`) \|[^|]*\| (.*) \|$", section, re.MULTILINE)
    return [
        (name, set() if allowed == "bytes only" else set(allowed.split(", ")))
        for names, allowed in rows
        for name in re.findall(r"`(\w+)`", names)
    ]


def test_the_table_says_what_each_compiled_module_uses() -> None:
    """Every part of a compiled module is in the table once, and uses exactly what its row says."""
    assert uses(CORE) == dict(table())
    names = [name for name, _ in table()]
    assert sorted(names) == sorted(set(names))


def test_planted_uses_are_found(tmp_path: Path) -> None:
    """The rule finds an include in a header of a header, a Python import, and a C function without its header."""
    sources = {
        "outer.h": '#include "inner.h"\n',
        "inner.h": "#include <sys/socket.h>\n",
        "receives.pxd": 'cdef extern from "outer.h" nogil:\n    pass\n',
        "receives.pyx": "from kconsumer._core.waits cimport wait\n",
        "waits.pyx": "def f():\n    import time\n",
        "sleeps.pyx": 'cdef extern from *:\n    """\n    nanosleep(&moment, NULL);\n    """\n',
        "locks.pyx": "from cpython.pythread cimport PyThread_allocate_lock\n",
        "adds.pyx": '"""Callers pass the time. No socket, no thread."""\nfrom libc.stdint cimport int64_t\n',
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    expected = {"adds": set(), "locks": {"threads"}, "receives": {"sockets"}, "sleeps": {"clock"}, "waits": {"clock"}}
    assert expected == uses(tmp_path)
