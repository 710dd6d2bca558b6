"""The managers of a consumer for unit tests: wired by the engine's own code, over a network that exists only here."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

from kconsumer.assignors import Assignor
from kconsumer.config.option_groups import RetryConfig
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.components import Components, Group
from kconsumer.engine.environment import Environment
from kconsumer.groups.manager import GroupsManager
from kconsumer.net.client import NetworkClient
from kconsumer.net.metrics import ConnectionMetrics
from kconsumer.testing.clock import VirtualClock
from support.fakes.fake_network import FakeNetwork
from support.harnesses.manager_driver import NoJitter, config

START_MS = 1000.0


class WiredEnvironment(Environment):
    """An environment with virtual time, the given random numbers, and a network that exists only in the test."""

    def __init__(self, clock: VirtualClock, rng: random.Random) -> None:
        super().__init__(clock)
        self._virtual = clock
        self._rng = rng

    def random_generator(self) -> random.Random:
        """Returns the given random generator."""
        return self._rng

    def client(self, config: ConsumerConfig, rng: random.Random, metrics: ConnectionMetrics) -> NetworkClient:
        """Returns a client of a network that exists only in the test."""
        return FakeNetwork(self._virtual).make_client(config)


def make_components(
    options: ConsumerConfig | None = None,
    *,
    assignors: Collection[Assignor] = (),
    clock: VirtualClock | None = None,
    rng: random.Random | None = None,
) -> Components:
    """Wire all managers as an engine does, on virtual time; without an `rng` backoffs have no jitter."""
    options = options or config()
    clock = clock or VirtualClock(now=START_MS)
    return Components(options, WiredEnvironment(clock, rng or NoJitter()), assignors)


def group_of(components: Components) -> Group:
    """Returns the managers of a consumer with a `group_id`."""
    assert components.group is not None
    return components.group


def make_groups_manager(**options: Any) -> GroupsManager:
    """Wire the manager of group queries as `GroupQueries` does."""
    components = make_components(config(**options))
    return GroupsManager(components.config.select(RetryConfig), components.metadata, NoJitter())


class CallCounter:
    """Counts the calls of one method of one object, which are made all the same."""

    def __init__(self, owner: object, method: str) -> None:
        self.count = 0
        self._method: Callable[..., Any] = getattr(owner, method)
        vars(owner)[method] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self._method(*args, **kwargs)
