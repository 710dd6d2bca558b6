"""Shows records as an HTML table, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from reprlib import Repr
from typing import Any

MAX_ROWS = 20
MAX_TEXT = 100
_short = Repr()
_short.maxstring = _short.maxother = MAX_TEXT  # characters; an object whose `repr` fails is shown by its class


def html_table(summary: str, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Returns a table of at most `MAX_ROWS` rows below a line of text. The texts are escaped and shortened."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = ""
    for row, _ in zip(rows, range(MAX_ROWS), strict=False):
        body += f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row)}</tr>"
    return f"<p>{escape(summary)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    if isinstance(value, bytes):  # not the representation of all of a large value
        return f"{value[:MAX_TEXT]!r}{'…' * (len(value) > MAX_TEXT)}"
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else _short.repr(value)
