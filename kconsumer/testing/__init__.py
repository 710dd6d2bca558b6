"""Public helpers for tests of code that uses kconsumer, and of assignor plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kconsumer.testing.fake_cluster import FakeCluster
    from kconsumer.testing.mock_consumer import MockConsumer

_HOMES = {"FakeCluster": "fake_cluster", "MockConsumer": "mock_consumer"}

__all__ = ["FakeCluster", "MockConsumer"]


def __getattr__(name: str) -> object:
    """Returns a public class. Raises AttributeError for other names.

    The module of the class is imported here, so that tests that need no class, such as those of assignors, do not
    import it.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
