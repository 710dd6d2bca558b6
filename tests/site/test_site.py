"""The documentation site in a browser: it builds strictly, links lead somewhere, it can be searched, it fits a phone.

`tox -e docs` runs these tests with Chromium and its driver, which Debian has as `chromium` and `chromium-driver`.
"""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from kconsumer.config.options import OPTIONS
from support.harnesses.doc_blocks import PAGES

ROOT = Path(__file__).parents[2]
PHONE = 390  # px
WAIT_S = 20

# What a reader searches for, and the page that must be among the first results.
SEARCHES = {
    "rebalance": "rebalances/",
    "max_poll_records": "options/",
    "AuthenticationError": "reference/errors/",
    "FakeCluster": "testing/",
    "SCRAM": "security/",
    "ssl.ca.location": "guides/faq/",
    "worker pool": "guides/threads/",
    "dead letter": "guides/faq/",
    "seek timestamp": "guides/faq/",
    "windows": "guides/faq/",
    "docker": "guides/containers/",
    "notebook": "guides/notebooks/",
    "polars": "guides/data-frames/",
}
RESULTS = 8

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, which was built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return folder


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address at which the site is served."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A browser without a screen that can reach no host but this one."""
    program, driver = (shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver"))
    assert program, "install the packages chromium and chromium-driver"
    assert driver, "install the package chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


def show(browser: webdriver.Chrome, width: int, scheme: str = "light") -> None:
    """Set the size of the screen, and the preference of the system for light or dark."""
    screen = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def errors(browser: webdriver.Chrome) -> list[str]:
    """Returns the errors that the browser has logged since the last call, such as files that could not be loaded."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_links_and_anchors_exist(site: Path) -> None:
    """Every link of every page leads to a file and an anchor of the site, and nothing is loaded from another host."""
    command = [sys.executable, str(ROOT / "docs" / "site" / "check.py"), str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr


def test_code_of_every_page_runs_in_tests(site: Path) -> None:
    """A page made from Markdown has Python code only if tests know the page and run its blocks."""
    files = [path for path in ROOT.rglob("*.md") if not set(path.relative_to(ROOT).parts) & {"build", "docs", ".venv"}]
    shown = [path for path in files if (site / "project" / page_folder(path.relative_to(ROOT)) / "index.html").exists()]
    with_code = {str(path.relative_to(ROOT)) for path in shown if "```py" in path.read_text(encoding="utf-8")}
    assert len(shown) > 3
    assert set() == with_code - set(PAGES)


def page_folder(path: Path) -> Path:
    """Returns the folder, below `project/`, of the page that is made from a file in Markdown."""
    return path.parent if path.name == "README.md" else path.with_suffix("")


def test_a_dead_link_is_found(site: Path, tmp_path: Path) -> None:
    """The check finds a page, an anchor and a picture that do not exist, and a script of another host."""
    (tmp_path / "index.html").write_text(
        '<p id="a"></p><a href="none/">1</a><a href="#b">2</a><img src="c.png"><script src="https://d.example/e.js">'
        '</script><a href="#a">fine</a><a href="https://d.example/">fine</a>'
    )
    command = [sys.executable, str(ROOT / "docs" / "site" / "check.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 1 == done.returncode
    assert [
        "index.html: none/: does not exist",
        "index.html: #b: has no such anchor",
        "index.html: c.png: does not exist",
        "index.html: https://d.example/e.js: is loaded from another host",
    ] == done.stderr.splitlines()


def test_every_page_is_reached_and_fits_a_phone(site: Path, address: str, browser: webdriver.Chrome) -> None:
    """A reader who follows links from the start page reaches every page. None of them can be scrolled sideways on a
    phone, or logs an error.
    """
    show(browser, PHONE)
    found, wanted = {address}, [address]
    wide, failed = [], []
    while wanted:
        page = wanted.pop()
        browser.get(page)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        wide += [(page, width)] if width > PHONE else []
        failed += [(page, message) for message in errors(browser)]
        links = browser.execute_script("return [...document.links].map(link => link.href)")
        new = {urldefrag(link)[0] for link in links if link.startswith(address)} - found
        found |= new
        wanted += sorted(link for link in new if link.endswith("/"))
    assert [] == wide
    assert [] == failed
    pages = {address + path.parent.relative_to(site).as_posix() + "/" for path in site.rglob("index.html")}
    assert {page.replace("/./", "/") for page in pages} - found == set()


@pytest.mark.parametrize(("word", "page"), SEARCHES.items())
def test_search_finds_the_page(word: str, page: str, address: str, browser: webdriver.Chrome) -> None:
    """The page about a word is among the first results of a search for it."""
    show(browser, 1280)
    browser.get(address)
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys(word)

    first: list[str] = []

    def found(_browser: webdriver.Chrome) -> bool:  # results change while the reader types
        links = browser.find_elements(By.CSS_SELECTOR, ".md-search-result__item > a")[:RESULTS]
        first[:] = [urldefrag(link.get_attribute("href") or "")[0].partition("?")[0] for link in links]
        return f"{address}{page}" in first

    with suppress(TimeoutException):
        WebDriverWait(browser, WAIT_S, ignored_exceptions=[StaleElementReferenceException]).until(found)
    assert f"{address}{page}" in first


def test_each_option_has_an_anchor(site: Path) -> None:
    """The page of options has an anchor for each of them, and methods are sorted by their use."""
    options = (site / "options" / "index.html").read_text(encoding="utf-8")
    assert set() == {name for name in OPTIONS if f'id="{name}"' not in options}
    methods = re.findall(
        r'id="kconsumer\.Consumer\.(\w+)"', (site / "reference/consumer/index.html").read_text("utf-8")
    )
    assert ["subscribe", "assign", "poll", "poll_arrow", "commit"] == methods[:5]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system(scheme: str, address: str, browser: webdriver.Chrome) -> None:
    """The background is light or dark as the reader's system prefers, and text has a contrast of at least 4.5."""
    show(browser, 1280, scheme)
    browser.get(address)
    style = "const style = getComputedStyle(document.querySelector(arguments[0])); return [style.color, style.{}]"
    _, back = browser.execute_script(style.format("backgroundColor"), "body")
    text, _ = browser.execute_script(style.format("color"), ".md-content p")
    background = luminance(back, (255.0, 255.0, 255.0))
    assert (background > 0.5) == (scheme == "light")
    lighter, darker = sorted((background, luminance(text, colour(back)[:3])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def colour(text: str) -> tuple[float, ...]:
    """Returns red, green, blue and opacity of a colour of CSS."""
    values = tuple(float(value) for value in text[text.index("(") + 1 : -1].split(","))
    return values if len(values) == 4 else (*values, 1.0)


def luminance(text: str, behind: tuple[float, ...]) -> float:
    """Returns the relative luminance of a colour in front of another one, as WCAG defines it."""
    *values, opacity = colour(text)
    mixed = [opacity * value + (1 - opacity) * under for value, under in zip(values, behind, strict=True)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (value / 255 for value in mixed)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_version_is_that_of_the_package(address: str, browser: webdriver.Chrome) -> None:
    """The start page shows the version of the package."""
    from kconsumer import __version__

    browser.get(address)
    assert f"kconsumer {__version__}" in browser.title
    assert f"kconsumer {__version__}" in browser.find_element(By.TAG_NAME, "header").text
