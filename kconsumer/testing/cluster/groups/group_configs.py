"""The settings of single groups (KIP-1043 resource type GROUP), which IncrementalAlterConfigs changes.

A group without a setting of its own has that of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kconsumer.error_codes import Errors
from kconsumer.testing.cluster.groups.group import GroupError

if TYPE_CHECKING:
    from kconsumer.testing.cluster.settings import Settings

#: The setting of the broker for each setting of a group.
BROKER_SETTINGS = {
    "consumer.assignment.interval.ms": "group_consumer_assignment_interval_ms",
    "consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
}


class GroupConfigs:
    """The settings of all groups."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._values: dict[str, dict[str, int]] = {}  # by group and name

    def value(self, group_id: str, name: str) -> int:
        """Returns the value of a setting for a group: its own value, or else that of the broker."""
        found = self._values.get(group_id, {}).get(name)
        default: int = getattr(self._settings, BROKER_SETTINGS[name])
        return default if found is None else found

    def is_explicit(self, group_id: str, name: str) -> bool:
        """Returns whether a group has its own value for a setting."""
        return name in self._values.get(group_id, {})

    def validate(self, group_id: str, name: str, value: str | None) -> None:
        """Raise GroupError if the group id, the name or the value of a setting is not valid. None is a valid value."""
        if not group_id:
            raise GroupError(Errors.INVALID_REQUEST, "Default group resources are not allowed.")
        if name not in BROKER_SETTINGS:
            raise GroupError(Errors.INVALID_CONFIG, f"Unknown group config name: {name}")
        if value is not None and not value.isdecimal():
            message = f"Invalid value {value} for configuration {name}: Not a number of type INT"
            raise GroupError(Errors.INVALID_CONFIG, message)

    def set(self, group_id: str, name: str, value: str | None) -> None:
        """Set a group's own value for a setting. None removes it. The caller must have called `validate`."""
        values = self._values.setdefault(group_id, {})
        if value is None:
            values.pop(name, None)
        else:
            values[name] = int(value)
