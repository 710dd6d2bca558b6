"""Hooks of MkDocs for the site: navigation, version, diagrams, the file map, and links to files outside of docs/.

Pages link to files of the repository by their paths, so that the links work in a checkout as well. For each file that a
page links to, the site gets a page under `project/`: Markdown as it is, a program as a code block, a folder as a list.
Images are copied.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
IMAGES = (".svg", ".png")
# Languages of code blocks by the suffix or the name of a file.
LANGUAGES = {".py": "python", ".toml": "toml", ".ini": "ini", ".yml": "yaml", ".sh": "sh", ".json": "json"}
FENCED = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^()\s]+)(\))")
# A search shows guides first, then the reference, then pages about the code. It finds no sources.
BOOSTS = {"guides/": 3, "reference/": 0.7, "coming-from/": 1, "design/": 0.2, "project/": 0.2, "": 2}
NOT_SEARCHED = ("design/file-map.md", "project/examples/", "project/tests/", "project/kconsumer/")
OPTION = re.compile(r"(?<=<tr>\n)<td><code>(\w+)</code></td>")
CODE_IN_CELL = re.compile(r"(?<=<td><code>)[^<]+(?=</code></td>)")
NOT_RUN = re.compile(r"^( *```\w+) not-run$", re.MULTILINE)
NavEntry = str | dict[str, "NavEntry"] | list["NavEntry"]


def _module(name: str) -> ModuleType:
    """Return a module of this folder, which MkDocs has not on its path."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


diagrams, file_map = _module("diagrams"), _module("file_map")

#: The path in the repository of each page that is generated from a file, by the path of the page.
_origins: dict[str, str] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the version to the name of the site."""
    config.site_name = f"{config.site_name} {version()}"
    config.copyright = f"{config.site_name}. {config.copyright}"
    return config


def version() -> str:
    """Returns the version of the library."""
    tree = ast.parse((ROOT / "kconsumer" / "_version.py").read_text(encoding="utf-8"))
    return next(str(ast.literal_eval(node.value)) for node in tree.body if isinstance(node, ast.Assign))


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the file map, the files that pages link to, the files of the theme, and the navigation."""
    files.append(File.generated(config, "design/file-map.md", content=file_map.file_map()))
    for asset in (HERE / "assets").iterdir():
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    named = {entry for entry in _names(config.nav) if "*" not in entry}
    wanted = [target for page in files.documentation_pages() for target in _targets(page.src_uri, page.content_string)]
    wanted += [entry.removeprefix("project/") for entry in named if entry.startswith("project/")]
    while wanted:
        path = wanted.pop()
        uri = site_path(path)
        if uri in files.src_uris or not (ROOT / path).exists():
            continue
        if uri.endswith(IMAGES):
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
            continue
        text = page_of(ROOT / path)
        _origins[uri] = path
        inclusion = InclusionLevel.INCLUDED if uri in named else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, uri, content=text, inclusion=inclusion))
        wanted += _targets(uri, text)
    pages = sorted(file.src_uri for file in files.documentation_pages() if file.inclusion == InclusionLevel.INCLUDED)
    config.nav = _expand(config.nav, lambda pattern: [p for p in fnmatch.filter(pages, pattern) if p not in named])
    return files


def _names(nav: NavEntry) -> Iterator[str]:
    """Yield the paths of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _names(entry)


def _expand(nav: NavEntry, pages: Callable[[str], list[str]]) -> NavEntry:
    """Returns the navigation with pages in place of each name with an asterisk. Sections without pages are left out."""
    if isinstance(nav, dict):
        return {title: _expand(entry, pages) for title, entry in nav.items()}
    if isinstance(nav, str):
        found = pages(nav) if "*" in nav else [nav]
        return found[0] if len(found) == 1 and "/" not in nav else found
    entries: list[NavEntry] = []
    for entry in nav:
        expanded = _expand(entry, pages)
        if isinstance(expanded, dict) and not all(expanded.values()):
            continue
        entries += expanded if isinstance(expanded, list) else [expanded]
    return entries


def site_path(path: str) -> str:
    """Returns the path, within the site's sources, of a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return (
            f"project/{path.rstrip('/')}/index.md"
            if not (ROOT / path / "README.md").exists()
            else (f"project/{path.rstrip('/')}/README.md")
        )
    return f"project/{path}" if path.endswith((".md", *IMAGES)) else f"project/{path}.md"


def page_of(path: Path) -> str:
    """Returns the text of the page that shows a file or folder."""
    if path.is_dir():
        readme = path / "README.md"
        if readme.exists():
            return readme.read_text(encoding="utf-8")
        names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in path.iterdir())
        names = [name for name in names if not name.startswith((".", "__pycache__"))]
        return f"# {path.relative_to(ROOT)}\n\n" + "".join(f"- [{name}]({name})\n" for name in names)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {path.relative_to(ROOT)}\n\n```{language}\n{text}```\n"


def _targets(uri: str, text: str) -> list[str]:
    """Returns the paths of files in the repository, outside of docs/, that a page links to."""
    paths = [repository_path(uri, match[2]) for match in LINK.finditer(FENCED.sub("", text))]
    return [path for path in paths if path is not None and not path.startswith("docs/")]


def repository_path(uri: str, link: str) -> str | None:
    """Returns the path in the repository that a link of a page leads to, or None if it leads elsewhere."""
    path, _, _ = link.partition("#")
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(_origin(uri)), path))


def _origin(uri: str) -> str:
    """Returns the path in the repository of the file that a page is made of. That of a folder ends in a slash."""
    path = _origins.get(uri)
    if path is None:
        return f"docs/{uri}"
    return f"{path}/" if (ROOT / path).is_dir() else path


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the text with links to the pages of the site."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # it would have one entry
    boost = next(boost for folder, boost in BOOSTS.items() if uri.startswith(folder))
    page.meta.setdefault("search", {"exclude": True} if uri.startswith(NOT_SEARCHED) else {"boost": boost})
    here = posixpath.dirname(uri)

    def to_site(match: re.Match[str]) -> str:
        path = repository_path(uri, match[2])
        if path is None or (not uri.startswith("project/") and path.startswith("docs/")):
            return match[0]
        _, mark, anchor = match[2].partition("#")
        return match[1] + posixpath.relpath(site_path(path), here or ".") + mark + anchor + match[3]

    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        shown = f"<figure>{diagrams.svg(block[2])}</figure>" if block[0].startswith("```mermaid") else block[0]
        parts += [LINK.sub(to_site, markdown[end : block.start()]), NOT_RUN.sub(r"\1", shown)]
        end = block.end()
    return "".join([*parts, LINK.sub(to_site, markdown[end:])])


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page. Each option is an anchor, and names in tables may be broken where words of the name begin."""
    if page.file.src_uri == "options.md":
        html = OPTION.sub(r'<td><code><a id="\1" href="#\1">\1</a></code></td>', html)
    return CODE_IN_CELL.sub(lambda match: re.sub(r"(?<=[_.])(?=\w)", "<wbr>", match[0]), html)
