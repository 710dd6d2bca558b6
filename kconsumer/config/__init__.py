"""The options of a consumer: a table of all options, the checks of their values, and the frozen `ConsumerConfig`."""

from kconsumer.config.options import ConsumerConfig

__all__ = ["ConsumerConfig"]
