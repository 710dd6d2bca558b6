"""The only door of tests to what a consumer or a cluster has no public name for.

A test that needs more than a public name, or than an event of a manager with a harness, imports it from here, so that a
rename inside the library is one change in the tests.
"""

from __future__ import annotations

from typing import Any


def engine_of(consumer: Any) -> Any:
    """Returns the engine of a consumer of any kind."""
    return consumer._engine


def parts_of(consumer: Any) -> Any:
    """Returns the managers, the lock, the clock and the network of a consumer."""
    return consumer._engine.components


def guard_of(guarded: Any) -> Any:
    """Returns the guard that refuses other threads, forked children and calls after close()."""
    return guarded._guard


def config_of(consumer: Any) -> Any:
    """Returns the checked options of a consumer."""
    return consumer._config


def model_of(cluster: Any) -> Any:
    """Returns the model that a FakeCluster serves."""
    return cluster._cluster


def server_of(cluster: Any) -> Any:
    """Returns the server of a FakeCluster, whose thread owns the sockets."""
    return cluster._server


def links_of(client: Any) -> Any:
    """Returns the connections of a network client by node id."""
    return client._nodes_by_id
