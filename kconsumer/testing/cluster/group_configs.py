"""The settings of single groups (KIP-1043 resource type GROUP), which IncrementalAlterConfigs changes.

A group without a setting of its own has that of the broker, or a default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kconsumer._common.error_codes import Errors
from kconsumer.testing.cluster.requests import GroupError
from kconsumer.testing.cluster.settings import Settings
from kconsumer.testing.cluster.topic_configs import BOOLEAN, INT, LIST, STRING

STATIC_BROKER_CONFIG, DEFAULT_CONFIG, GROUP_CONFIG = 4, 5, 8  # sources of a setting
RESET_BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> float | None:
    """Returns the length in ms of a duration in the ISO 8601 form of Java, such as "PT1H", or None if it is not one."""
    found = _DURATION.fullmatch(text)
    if found is None or text.upper() in ("P", "PT") or text.upper().endswith("T"):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _between(low: int, high: int) -> Callable[[str, Settings], bool]:
    """Returns a check of a number that must be from `low` to `high`."""
    return lambda value, _: low <= int(value) <= high


def _one_of(*values: str) -> Callable[[str, Settings], bool]:
    """Returns a check of a text that must be one of `values`."""
    return lambda value, _: value in values


def _are_different(value: str, _: Settings) -> bool:
    items = value.split(",")
    return len({*items}) == len(items)


def _is_reset(value: str, _: Settings) -> bool:
    by_duration = value.startswith(RESET_BY_DURATION) and duration_ms(value.removeprefix(RESET_BY_DURATION)) is not None
    return value in ("earliest", "latest") or by_duration


def _is_lock_duration(value: str, settings: Settings) -> bool:
    low, high = settings.group_share_min_record_lock_duration_ms, settings.group_share_max_record_lock_duration_ms
    return low <= int(value) <= high


def _at_least(lowest: str, own: str, high: int) -> Callable[[str, Settings], bool]:
    """Returns a check of a number that must be from a setting of the broker to `high`.

    `own`: the setting of the broker itself. Tests may set it to less than a real broker may have; groups may, too.
    """

    def check(value: str, settings: Settings) -> bool:
        low: int = min(getattr(settings, lowest), getattr(settings, own))
        return low <= int(value) <= high

    return check


def _session(kind: str) -> GroupConfig:
    """Returns the session timeout of groups of a kind."""
    own = f"group_{kind}_session_timeout_ms"
    return GroupConfig(own, is_valid=_at_least(f"group_{kind}_min_session_timeout_ms", own, 60_000))


def _heartbeat(kind: str) -> GroupConfig:
    """Returns the heartbeat interval of groups of a kind."""
    own = f"group_{kind}_heartbeat_interval_ms"
    return GroupConfig(own, is_valid=_at_least(f"group_{kind}_min_heartbeat_interval_ms", own, 15_000))


@dataclass(frozen=True)
class GroupConfig:
    """One setting that groups can have."""

    #: The broker's setting with the default, a field of Settings if the model has it.
    setting: str = ""
    #: The default of a setting that Settings does not have.
    default: str = ""
    kind: int = INT
    #: Returns whether a value is valid. It has the right type.
    is_valid: Callable[[str, Settings], bool] = lambda _, __: True


#: The settings by name.
GROUP_CONFIGS = {
    "consumer.assignment.interval.ms": GroupConfig(
        "group_consumer_assignment_interval_ms", is_valid=_between(0, 15_000)
    ),
    "consumer.heartbeat.interval.ms": _heartbeat("consumer"),
    "consumer.session.timeout.ms": _session("consumer"),
    "errors.deadletterqueue.copy.record.enable": GroupConfig(default="false", kind=BOOLEAN),
    "errors.deadletterqueue.topic.name": GroupConfig(default="", kind=STRING),
    "share.assignment.interval.ms": GroupConfig("group_share_assignment_interval_ms", is_valid=_between(0, 15_000)),
    "share.auto.offset.reset": GroupConfig(default="latest", kind=STRING, is_valid=_is_reset),
    "share.delivery.count.limit": GroupConfig("group_share_delivery_count_limit", is_valid=_between(2, 10)),
    "share.heartbeat.interval.ms": _heartbeat("share"),
    "share.isolation.level": GroupConfig(
        default="read_uncommitted", kind=STRING, is_valid=_one_of("read_committed", "read_uncommitted")
    ),
    "share.partition.max.record.locks": GroupConfig(
        "group_share_partition_max_record_locks", is_valid=_between(100, 4000)
    ),
    "share.record.lock.duration.ms": GroupConfig("group_share_record_lock_duration_ms", is_valid=_is_lock_duration),
    "share.renew.acknowledge.enable": GroupConfig(default="true", kind=BOOLEAN),
    "share.session.timeout.ms": _session("share"),
    # The model has no groups of Kafka Streams.
    "streams.assignment.interval.ms": GroupConfig(
        "group_streams_assignment_interval_ms", "1000", is_valid=_between(0, 15_000)
    ),
    "streams.assignor.name": GroupConfig("group_streams_assignors", "sticky", STRING, _one_of("sticky")),
    "streams.heartbeat.interval.ms": GroupConfig(
        "group_streams_heartbeat_interval_ms", "5000", is_valid=_between(5_000, 15_000)
    ),
    "streams.initial.rebalance.delay.ms": GroupConfig("group_streams_initial_rebalance_delay_ms", "3000"),
    "streams.num.standby.replicas": GroupConfig("group_streams_num_standby_replicas", "0", is_valid=_between(0, 2)),
    "streams.rack.aware.assignment.tags": GroupConfig(
        "group_streams_rack_aware_assignment_tags", "", LIST, _are_different
    ),
    "streams.session.timeout.ms": GroupConfig(
        "group_streams_session_timeout_ms", "45000", is_valid=_between(45_000, 60_000)
    ),
}
_ANY = re.compile(r".*")
_FORMS = {INT: re.compile(r"\+?[0-9]+"), BOOLEAN: re.compile(r"true|false", re.I), STRING: _ANY, LIST: _ANY}
_PROBLEMS = {INT: ": Not a number of type INT", BOOLEAN: ": Expected value to be either true or false"}


class GroupConfigs:
    """The settings of all groups."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._values: dict[str, dict[str, str]] = {}  # by group and name

    def text(self, group_id: str, name: str) -> str:
        """Returns the value of a setting for a group: its own value, or else that of the broker, or the default."""
        found = self._values.get(group_id, {}).get(name)
        if found is not None:
            return found
        return self.default(name)

    def default(self, name: str) -> str:
        """Returns the value of a setting for a group without its own: that of the broker, or the default."""
        config = GROUP_CONFIGS[name]
        return str(getattr(self._settings, config.setting, config.default))

    def value(self, group_id: str, name: str) -> int:
        """Returns the value of a setting for a group as a number. See `text`."""
        return int(self.text(group_id, name))

    def groups(self) -> list[str]:
        """Returns the groups that have settings of their own."""
        return [group for group, values in self._values.items() if values]

    def is_explicit(self, group_id: str, name: str) -> bool:
        """Returns whether a group has its own value for a setting."""
        return name in self._values.get(group_id, {})

    def sources(self, group_id: str, name: str) -> list[tuple[str, object, int]]:
        """Returns where the value of a setting comes from: names, values and sources, of which the first one is used.

        They are the group itself, a setting of the broker that is not Kafka's default, and the default.
        """
        config, present = GROUP_CONFIGS[name], self.default(name)
        default = str(getattr(Settings, config.setting, config.default))
        own = [(name, self._values[group_id][name], GROUP_CONFIG)] if self.is_explicit(group_id, name) else []
        of_broker = config.setting.replace("_", ".") or name
        static = [] if present == default else [(of_broker, present, STATIC_BROKER_CONFIG)]
        return [*own, *static, (of_broker, default, DEFAULT_CONFIG)]

    def validate(self, group_id: str, name: str, value: str | None) -> None:
        """Raise GroupError if the group id, the name or the value of a setting is not valid. None is a valid value."""
        if not group_id:
            raise GroupError(Errors.INVALID_REQUEST, "Default group resources are not allowed.")
        config = GROUP_CONFIGS.get(name)
        if config is None:
            raise GroupError(Errors.INVALID_CONFIG, f"Unknown group config name: {name}")
        if value is None:
            return
        message, value = f"Invalid value {value} for configuration {name}", value.strip()
        if _FORMS[config.kind].fullmatch(value) is None:
            raise GroupError(Errors.INVALID_CONFIG, message + _PROBLEMS.get(config.kind, ""))
        if not config.is_valid(value, self._settings):
            raise GroupError(Errors.INVALID_CONFIG, message)

    def validate_all(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Raise GroupError if a change of a setting is not valid, or if the changes exclude each other."""
        for name, value in changes.items():
            self.validate(group_id, name, value)

        def number(name: str) -> int:
            return int(changes[name] or self.default(name)) if name in changes else self.value(group_id, name)

        for kind in ("consumer", "share"):
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if {session, heartbeat} & changes.keys() and number(session) <= number(heartbeat):
                raise GroupError(Errors.INVALID_CONFIG, f"{session} must be longer than {heartbeat}.")

    def set(self, group_id: str, name: str, value: str | None) -> None:
        """Set a group's own value for a setting. None removes it. The caller must have called `validate`."""
        values = self._values.setdefault(group_id, {})
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value.strip()
