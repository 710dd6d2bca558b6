"""Decides which driver a consumer has.

The consumer protocol needs a network thread. The classic protocol has one only if the option `engine` is `threaded`.
"""

from __future__ import annotations

from collections.abc import Collection

from kconsumer.assignors import Assignor
from kconsumer.config.options import ConsumerConfig
from kconsumer.engine.base import Engine
from kconsumer.engine.classic import ClassicDriver
from kconsumer.engine.environment import Environment


def create_engine(config: ConsumerConfig, environment: Environment, assignors: Collection[Assignor]) -> Engine:
    """Returns a new engine. Does no I/O and starts no thread.

    The option `engine` selects the driver. If it is not set, `group_protocol` does.
    """
    if config.engine != "threaded" and config.group_protocol == "classic":
        return Engine(config, environment, assignors, ClassicDriver)
    from kconsumer.engine.threaded import ThreadedDriver  # imported when it is chosen, which is rare

    return Engine(config, environment, assignors, ThreadedDriver)
