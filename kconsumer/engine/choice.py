"""Who drives a consumer: the network thread for the consumer protocol, the caller's thread otherwise."""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.assignors import Assignor
from kconsumer.clock import Clock
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.classic import ClassicDriver


def create_engine(config: ConsumerConfig, clock: Clock, assignors: Collection[Assignor]) -> Engine:
    """With the driver that `engine` names, or else the one of `group_protocol`. Does no I/O and starts no thread."""
    if config.engine != "threaded" and config.group_protocol == "classic":
        return Engine(config, clock, assignors, ClassicDriver)
    from kconsumer.engine.threaded import ThreadedDriver  # only when it is chosen, which is rare

    return Engine(config, clock, assignors, ThreadedDriver)
