"""The options of a consumer: one table, the checks, and the frozen result."""

from kconsumer.config.options import ConsumerConfig

__all__ = ["ConsumerConfig"]
