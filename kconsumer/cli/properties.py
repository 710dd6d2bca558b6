"""Files of options in the form of Java's properties, such as Kafka's own tools take (`--consumer.config`).

Decides how a file's text becomes keys and values. What they mean is the consumer's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """What a file says; of a key that comes twice, the last. Raises OSError, UnicodeDecodeError."""
    with open(path, encoding="utf-8") as file:
        return parse_properties(file.read())


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values of `java.util.Properties`: `#` and `!` begin comments, a backslash at the end goes on in the next
    line."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None, "every text is an entry"
        found[_plain(match[1])] = _plain(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun += line[:-1]
        else:
            yield begun + line
            begun = ""
    if begun:
        yield begun


def _plain(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)
