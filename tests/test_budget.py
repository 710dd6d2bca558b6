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
    "kconsumer/*": 3_356,
    "kconsumer/_client/**/*": 1_792,
    "kconsumer/_common/**/*": 800,
    "kconsumer/_internal/**/*": 1_315,
    "kconsumer/_core/**/*": 14_208,
    "kconsumer/aio/**/*": 2_957,
    "kconsumer/cli/**/*": 3_977,
    "kconsumer/config/**/*": 2_436,
    "kconsumer/coordinator/**/*": 4_522,
    "kconsumer/engine/**/*": 3_874,
    "kconsumer/fetching/**/*": 2_563,
    "kconsumer/formats/**/*": 2_226,
    "kconsumer/groups/**/*": 1_941,
    "kconsumer/metadata/**/*": 800,
    "kconsumer/metrics/**/*": 449,
    "kconsumer/net/**/*": 5_735,
    "kconsumer/offsets/**/*": 1_050,
    "kconsumer/opentelemetry/**/*": 557,
    "kconsumer/parallel/**/*": 5_169,
    "kconsumer/ranges/**/*": 1_585,
    "kconsumer/registry/**/*": 1_035,
    "kconsumer/schema/**/*": 2_604,
    "kconsumer/share/**/*": 3_683,
    "kconsumer/spark/**/*": 6_806,
    "kconsumer/state/**/*": 1_797,
    "kconsumer/telemetry/**/*": 710,
    "kconsumer/testing/**/*": 16_818,
    "kconsumer/**/*": 94_414,
    "assignors/**/*": 1_700,
    "tests/README.md": 60,
    "tests/**/*.py": 113_131,
    "benchmarks/**/*.py": 8_699,
    "tools/*.py": 670,
    "examples/**/*.py": 2_502,
    "docs/**/*.py": 2_240,
    "README.md": 142,
    "CONTRIBUTING.md": 90,
    "CHANGELOG.md": 61,
    "benchmarks/README.md": 154,
    "docs/**/*.md": 10_201,
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
