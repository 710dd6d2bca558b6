"""Reads options from Java properties files, such as those that Kafka's own tools accept (`--consumer.config`).

Only splits the text into keys and values. `kconsumer.config` checks the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: str) -> dict[str, str]:
    """Returns the keys and values of a file. Raises OSError or UnicodeDecodeError if it cannot be read."""
    with open(path, encoding="utf-8-sig") as file:
        return parse_properties(file.read())


def parse_properties(text: str) -> dict[str, str]:
    """Parse keys and values as `java.util.Properties` does. If a key is repeated, the last value wins.

    `#` and `!` begin comments. A backslash at the end of a line continues the line.
    """
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
