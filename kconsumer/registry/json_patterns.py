"""Translates the regular expressions of JSON schemas, in the syntax of ECMAScript and Java, to that of Python."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from typing import Any

from kconsumer.errors import ConfigError

__all__ = ["with_python_patterns"]

Ranges = tuple[tuple[int, int], ...]  # the first and the last code point of each range

NAMED_SCHEMAS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")
DATA = ("const", "enum", "default", "examples")  # keywords that contain values, not schemas

TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\[pP](?:\{(?P<long>\^?[\w=]+)\}|(?P<short>[A-Z]))|\\k<(?P<back>\w+)>"
    r"|\\[ux]\{(?P<code>[0-9A-Fa-f]{1,6})\}|\\u(?P<high>[dD][89abAB]\w\w)\\u(?P<low>[dD][c-fC-F]\w\w)"
    r"|\\c(?P<control>[A-Za-z])|\\(?P<letter>.)|(?P<group>\(\?<)(?=\w)|(?P<open>\[\^?\]?)|.",
    re.DOTALL | re.ASCII,
)
LETTERS = {"z": r"\Z", "Z": r"(?=\n?\Z)", "e": r"\x1b", "R": r"(?:\r\n|[\n-\r\x85\u2028\u2029])"}
#: Classes of ASCII characters, by the letter of an escape, or by a name of Java.
CLASSES = {
    "d": "09", "w": "09AZ__az", "s": "\t\r  ", "Digit": "09", "Lower": "az", "Upper": "AZ", "Alpha": "AZaz",
    "h": "\t\t  \xa0\xa0\u1680\u1680\u2000\u200a\u202f\u202f\u205f\u205f\u3000\u3000", "v": "\n\r\x85\x85\u2028\u2029",
    "Alnum": "09AZaz", "Punct": "!/:@[`{~", "Graph": "!~", "Print": " ~", "Blank": "\t\t  ", "Space": "\t\r  ",
    "Cntrl": "\0\x1f\x7f\x7f", "XDigit": "09AFaf", "ASCII": "\0\x7f",
}  # fmt: skip
LONG_NAMES = {"Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Decimal_Number": "Nd", "Space_Separator": "Zs",
              "Letter": "L", "Mark": "M", "Number": "N", "Punctuation": "P", "Symbol": "S", "Digit": "Nd"}  # fmt: skip


def with_python_patterns(schema: Any) -> Any:
    """Returns a copy of a schema with the patterns that it contains in Python's syntax. Raises ConfigError."""
    if isinstance(schema, list):
        return [with_python_patterns(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, part in schema.items():
        if key == "pattern" and isinstance(part, str):
            found[key] = _python_pattern(part)
        elif key in NAMED_SCHEMAS and isinstance(part, dict):
            rename = _python_pattern if key == "patternProperties" else str
            found[key] = {rename(name): with_python_patterns(inner) for name, inner in part.items()}
        else:
            found[key] = part if key in DATA else with_python_patterns(part)
    return found


def _python_pattern(pattern: str) -> str:
    try:
        found = _Translator().translated(pattern)
        re.compile(found)
    except (re.error, OverflowError) as error:
        raise ConfigError(
            f"Python has no regular expression for the pattern {pattern!r} of a schema: {error}"
        ) from None
    return found


class _Translator:
    """Translates one pattern, token by token."""

    def __init__(self) -> None:
        self._in_set = False  # between brackets

    def translated(self, pattern: str) -> str:
        return TOKEN.sub(self._translated, pattern)

    def _translated(self, match: re.Match[str]) -> str:
        text = match[0]
        if match["long"] or match["short"]:
            name = match["long"] or match["short"]
            return self._class(_property(name.removeprefix("^")), (text[1] == "P") != name.startswith("^"))
        if match["letter"]:
            return self._letter(match["letter"])
        if match["back"] or match["group"]:
            return f"(?P={match['back']})" if match["back"] else "(?P<"
        if match["code"] or match["control"]:
            return _shown(int(match["code"], 16) if match["code"] else ord(match["control"]) & 31)
        if match["high"]:
            return _shown(0x10000 + ((int(match["high"], 16) & 1023) << 10) + (int(match["low"], 16) & 1023))
        if match["quoted"] is not None:
            return re.escape(match["quoted"])
        if match["open"] and not self._in_set:
            self._in_set = True
            return text.replace("]", r"\]")
        self._in_set = self._in_set and not text.endswith("]")
        return text.replace("[", r"\[")

    def _letter(self, letter: str) -> str:
        if letter.lower() in CLASSES:
            return self._class(_ranges(CLASSES[letter.lower()]), letter.isupper())
        return LETTERS.get(letter, f"\\{letter}")

    def _class(self, ranges: Ranges, negative: bool) -> str:
        if negative:
            ranges = _others(ranges)
        text = "".join(f"{_shown(first)}-{_shown(last)}" for first, last in ranges)
        return text if self._in_set else f"[{text}]"


def _shown(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\U{code:08x}"


def _ranges(ends: str) -> Ranges:
    return tuple((ord(first), ord(last)) for first, last in zip(ends[::2], ends[1::2], strict=True))


def _others(ranges: Ranges) -> Ranges:
    starts = [0, *(last + 1 for _, last in ranges)]
    ends = [*(first - 1 for first, _ in ranges), sys.maxunicode]
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)


@functools.lru_cache(maxsize=64)
def _property(name: str) -> Ranges:
    """Returns the ranges of a Unicode category such as `Lu`, or of a class that Java names, such as `Alpha`."""
    if name in CLASSES and len(name) > 1:
        return _ranges(CLASSES[name])
    name = name.rpartition("=")[2]
    category = name.removeprefix("Is")
    category = LONG_NAMES.get(category, category)
    found: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(category):
            if found and found[-1][1] == code - 1:
                found[-1] = (found[-1][0], code)
            else:
                found.append((code, code))
    if not found:
        raise re.error(f"\\p{{{name}}} is not known; categories such as L and Lu are")
    return tuple(found)
