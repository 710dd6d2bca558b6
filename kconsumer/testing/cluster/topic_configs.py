"""The types of topic settings and the checks of their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf, isnan

from kconsumer.testing.cluster.releases import NEWEST, is_at_least
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
    "internal.segment.bytes": INT,
    "max.decompressed.message.bytes": INT,
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
SIZES = {INT: 1 << 31, LONG: 1 << 63}
#: The smallest and the largest value of a number. The limits of other numbers are those of their types.
LIMITS: dict[str, tuple[float, float]] = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131_072, 22),
    "delete.retention.ms": (0, inf),
    "file.delete.delay.ms": (0, inf),
    "flush.messages": (1, inf),
    "flush.ms": (0, inf),
    "index.interval.bytes": (0, inf),
    "local.retention.bytes": (-2, inf),
    "local.retention.ms": (-2, inf),
    "max.compaction.lag.ms": (1, inf),
    "max.decompressed.message.bytes": (1, (1 << 31) - 9),
    "max.message.bytes": (0, inf),
    "message.timestamp.after.max.ms": (0, inf),
    "message.timestamp.before.max.ms": (0, inf),
    "min.cleanable.dirty.ratio": (0, 1),
    "min.compaction.lag.ms": (0, inf),
    "min.insync.replicas": (1, inf),
    "remote.copy.lag.bytes": (-1, inf),
    "remote.copy.lag.ms": (-1, inf),
    "retention.ms": (-1, inf),
    "segment.bytes": (1 << 20, inf),
    "segment.index.bytes": (4, inf),
    "segment.jitter.ms": (0, inf),
    "segment.ms": (1, inf),
}
SEGMENT_BYTES_BEFORE_4 = (14, inf)
#: The forms that Java's numbers have. It also reads hexadecimal doubles.
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(NaN|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)", re.ASCII)
_THROTTLED = re.compile(r"\*|((\d+:\d+)?(,\s*|$))*", re.ASCII)


def type_of(name: str) -> int:
    """Returns the type of a topic setting."""
    return TYPES.get(name, LONG)


def normalized(name: str, value: str) -> str:
    """Returns a valid value as brokers describe it.

    It has no whitespace or suffix, booleans are in lower case, and no item of a list is repeated.
    """
    kind = type_of(name)
    if kind == LIST:
        return ",".join(dict.fromkeys(re.split(r"\s*,\s*", value.strip())))
    if kind == DOUBLE:
        return value.strip().rstrip("fFdD")
    return value.strip().lower() if kind == BOOLEAN else value.strip()


def config_error(
    configs: Mapping[str, str | None], release: str = NEWEST, present: Mapping[str, str] = TOPIC_DEFAULTS
) -> str | None:
    """Returns an error message for the first invalid setting of a topic, or None if all settings are valid.

    `present`: the settings of the topic that do not change.
    """
    for name, value in configs.items():
        if name not in TOPIC_DEFAULTS and name not in TYPES:
            return f"Unknown topic config name: {name}"
        if value is None:
            return f"Null value not supported for topic configs: {name}"
        if not _valid(name, value.strip(), release):
            return f"Invalid value {value} for configuration {name}"
    settings = {**present, **{name: value for name, value in configs.items() if value is not None}}
    shortest, longest = int(settings["min.compaction.lag.ms"]), int(settings["max.compaction.lag.ms"])
    if shortest > longest:
        return f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
    if settings["remote.storage.enable"].strip().lower() == "true":
        return "Tiered Storage functionality is disabled in the broker."
    return None


def _valid(name: str, value: str, release: str) -> bool:
    """Returns whether `value` is valid for a topic setting."""
    kind = type_of(name)
    if kind in SIZES:
        return _INTEGER.fullmatch(value) is not None and _valid_integer(name, int(value), SIZES[kind], release)
    if kind == DOUBLE:
        low, high = LIMITS[name]
        number = float(value.rstrip("fFdD")) if _DOUBLE.fullmatch(value) else inf
        return low <= number <= high or isnan(number)
    if kind == BOOLEAN:
        return value.lower() in ("true", "false")
    if name.endswith(".throttled.replicas"):
        return _THROTTLED.fullmatch(value) is not None
    items = re.split(r"\s*,\s*", value) if kind == LIST and value else [value]
    return name not in CHOICES or (kind == LIST and not value) or all(item in CHOICES[name] for item in items)


def _valid_integer(name: str, value: int, size: int, release: str) -> bool:
    """Returns whether a number is in the limits of its type, which are given by `size`, and of the setting."""
    low, high = LIMITS.get(name, (-inf, inf))
    if name == "segment.bytes" and not is_at_least(release, "4.0"):
        low, high = SEGMENT_BYTES_BEFORE_4
    return -size <= value < size and low <= value <= high and (name, value) != ("compression.gzip.level", 0)
