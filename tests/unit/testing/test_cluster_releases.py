"""The API versions of the model's releases."""

from __future__ import annotations

import pytest

from kconsumer.schema import all_apis
from kconsumer.testing.cluster.releases import HISTORY, RELEASES, versions_of


def test_every_api_has_a_history() -> None:
    """Each API of the model has a row in the table, and no other does."""
    assert {api.name for api in all_apis().values()} == set(HISTORY)


@pytest.mark.parametrize("release", RELEASES)
def test_releases_only_add_newer_versions(release: str) -> None:
    """Each range is within the wire tables, and its end is not lower than in the release before."""
    older = RELEASES[max(0, RELEASES.index(release) - 1)]
    before, now = versions_of(older), versions_of(release)
    assert set(before) <= set(now)
    for key, versions in now.items():
        assert all_apis()[key].min_version <= versions.first <= versions.last <= all_apis()[key].max_version
        assert key not in before or before[key].last <= versions.last


@pytest.mark.parametrize(
    ("release", "name", "wanted"),
    [("2.1", "Fetch", (4, 10)), ("3.9", "Fetch", (4, 17)), ("4.4", "Fetch", (4, 18)), ("4.4", "OffsetCommit", (2, 10))],
)
def test_known_ranges(release: str, name: str, wanted: tuple[int, int]) -> None:
    """Known ranges of some releases, where both the release and the wire tables have the versions."""
    (key,) = (key for key, api in all_apis().items() if api.name == name)
    versions = versions_of(release)[key]
    assert wanted == (versions.first, versions.last)


def test_an_unknown_release() -> None:
    """An unknown release is refused with the list of those that exist."""
    with pytest.raises(ValueError, match=r"no Kafka '1.0'; it has 2.1, "):
        versions_of("1.0")
