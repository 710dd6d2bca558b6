"""Checks the built site: links, anchors and files exist, and pages load nothing from other hosts.

python docs/site/check.py [build/site]

MkDocs itself checks links in Markdown. This script reads the HTML, so that it also sees links from docstrings,
navigation and theme. It prints what it finds, and exits with 1 if there is anything.
"""

from __future__ import annotations

import posixpath
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]


class PageParser(HTMLParser):
    """Collects the links and the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, bool]] = []  # with whether the browser loads it as a part of the page
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the link and the id of an element."""
        values = dict(attrs)
        if identifier := values.get("id"):
            self.ids.append(identifier)
        part = "src" in values or (tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"))
        if link := values.get("src") or values.get("href"):
            self.links.append((link, part))


def problems(site: Path) -> list[str]:
    """Returns what is wrong with the pages of a site."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        parser = PageParser()
        parser.feed(path.read_text(encoding="utf-8"))
        pages[path.relative_to(site).as_posix()] = parser
    found = []
    for name, page in pages.items():
        found += [
            f"{name}: two elements have the id {i}" for i in sorted({i for i in page.ids if page.ids.count(i) > 1})
        ]
        if name != "404.html":  # its links begin with the address of the site
            found += [
                f"{name}: {link}: {why}" for link, part in page.links if (why := problem(site, pages, name, link, part))
            ]
    return found


def problem(site: Path, pages: dict[str, PageParser], name: str, link: str, part: bool) -> str:
    """Returns what is wrong with a link of a page, or an empty string."""
    path, _, anchor = unquote(link).partition("#")
    if link.startswith(("data:", "mailto:", "javascript:")):
        return ""
    if "://" in path or path.startswith("//"):
        return "is loaded from another host" if part else ""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if (site / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (site / target).is_file():
        return "does not exist"
    if anchor and target in pages and anchor not in pages[target].ids and not anchor.startswith("__"):
        return "has no such anchor"
    return ""


def main() -> int:
    """Check the site. Returns the exit code."""
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    found = problems(site)
    for line in found:
        print(line, file=sys.stderr)
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages, {len(found)} problems")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main())
