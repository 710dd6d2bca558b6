"""Links of the documentation lead to files and headings that exist. `make docs` checks the same in the built site."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "assignors/*.md", "benchmarks/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)

FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


@cache
def text_of(page: Path) -> str:
    """Returns the text of a page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page, and of its entries in the reference."""
    headings = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(text_of(page))]
    slugs = [re.sub(r"[^\w\- ]", "", heading.replace("\\", "")).strip().lower() for heading in headings]
    return {slug.replace(" ", "-") for slug in slugs} | set(ENTRY.findall(text_of(page)))


def dead(page: Path, link: str) -> bool:
    """Returns whether a link leads to nothing."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file, a folder or a heading of the repository has a target."""
    links = {link for link in LINK.findall(text_of(page)) if not re.match(r"[a-z]+:", link)}
    assert [] == sorted(link for link in links if dead(page, link))


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """A link to a missing file or heading is found; those to existing ones are not."""
    page = tmp_path / "page.md"
    page.write_text("# One: `two`\n\n## Three & four\n\n::: kconsumer.Consumer\n")
    good = ["page.md", "#one-two", "page.md#three--four", "#kconsumer.Consumer", "../"]
    assert [] == [link for link in good if dead(page, link)]
    assert [link for link in ("none.md", "#two", "page.md#three") if dead(page, link)] == [
        "none.md",
        "#two",
        "page.md#three",
    ]
