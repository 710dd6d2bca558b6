"""The options of a consumer: the table of options, the checks of their values, and the frozen `ConsumerConfig`."""

from kconsumer.config.options import ConsumerConfig

__all__ = ["ConsumerConfig"]
