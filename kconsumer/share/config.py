"""ShareConsumerConfig: the configuration of a share consumer (Java `ShareConsumerConfig`).

Refuses the options that a share group has no use for. The group's own configuration at the brokers has some of them,
for example `share.auto.offset.reset`.
"""

from __future__ import annotations

from typing import ClassVar, Unpack

from kconsumer.config.options import UPDATABLE, ConsumerConfig, canonical_name
from kconsumer.config.signature import AllOptions
from kconsumer.errors import ConfigError

OF_THE_GROUP = "set {} of the share group with kafka-configs.sh, --entity-type groups"
NO_OFFSETS = "a share group has no offsets to commit; acknowledge records"
NO_ASSIGNOR = "the broker assigns partitions to the members of a share group"

#: Options that a share consumer refuses, and what to do instead.
REFUSED: dict[str, str] = {
    "auto_offset_reset": OF_THE_GROUP.format("share.auto.offset.reset"),
    "auto_offset_reset_new_partitions": "a share group starts at one position for all partitions",
    "isolation_level": OF_THE_GROUP.format("share.isolation.level"),
    "session_timeout_ms": OF_THE_GROUP.format("share.session.timeout.ms"),
    "heartbeat_interval_ms": OF_THE_GROUP.format("share.heartbeat.interval.ms"),
    "enable_auto_commit": NO_OFFSETS,
    "auto_commit_interval_ms": NO_OFFSETS,
    "on_commit": "use on_acknowledge, which is called with the acknowledged offsets",
    "assignors": NO_ASSIGNOR,
    "group_remote_assignor": NO_ASSIGNOR,
    "group_instance_id": "the members of a share group are never static",
    "group_protocol": "a share consumer always uses the protocol of share groups",
    "engine": "a share consumer has only one engine",
    "buffer_memory": "it buffers the records of a few polls; set max_poll_records and fetch_max_bytes",
    "max_partition_fetch_bytes": "fetches of share groups have no limit for one partition; set fetch_max_bytes",
    "exclude_internal_topics": "a share group subscribes to names of topics, not to patterns",
    "interceptors": "a share consumer calls no interceptors",
}


class ShareConsumerConfig(ConsumerConfig):
    """A checked, immutable configuration of a share consumer. Raises ConfigError for any mistake."""

    _is_share: ClassVar[bool] = True
    _updatable: ClassVar[tuple[str, ...]] = tuple(name for name in UPDATABLE if name not in REFUSED)

    def __init__(self, /, **options: Unpack[AllOptions]) -> None:
        for spelling in options:
            reason = REFUSED.get(canonical_name(spelling))
            if reason is not None:
                raise ConfigError(f"{spelling} is not an option of ShareConsumer: {reason}")
        super().__init__(**options)
        if self.group_id is None:
            raise ConfigError('group_id is required: the share group, for example group_id="jobs"')
