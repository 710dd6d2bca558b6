"""The checks before a release, and what the workflows of releases use."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

from kconsumer._version import VERSION

ROOT = Path(__file__).parents[3]
RELEASE = runpy.run_path(str(ROOT / "tools" / "release.py"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CHANGELOG = """# Changelog

## [Unreleased]

## [1.2.0] - 2027-01-31

### Added

- Something.

## [1.1.0] - 2026-12-01

### Added
"""


def test_notes_are_the_section_of_a_version() -> None:
    """Notes of a release are the text between its heading and the next one."""
    assert "### Added\n\n- Something." == RELEASE["notes"](CHANGELOG, "1.2.0")


@pytest.mark.parametrize(("version", "message"), [("1.3.0", "has no section"), ("1.1.0", "has no entry")])
def test_a_release_without_notes_is_refused(version: str, message: str) -> None:
    """A version without a section, or with an empty one, is not released."""
    with pytest.raises(SystemExit, match=message):
        RELEASE["notes"](CHANGELOG, version)


def test_the_tag_must_be_the_version() -> None:
    """A tag with another version than that of the package is refused; the right one passes."""
    dated = CHANGELOG.replace("[1.2.0]", f"[{VERSION}]")
    with pytest.raises(SystemExit, match=re.escape(f"must be v{VERSION}")):
        RELEASE["check"]("v9.9.9", dated)
    RELEASE["check"](f"v{VERSION}", dated)


def test_actions_are_pinned() -> None:
    """Workflows use actions at a commit, with the version behind it, and packages at one version."""
    assert WORKFLOWS
    used = [
        (path.name, line.strip())
        for path in WORKFLOWS
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    local = re.compile(r"uses: \./\.github/workflows/[a-z]+\.yml$")
    pinned = re.compile(r"- uses: [\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")
    assert [] == [(name, line) for name, line in used if not pinned.match(line) and not local.match(line)]


def test_jobs_with_other_brokers_have_other_caches() -> None:
    """What a job of a matrix of Kafka's versions stores is not read by the others."""
    jobs = re.split(r"\n(?=  [\w-]+:\n)", (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8"))
    (job,) = [job for job in jobs if "        kafka: [" in job]
    assert "key: kafka-${{ matrix.kafka }}-" in job


@pytest.mark.parametrize("arguments", [("asan",), ("tsan", "x")])
def test_pythons_that_are_not_built(arguments: tuple[str, ...]) -> None:
    """tools/free-threaded-python refuses arguments that it does not know."""
    found = subprocess.run([ROOT / "tools" / "free-threaded-python", *arguments], capture_output=True)
    assert (2, b"usage: ") == (found.returncode, found.stderr[:7])


def test_wheel_jobs_build_every_python() -> None:
    """The job of a platform builds the Pythons of pyproject.toml, which are those of the classifiers."""
    builds = runpy.run_path(str(ROOT / "tools" / "wheel_builds.py"))["builds"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    versions = re.findall(r"Python :: 3\.(\d+)\"", "\n".join(f'{c}"' for c in project["project"]["classifiers"]))
    assert [f"cp3{version}-win_amd64" for version in versions] + ["cp314t-win_amd64"] == builds("*-win_amd64").split()


def test_no_page_or_message_installs_kconsumer_from_an_index() -> None:
    """kconsumer is not released, so no page, message or example names it as a package to install."""
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    folders = ("docs", "kconsumer", "assignors", "examples", "pytest_kconsumer", "pyspark_kconsumer")
    pages += [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".pyx")
    ]
    named = re.compile(r"(pip|uv|pipx|poetry)( \w+)* ['\"]?kconsumer")
    assert [] == [str(page) for page in pages if named.search(page.read_text(encoding="utf-8"))]
