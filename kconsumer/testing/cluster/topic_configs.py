"""The types of topic settings and the checks of their values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7  # types of settings in DescribeConfigs

#: The types of settings that are not LONG.
TYPES = {
    "cleanup.policy": LIST,
    "compression.gzip.level": INT,
    "compression.lz4.level": INT,
    "compression.type": STRING,
    "compression.zstd.level": INT,
    "errors.deadletterqueue.group.enable": BOOLEAN,
    "follower.replication.throttled.replicas": LIST,
    "index.interval.bytes": INT,
    "leader.replication.throttled.replicas": LIST,
    "max.message.bytes": INT,
    "message.timestamp.type": STRING,
    "min.cleanable.dirty.ratio": DOUBLE,
    "min.insync.replicas": INT,
    "preallocate": BOOLEAN,
    "remote.log.copy.disable": BOOLEAN,
    "remote.log.delete.on.disable": BOOLEAN,
    "remote.storage.enable": BOOLEAN,
    "segment.bytes": INT,
    "segment.index.bytes": INT,
    "unclean.leader.election.enable": BOOLEAN,
}

#: The values that a setting may have, or that the items of a list may have.
CHOICES = {
    "cleanup.policy": ("compact", "delete"),
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
NUMBERS = {
    INT: re.compile(r"-?\d+", re.ASCII),
    LONG: re.compile(r"-?\d+", re.ASCII),
    DOUBLE: re.compile(r"0*(0(\.\d+)?|1(\.0+)?)"),  # the only one is a ratio
}


def type_of(name: str) -> int:
    """Returns the type of a topic setting."""
    return TYPES.get(name, LONG)


def config_error(configs: Mapping[str, str | None]) -> str | None:
    """Returns an error message for the first invalid setting of a topic, or None if all settings are valid."""
    for name, value in configs.items():
        if name not in TOPIC_DEFAULTS:
            return f"Unknown topic config name: {name}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        if not _valid(name, value):
            return f"Invalid value {value} for configuration {name}"
    return None


def _valid(name: str, value: str) -> bool:
    """Returns whether `value` is valid for a topic setting."""
    kind = type_of(name)
    if kind in NUMBERS:
        return NUMBERS[kind].fullmatch(value) is not None
    if kind == BOOLEAN:
        return value.lower() in ("true", "false")
    items = [item for item in value.split(",") if item] if kind == LIST else [value]
    return name not in CHOICES or all(item in CHOICES[name] for item in items)
