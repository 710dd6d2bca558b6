"""Which engine a consumer gets: the network thread for the consumer protocol, the caller's thread otherwise."""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock
from kconsumer.config import ConsumerConfig
from kconsumer.engine.classic import ClassicEngine


def make_engine(config: ConsumerConfig, clock: Clock, assignors: Collection[Assignor]) -> ClassicEngine:
    """The engine that `engine` names, or else the one of `group_protocol`. Does no I/O and starts no thread."""
    if config.engine != "threaded" and config.group_protocol == "classic":
        return ClassicEngine(config, clock, assignors)
    from kconsumer.engine.threaded import ThreadedEngine  # only when it is chosen, which is rare

    return ThreadedEngine(config, clock, assignors)
