"""Writes a stub file (`.pyi`) for each module that defines messages, so that type checkers see the messages' fields.

`python -m kconsumer.schema.stubs` writes the files. With `--check` it writes nothing, and exits with 1 if a file is
outdated.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from kconsumer.schema.dsl import Api, Array, Field, Message, Scalar

TABLES = (
    "admin",
    "classic_group",
    "consumer_group",
    "embedded",
    "fetch",
    "group_deletion",
    "metadata",
    "offsets",
    "produce",
    "sasl",
    "share_group",
    "telemetry",
    "topics",
    "transactions",
)
_HEAD = "# Written by `python -m kconsumer.schema.stubs`; the tables are in {name}.py.\n"


def stub(module: ModuleType) -> str:
    """Returns the stub of one module: its message classes, APIs and constants, in the order of their definition."""
    body = []
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
            body.append(_class_stub(value))
        elif isinstance(value, Api):
            body.append(f"{name}: Api\n")
        elif name.isupper() and isinstance(value, int | str):
            body.append(f"{name}: {type(value).__name__}\n")
    text = "\n".join(body)
    head = _HEAD.format(name=module.__name__.rpartition(".")[2])
    slices = "from kconsumer._core.wire import Slice\n" if "Slice" in text else ""
    names = "Api, Message" if ": Api" in text else "Message"
    return f"{head}\n{slices}from kconsumer.schema.dsl import {names}\n\n{text}"


def _class_stub(cls: type[Message]) -> str:
    types = {field.name: _type_name(field) for field in cls.FIELDS}
    attributes = "".join(f"    {name}: {kind}\n" for name, kind in types.items())
    arguments = "".join(f"        {name}: {kind} = ...,\n" for name, kind in types.items())
    return (
        f"class {cls.__name__}(Message):\n{attributes}"
        f"    def __init__(\n        self,\n        *,\n{arguments}    ) -> None: ...\n"
    )


def _type_name(field: Field) -> str:
    nullable = field.null.first <= field.null.last or (field.default is None and field.fresh is None)
    return _kind_name(field.kind) + (" | None" if nullable else "")


def _kind_name(kind: Scalar | Array | type[Message]) -> str:
    if isinstance(kind, Scalar):
        return kind.python
    if isinstance(kind, Array):
        return f"list[{_kind_name(kind.element)}]"
    return kind.__name__


def main(arguments: list[str]) -> int:
    """Write the stubs, or check them with "--check". Returns the exit status: 1 if the check finds an outdated stub."""
    stale = []
    for name in TABLES:
        module = importlib.import_module(f"kconsumer.schema.{name}")
        path = Path(__file__).with_name(f"{name}.pyi")
        text = stub(module)
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(text)
    if stale and "--check" in arguments:
        sys.stderr.write(f"outdated: {', '.join(stale)}; to repair it: python -m kconsumer.schema.stubs\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
