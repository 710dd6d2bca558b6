"""Output for terminals: control characters are escaped, and colors are used unless NO_COLOR is set.

A record may contain any bytes. Written to a terminal as they are, some of them would move the cursor, change the title
of the window or hide other text. Output to a pipe or a file is never changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Protocol

# Control characters except tab and newline, and characters that change the direction of text or break lines.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NAMED = {"\r": "\\r", "\0": "\\0"}
_JSON_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?[0-9][0-9.eE+-]*)|(?P<word>true|false|null)'
)
RESET = "\x1b[0m"
MATCH_COLOR = "\x1b[1;31m"  # bold red, as of grep
JSON_COLORS = {"key": "\x1b[34m", "text": "\x1b[32m", "number": "\x1b[36m", "word": "\x1b[35m"}


class Stream(Protocol):
    """A stream that may be a terminal."""

    def isatty(self) -> bool:
        """Returns True if the stream is a terminal."""
        ...


def has_colors(stream: Stream) -> bool:
    """Returns True if colors may be written to the stream: it is a terminal, and NO_COLOR is not set or empty."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def safe_text(text: str) -> str:
    r"""Escape control characters: `\x1b` for an escape character, `\u202e` for one that reverses text."""
    return _CONTROL.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    return _NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def safe_bytes(data: bytes) -> str:
    r"""Returns the bytes as text, with control characters escaped, and bytes that are not UTF-8 as `\xff`."""
    return safe_text(data.decode("utf-8", "backslashreplace"))


def safe_json(text: str) -> str:
    r"""Escape the control characters that json.dumps leaves in strings, as `\u009b`. The result is equal JSON."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def color_json(text: str) -> str:
    """Add colors to the names, strings, numbers and words of a line of JSON."""
    return _JSON_TOKEN.sub(lambda found: f"{JSON_COLORS[found.lastgroup or 'word']}{found[0]}{RESET}", text)


def color_matches(text: str, pattern: re.Pattern[str]) -> str:
    """Add a color to every match of the pattern."""
    return "".join(_colored(text, pattern))


def _colored(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    end = 0
    for match in pattern.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match[0]:
            yield f"{MATCH_COLOR}{match[0]}{RESET}"
    yield text[end:]
