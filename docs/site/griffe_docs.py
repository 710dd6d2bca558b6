"""An extension of Griffe, which reads the sources for the API pages: documents fields, prepares examples, and sorts.

A field is documented by the comment behind it, or by `#:` comments above it. An example in a docstring, which begins
with `>>>`, becomes a code block.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

CONSUMERS = ("consumer.Consumer", "share.consumer.ShareConsumer", "aio.consumer.AsyncConsumer")
# A consumer's page begins with the methods that most programs call. The others follow in the order of the sources.
FIRST = (
    *("subscribe", "assign", "poll", "poll_arrow", "batches", "commit", "commit_async", "store_offsets", "acknowledge"),
    *("seek", "seek_to_beginning", "seek_to_end", "seek_to_time", "position", "committed", "pause", "resume"),
    *("assignment", "subscription", "status", "partition_states", "metrics", "wakeup", "close", "from_config"),
)
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
COMMENT = re.compile(r"  # (.+)$")


class FieldComments(Extension):
    """Documents fields by their comments."""

    def on_instance(self, *, node: ast.AST, obj: Object, **_others: Any) -> None:
        """Change the docstring of an object of the sources."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
        elif isinstance(obj, Attribute) and isinstance(obj.filepath, Path) and obj.lineno and obj.endlineno:
            text = comment(lines(obj.filepath), obj.lineno - 1, obj.endlineno - 1)
            if text:
                obj.docstring = Docstring(f"{text[0].upper()}{text[1:]}.".replace("..", "."), parent=obj)

    def on_package(self, *, pkg: Any, **_others: Any) -> None:
        """Sort the methods of consumers, which inherit most of them."""
        for path in CONSUMERS if pkg.name == "kconsumer" else ():
            members = pkg[path].members
            every = {**pkg[path].inherited_members, **members}
            members.clear()
            members.update({name: every.pop(name) for name in FIRST if name in every}, **every)


@cache
def lines(path: Path) -> list[str]:
    """Returns the lines of a file."""
    return path.read_text(encoding="utf-8").splitlines()


def comment(source: list[str], first: int, last: int) -> str:
    """Returns the comment behind or above a statement, whose lines are given, or an empty string."""
    behind = COMMENT.search(source[last])
    if behind and not behind[1].startswith("fmt:"):
        return behind[1]
    above: list[str] = []
    while first and (line := source[first - 1].strip()).startswith("#:"):
        above.insert(0, line.removeprefix("#:").strip())
        first -= 1
    return " ".join(above)
