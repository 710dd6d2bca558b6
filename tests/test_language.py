"""Checks that the project does not use the words in the table at the end of docs/design/glossary.md.

`python tools/language_check.py PATH…` prints the findings in any file or folder.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent

# Files and folders without a forbidden word. A part that has been rewritten is added here and not removed.
CLEAN = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "assignors",
    "docs/assignors.md",
    "docs/columns.md",
    "docs/coming-from",
    "docs/design",
    "docs/exactly-once.md",
    "docs/groups.md",
    "docs/guides",
    "docs/index.md",
    "docs/make_pages.py",
    "docs/migration_tables.py",
    "docs/options.md",
    "docs/pipeline.md",
    "docs/rebalances.md",
    "docs/reference",
    "docs/reference_pages.py",
    "docs/security.md",
    "docs/site",
    "docs/spark.md",
    "docs/start.md",
    "kconsumer/__init__.py",
    "kconsumer/__main__.py",
    "kconsumer/_core",
    "kconsumer/_common/foreign_methods.py",
    "kconsumer/_version.py",
    "kconsumer/arrow.py",
    "kconsumer/assignors.py",
    "kconsumer/_common/backoff.py",
    "kconsumer/cli",
    "kconsumer/_internal/compression.py",
    "kconsumer/config",
    "kconsumer/consumer.py",
    "kconsumer/coordinator",
    "kconsumer/decode.py",
    "kconsumer/_common/deferred_calls.py",
    "kconsumer/_internal/deferred_signals.py",
    "kconsumer/deserializers.py",
    "kconsumer/engine",
    "kconsumer/_common/error_codes.py",
    "kconsumer/_common/error_tables.py",
    "kconsumer/errors.py",
    "kconsumer/fetching",
    "kconsumer/filters.py",
    "kconsumer/groups",
    "kconsumer/listener.py",
    "kconsumer/_internal/managers.py",
    "kconsumer/metadata",
    "kconsumer/metrics",
    "kconsumer/net",
    "kconsumer/_client/offset_arguments.py",
    "kconsumer/offsets",
    "kconsumer/ranges",
    "kconsumer/records.py",
    "kconsumer/_common/repeated_failures.py",
    "kconsumer/schema",
    "kconsumer/spark",
    "kconsumer/state",
    "kconsumer/testing",
    "kconsumer/_internal/transitions.py",
    "kconsumer/types.py",
    "pyspark_kconsumer",
    "pytest_kconsumer",
    "tests/assignors",
    "tests/brokerless",
    "tests/conftest.py",
    "tests/fuzz",
    "tests/integration",
    "tests/kerberos",
    "tests/property",
    "tests/simulation",
    "tests/spark",
    "tests/support",
    "tests/test_layering.py",
    "tests/test_packaging.py",
    "tests/threads.py",
    "tests/typing",
    "tests/unit",
]


class Exempt(NamedTuple):
    """A line that may contain a forbidden word."""

    path: str
    word: str
    line: str  # a part of the line
    reason: str


EXCEPTIONS: list[Exempt] = []


def load(script: str) -> ModuleType:
    """Returns the module of a script in `tools`, which is not a package."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "tools" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script] = module  # NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


checker = load("language_check")
WORDS: dict[str, str] = checker.forbidden_words(checker.GLOSSARY.read_text(encoding="utf-8"))


def found_in(root: Path, path: str) -> list[str]:
    """Returns the findings in a file or folder, without the exceptions, as text for the failure's message."""
    found = []
    for file in checker.files([root / path]):
        name = str(file.relative_to(root))
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        for line, word, instead in checker.findings(text, WORDS):
            if not any(e.path == name and e.word == word and e.line in lines[line - 1] for e in EXCEPTIONS):
                found.append(f'{name}:{line}: "{word}": say {instead}')
    return found


@pytest.mark.parametrize("path", CLEAN)
def test_clean_parts_stay_clean(path: str) -> None:
    """The identifiers, docstrings, comments, messages and prose of clean parts contain no forbidden word."""
    assert (ROOT / path).exists()
    assert [] == found_in(ROOT, path)


def test_exceptions_are_needed() -> None:
    """Each exception matches an existing line."""
    for exempt in EXCEPTIONS:
        assert exempt.reason
        text = (ROOT / exempt.path).read_text(encoding="utf-8")
        lines = text.splitlines()
        assert any(
            exempt.word == word and exempt.line in lines[line - 1] for line, word, _ in checker.findings(text, WORDS)
        ), exempt


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("last_answer = None\n", "answer"),
        ("class LastAnswer:\n    pass\n", "answer"),
        ('"""Go\non with it."""\n', "go on"),
        ("# it is left\n# alone\n", "left alone"),
        ("raise ValueError('the request is under way')\n", "under way"),
        ("def waits(he): ...\n", "he"),
    ],
)
def test_planted_words_are_found(tmp_path: Path, source: str, word: str) -> None:
    """A forbidden word in an identifier, a docstring, a comment or a message is found, with its line."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(f"x = 1\n{source}")
    (found,) = found_in(tmp_path, "package")
    assert f'package/module.py:2: "{word}": say {WORDS[word]}' == found


def test_other_words_are_not_found(tmp_path: Path) -> None:
    """Words that contain a forbidden one, such as "the", "besides" or "newsletter", are not findings."""
    (tmp_path / "page.md").write_text("Besides, the newsletter is there; it foretells a masterpiece.\n")
    assert [] == found_in(tmp_path, "page.md")


def test_the_glossary_has_a_table() -> None:
    """The glossary's table contains words; without words the check would always pass."""
    assert {"answer", "under way", "nobody"} < set(WORDS)


def test_a_seed_repeats_its_sample(capsys: pytest.CaptureFixture[str]) -> None:
    """`tools/sample_docstrings.py` samples the same docstrings for the same seed, from Python and from Cython
    modules.
    """
    script = load("sample_docstrings")
    samples = []
    for seed in ("1", "1", "2"):
        assert 0 == script.main(["--seed", seed, "--count", "40"])
        samples.append(capsys.readouterr().out)
    assert samples[0] == samples[1]
    assert samples[0].splitlines()[:-1] != samples[2].splitlines()[:-1]
    assert {".py", ".pyx"} == {Path(found.path).suffix for found in script.docstrings(script.LIBRARY)}


def test_a_cython_docstring_is_printed_with_its_own_header() -> None:
    """A sampled docstring has the header directly above it, and not a declaration before that header."""
    source = '''"""The module."""
cdef enum:
    SIZE = 4      # bytes: four

def first(
    a: int,
):
    """One."""
    cdef bint found = a != 0
    return found

cdef class Second:   # a class
    """Two."""

    cdef int third(self) except -1:
        """Three."""
'''
    found = list(load("sample_docstrings").of_cython(source, "x.pyx"))
    assert ["module", "def first(", "cdef class Second", "cdef int third(self) except -1"] == [
        each.subject for each in found
    ]
    assert ["The module.", "One.", "Two.", "Three."] == [each.text for each in found]
