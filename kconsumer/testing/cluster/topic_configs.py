"""The types of topic settings and the checks of their values."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS

BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7  # types of settings in DescribeConfigs

TYPES = {
    "cleanup.policy": LIST,
    "compression.type": STRING,
    "index.interval.bytes": INT,
    "max.message.bytes": INT,
    "message.timestamp.type": STRING,
    "min.insync.replicas": INT,
    "segment.bytes": INT,
    "unclean.leader.election.enable": BOOLEAN,
}

#: The values that a setting may have, or that the items of a list may have.
CHOICES = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "unclean.leader.election.enable": ("true", "false"),
}


def type_of(name: str) -> int:
    """Returns the type of a topic setting."""
    return TYPES.get(name, LONG)


def config_error(configs: Mapping[str, str | None]) -> str | None:
    """Returns what is wrong with settings of a topic, or None if all of them are valid."""
    for name, value in configs.items():
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        if not _valid(name, value):
            return f"Invalid value {value} for configuration {name}"
    return None


def _valid(name: str, value: str) -> bool:
    """Returns whether a setting may have a value."""
    if type_of(name) in (INT, LONG):
        digits = value.removeprefix("-")
        return digits.isascii() and digits.isdigit()
    items = [item for item in value.split(",") if item] if type_of(name) == LIST else [value]
    return all(item in CHOICES[name] for item in items)
