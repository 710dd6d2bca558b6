"""Reads options from Java properties files, which Kafka's own tools take as well (`--consumer.config`).

Decides how the text of a file becomes keys and values, not what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """Return the entries of a file; the last one wins if a key is repeated. Raises OSError, UnicodeDecodeError."""
    with open(path, encoding="utf-8") as file:
        return parse_properties(file.read())


def parse_properties(text: str) -> dict[str, str]:
    """Parse the text as `java.util.Properties` does: `#` and `!` begin comments, a backslash continues a line."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None, "the pattern matches every line"
        found[_unescape(match[1])] = _unescape(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    continued = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued += line[:-1]
        else:
            yield continued + line
            continued = ""
    if continued:
        yield continued


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped_character, text)


def _unescaped_character(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED.get(code, code)
