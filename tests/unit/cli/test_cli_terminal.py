"""Output on a terminal: control characters are escaped, and there are colors unless the user does not want them."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from kconsumer import ConsumerRecord
from kconsumer.cli.output import Terminal, writer
from kconsumer.cli.table import table
from kconsumer.cli.terminal import color_json, color_matches, has_colors, safe_json

HOSTILE = b"a\x1b[2J\x1b]0;title\x07\r\x00\x7f\xc2\x9b\xe2\x80\xae\xff\tb\nc"


def record(value: Any, key: Any = None) -> ConsumerRecord:
    """Returns a record with this value."""
    return ConsumerRecord("t", 0, 7, 1, 0, key, value, [("h\x1b", b"\x07")])


class Tty(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("spec", ["text", "json", "%k|%s|%h\\n"])
@pytest.mark.parametrize("colors", [False, True])
def test_no_record_controls_a_terminal(spec: str, colors: bool) -> None:
    """In every format, the only control sequences on a terminal are the colors of the command."""
    line = writer(spec, Terminal(colors, re.compile("title")))(record(HOSTILE, HOSTILE)).decode()
    without_colors = re.sub(r"\x1b\[[0-9;]*m", "", line) if colors else line
    assert [] == [char for char in without_colors if not (char.isprintable() or char in "\t\n")]


def test_the_format_itself_is_not_escaped() -> None:
    """The control sequences of a format are the user's own."""
    assert b"\x1b[1mv\x1b[0m" == writer(r"\x1b[1m%s\x1b[0m", Terminal())(record(b"v"))


def test_colors() -> None:
    """Names, strings, numbers and words of JSON differ in color; matches of a pattern are red."""
    expected = (
        '{\x1b[34m"a"\x1b[0m: \x1b[36m-1.5\x1b[0m, \x1b[34m"b:"\x1b[0m: [\x1b[32m"\\"x"\x1b[0m, \x1b[35mnull\x1b[0m]}'
    )
    assert expected == color_json('{"a": -1.5, "b:": ["\\"x", null]}')
    assert "x\x1b[1;31mab\x1b[0my\x1b[1;31maab\x1b[0m" == color_matches("xabyaab", re.compile("a+b"))
    assert "ab" == color_matches("ab", re.compile("x*"))
    found = writer("%s %o", Terminal(colors=True, pattern=re.compile("[0-9]")))(record(b"v1"))
    assert b"v\x1b[1;31m1\x1b[0m 7" == found


def test_values_of_a_deserializer() -> None:
    """A decoded value is JSON in every format, and nested in JSON; half a surrogate pair stays valid JSON."""
    assert [b'{"a": 1}\n', b"true\n", b"[1]\n", b"text\n"] == [
        writer("text")(record(value)) for value in ({"a": 1}, True, [1], "text")
    ]
    assert {"a": [True, None]} == json.loads(writer("json")(record({"a": [True, None]})))["value"]
    assert "\ud800" == json.loads(writer("json")(record("\ud800")))["value"]
    assert json.loads(safe_json('"\x7f"')) == "\x7f"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_when_there_are_colors(environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are colors on a terminal, unless NO_COLOR has a value or the terminal has none; never in a pipe."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (expected, False) == (has_colors(Tty()), has_colors(io.StringIO()))


def test_tables_are_safe() -> None:
    """A name with control characters keeps its line of a table."""
    assert ["GROUP      N", "g\\n\\x1b[m  1"] == table(("GROUP", "N"), [("g\n\x1b[m", 1)])
