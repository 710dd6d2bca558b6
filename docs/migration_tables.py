"""The tables of docs/coming-from/: options that have another name here, no counterpart, or another default.

The names and defaults of other clients are in tests/unit/config/data; a test compares the defaults with the clients.
What replaces an option is in kconsumer/config, and what else differs from Java in java_differences.py. Called by
make_pages.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import java_differences

from kconsumer.config.foreign_options import FOREIGN
from kconsumer.config.options import ALIASES, OPTIONS, canonical_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "coming-from"
PROGRAMS = ROOT / "examples" / "migration"
DATA = ROOT / "tests" / "unit" / "config" / "data"
NAMES: dict[str, list[str]] = json.loads((DATA / "option_names.json").read_text(encoding="utf-8"))
DEFAULTS: dict[str, dict[str, Any]] = json.loads((DATA / "option_defaults.json").read_text(encoding="utf-8"))
# For each page, the lists of option_names.json.
LISTS = {
    "confluent-kafka": ("librdkafka 2.15 (consumer)", "confluent-kafka 2.16"),
    "kafka-python": ("kafka-python 3.0", "kafka-python 2.3"),
    "aiokafka": ("aiokafka 0.14",),
    "java": ("Java 4.4 (consumer)",),
}
BEGIN = "<!-- {}: written by docs/make_pages.py; do not edit. -->\n"
END = "<!-- Until here. -->\n"
Table = Callable[[Collection[str], Iterable[Collection[str]]], str]


def names(client: str) -> list[str]:
    """Returns the names of a client's options, as its documentation writes them."""
    return sorted({name for names in LISTS[client] for name in NAMES[names]})


def renamed(client: str) -> Iterator[tuple[str, str]]:
    """Yield options that have another name here, each with this name."""
    for name in names(client):
        if name.replace(".", "_") in ALIASES:
            yield f"`{name}`", f"`{canonical_name(name)}`"


def without_counterpart(client: str) -> Iterator[tuple[str, str]]:
    """Yield options that do not exist here, those with the same replacement together."""
    rows: dict[str, list[str]] = {}
    for name in names(client):
        snake = name.replace(".", "_")
        if snake in FOREIGN:
            rows.setdefault(FOREIGN[snake], []).append(f"`{name}`")
    for advice, found in sorted(rows.items(), key=lambda row: row[1]):
        yield ", ".join(found), advice


def shown(value: object) -> str:
    """Returns a default as a page shows it."""
    if value and isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value in (None, "", ()) else str(value)


def defaults(client: str) -> Iterator[tuple[str, str, str]]:
    """Yield options with another default: the name, their default, the default here."""
    for name, theirs in DEFAULTS[client].items():
        option = canonical_name(name)
        yield (
            f"`{name}`" if option in name.replace(".", "_") else f"`{name}` (`{option}`)",
            shown(theirs),
            shown(OPTIONS[option].default),
        )


def program(file: str) -> str:
    """Returns a program of examples/migration as a code block."""
    language = Path(file).suffix.removeprefix(".").replace("py", "python")
    return f"```{language}\n{(PROGRAMS / file).read_text(encoding='utf-8')}```\n"


def replaced(text: str, name: str, content: str) -> str:
    """Returns a page with new content between the comments of a part."""
    before, begin, rest = text.partition(BEGIN.format(name))
    assert begin, f"the page has no part {name!r}"
    return before + begin + "\n" + content + "\n" + END + rest.partition(END)[2]


def page(client: str, table: Table) -> str:
    """Returns the page of a client with the current tables and programs."""
    text = (FOLDER / f"{client}.md").read_text(encoding="utf-8")
    stem = client.replace("-kafka", "").replace("-", "_")
    before = next(path.name for path in sorted(PROGRAMS.glob(f"{stem}_before.*")))
    title = "Java" if client == "java" else client
    text = replaced(text, "Before", program(before))
    text = replaced(text, "After", program(f"{stem}_after.py"))
    if rows := [*renamed(client)]:
        text = replaced(text, "Other names", table((title, "kconsumer"), rows))
    text = replaced(text, "No counterpart", table((title, "instead"), without_counterpart(client)))
    if client in DEFAULTS:
        text = replaced(text, "Other defaults", table(("option", title, "kconsumer"), defaults(client)))
    if client == "java":
        text = replaced(text, "Differences", java_differences.differences(table))
        text = replaced(text, "Surprises", java_differences.surprises(table))
    return text


def pages(table: Table) -> dict[Path, str]:
    """Returns each page with its current text."""
    return {FOLDER / f"{client}.md": page(client, table) for client in LISTS}
