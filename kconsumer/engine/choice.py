"""Which engine a consumer gets: the network thread for the consumer protocol, the caller's thread otherwise."""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock
from kconsumer.config import ConsumerConfig
from kconsumer.engine.classic import ClassicEngine
from kconsumer.engine.threaded import ThreadedEngine


def make_engine(config: ConsumerConfig, clock: Clock, assignors: Collection[Assignor]) -> ClassicEngine:
    """The engine that `engine` names, or else the one of `group_protocol`. Does no I/O and starts no thread."""
    threaded = config.engine == "threaded" or config.group_protocol == "consumer"
    return (ThreadedEngine if threaded else ClassicEngine)(config, clock, assignors)
