"""Limits the lines of each package, of the tests and of the documents, so that growth is a decision.

Whoever raises a number says why in the message of the commit. Whoever deletes much lowers it.
`python tests/test_budget.py` prints the present numbers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}
# Programs write these from tables (docs/make_pages.py).
GENERATED = {"docs/options.md", "docs/design/state-machines.md"}

#: How many lines the sources that a pattern finds may have together.
BUDGET = {
    "kconsumer/*": 3_359,
    "kconsumer/_client/**/*": 1_796,
    "kconsumer/_common/**/*": 800,
    "kconsumer/_internal/**/*": 1_315,
    "kconsumer/_core/**/*": 14_106,
    "kconsumer/aio/**/*": 2_957,
    "kconsumer/cli/**/*": 3_975,
    "kconsumer/config/**/*": 2_439,
    "kconsumer/coordinator/**/*": 4_480,
    "kconsumer/engine/**/*": 3_859,
    "kconsumer/fetching/**/*": 2_560,
    "kconsumer/formats/**/*": 2_222,
    "kconsumer/groups/**/*": 1_935,
    "kconsumer/metadata/**/*": 785,
    "kconsumer/metrics/**/*": 444,
    "kconsumer/net/**/*": 5_724,
    "kconsumer/offsets/**/*": 1_050,
    "kconsumer/opentelemetry/**/*": 571,
    "kconsumer/parallel/**/*": 5_169,
    "kconsumer/ranges/**/*": 1_580,
    "kconsumer/registry/**/*": 1_074,
    "kconsumer/schema/**/*": 2_526,
    "kconsumer/share/**/*": 3_683,
    "kconsumer/spark/**/*": 6_787,
    "kconsumer/state/**/*": 1_787,
    "kconsumer/telemetry/**/*": 708,
    "kconsumer/testing/**/*": 16_754,
    "kconsumer/**/*": 94_445,
    "assignors/**/*": 1_673,
    "tests/README.md": 43,
    "tests/**/*.py": 113_057,
    "benchmarks/**/*.py": 8_699,
    "tools/*.py": 662,
    "examples/**/*.py": 2_502,
    "docs/**/*.py": 2_233,
    "README.md": 141,
    "CONTRIBUTING.md": 77,
    "CHANGELOG.md": 61,
    "benchmarks/README.md": 154,
    "docs/**/*.md": 10_202,
    "docs/design/*.md": 1_348,
}


def lines(pattern: str) -> int:
    """Return the number of lines of all sources that a pattern finds, without generated pages."""
    found = [path for path in ROOT.glob(pattern) if path.suffix in SUFFIXES]
    kept = [path for path in found if str(path.relative_to(ROOT)) not in GENERATED]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in kept)


@pytest.mark.parametrize("pattern", BUDGET)
def test_sources_stay_within_their_budget(pattern: str) -> None:
    """What a pattern finds exists, and has no more lines than the table allows."""
    assert 0 < lines(pattern) <= BUDGET[pattern]


def test_every_package_has_a_budget() -> None:
    """A package of the library that is new needs a row."""
    packages = {f"kconsumer/{path.parent.name}/**/*" for path in ROOT.glob("kconsumer/*/__init__.py")}
    assert set() == packages - set(BUDGET)


if __name__ == "__main__":
    for row, allowed in BUDGET.items():
        print(f"{lines(row):7} of {allowed:7}  {row}")
