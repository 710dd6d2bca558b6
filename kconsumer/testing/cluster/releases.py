"""Which APIs, in which versions, the brokers of each release of Kafka support."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kconsumer.schema import APIS
from kconsumer.schema.dsl import Api, Versions

NEWEST = "4.4"


@cache
def apis() -> Mapping[int, Api]:
    """Returns the APIs of the model by API key."""
    return dict(APIS)


@cache
def versions_of(release: str) -> Mapping[int, Versions]:
    """Returns the versions that brokers of a release support, by API key. Raises ValueError for an unknown release."""
    if release != NEWEST:
        raise ValueError(f"the model has no release {release!r}; there is {NEWEST!r}")
    return {key: Versions(api.min_version, api.max_version) for key, api in apis().items()}
