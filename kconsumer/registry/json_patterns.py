"""Translates the regular expressions of JSON schemas, in the syntax of ECMAScript and Java, to that of Python."""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from kconsumer.errors import ConfigError

__all__ = ["for_python"]

Ranges = tuple[tuple[int, int], ...]  # the first and the last code point of each range

#: Keywords that contain schemas, by names, and those that contain one schema or a list. Other keywords contain values.
NAMED_SCHEMAS = {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"}
SCHEMAS = {
    "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
    "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip

TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)|\\[pP](?:\{(?P<long>\^?[\w=]+)\}|(?P<short>[A-Z]))|\\k<(?P<back>\w+)>"
    r"|\\[ux]\{(?P<code>[0-9A-Fa-f]{1,6})\}|\\u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})"
    r"|\\c(?P<control>[A-Za-z])|\\(?P<letter>.)|(?P<group>\(\?<)(?=\w)|(?P<open>\[\^?\]?)"
    r"|(?P<dash>-)(?=\\[dDhHpPsSvVwW])|(?P<both>&&)|.",
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


def for_python(schema: Any, base: str, id_of: Callable[[Any], str], target: Callable[[str, str], str]) -> Any:
    """Returns a copy of a schema with patterns in Python's syntax, and other addresses of the schemas it refers to.

    `target(base, reference)` returns the address for a `$ref`, `id_of(schema)` the id of a schema. Raises ConfigError.
    """
    if isinstance(schema, list):
        return [for_python(part, base, id_of, target) for part in schema]
    if not isinstance(schema, dict):
        return schema
    base = urljoin(base, str(id_of(schema) or ""))
    found: dict[str, Any] = {}
    for key, part in schema.items():
        if key == "pattern" and isinstance(part, str):
            found[key] = _python_pattern(part)
        elif key in ("$ref", "$dynamicRef") and isinstance(part, str):
            found[key] = target(base, part)
        elif key in NAMED_SCHEMAS and isinstance(part, dict):
            found[key] = named = {}
            for name, inner in part.items():
                renamed = _python_pattern(name) if key == "patternProperties" else name
                while renamed in named:  # two patterns may have one translation
                    renamed += "(?:)"
                named[renamed] = for_python(inner, base, id_of, target)
        else:
            found[key] = for_python(part, base, id_of, target) if key in SCHEMAS else part
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
            return f"(?P={match['back']})" if match["back"] else text if self._in_set else "(?P<"
        if match["code"] or match["control"]:
            return _shown(int(match["code"], 16) if match["code"] else ord(match["control"]) & 31)
        if match["high"]:
            return _shown(0x10000 + ((int(match["high"], 16) & 1023) << 10) + (int(match["low"], 16) & 1023))
        if match["quoted"] is not None:
            return re.escape(match["quoted"])
        if match["dash"] and self._in_set:  # no range begins before a class
            return r"\-"
        if match["both"] and self._in_set:
            raise re.error("sets with && are not supported")
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
