"""Writes options.md from the option table; with `--check` says whether it is up to date.

python docs/make_options.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from kconsumer._options import Option
from kconsumer.config import ALIASES, FOREIGN, OPTIONS, REQUIRED
from kconsumer.types import OffsetReset

PAGE = Path(__file__).with_name("options.md")

HEAD = """\
# Options

<!-- Written by docs/make_options.py from the table in kconsumer/config.py; do not edit. -->

`Consumer("topic", bootstrap_servers="localhost:9092", group_id="g", max_poll_records=100)` takes the names below.
`Consumer.from_config(mapping)` takes them too, or the Java consumer's keys: the same words with dots for underscores
(`max.poll.records`), values typed or as text.
Names, defaults and units are those of the Java consumer of Kafka 4.4, unless the row says *own*.
A wrong name, a value that does not fit, and options that contradict each other raise `ConfigError` at construction.

*Later* marks options whose feature this version does not have: any value but the default raises `ConfigError`.
*Classic* and *consumer* mark options of one `group_protocol` only.
"""

SECTIONS = [
    ("Group and consumption", "bootstrap_servers"),
    ("Fetching", "fetch_min_bytes"),
    ("Client, network, metadata, metrics", "client_id"),
    ("kconsumer's own", "buffer_memory"),
    ("Security", "security_protocol"),
]


def default(row: Option) -> str:
    """How the default reads."""
    if row.default is REQUIRED:
        return "required"
    if isinstance(row.default, OffsetReset):
        return f"`{row.default}`"
    if row.default in (None, ()):
        return "none"
    if isinstance(row.default, tuple):
        return "`" + ",".join(str(entry) for entry in row.default) + "`"
    return f"`{row.default!r}`" if row.default == "" else f"`{row.default}`"


def marks(row: Option) -> str:
    """What sets the option apart."""
    return ", ".join(word for word in ("own" if row.own else "", row.protocol, "later" if row.later else "") if word)


def page() -> str:
    """The whole text."""
    parts = [HEAD]
    starts = {first: title for title, first in SECTIONS}
    for name, row in OPTIONS.items():
        if name in starts:
            parts.append(
                f"\n## {starts[name]}\n\n| option | default | takes | | meaning |\n| --- | --- | --- | --- | --- |\n"
            )
        cells = (f"`{name}`", default(row), row.kind.text, marks(row), row.meaning)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    parts.append("\n## Other names of the same options\n\n| name | option |\n| --- | --- |\n")
    parts += [f"| `{alias}` | `{name}` |\n" for alias, name in ALIASES.items()]
    parts.append("\n## Options of other clients\n\n| name | what to do |\n| --- | --- |\n")
    parts += [f"| `{name}` | {advice} |\n" for name, advice in FOREIGN.items()]
    return "".join(parts)


def main() -> int:
    """Write the page, or compare it; 1 when it is not what the table says."""
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.stderr.write("docs/options.md is not what kconsumer/config.py says: run python docs/make_options.py\n")
            return 1
        return 0
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
