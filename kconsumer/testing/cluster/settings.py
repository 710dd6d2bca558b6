"""The broker settings that the model follows, and the defaults of topic settings, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass
class Settings:
    """Broker settings. A field has the name of Kafka's property, with underscores in place of dots."""

    allow_everyone_if_no_acl_found: bool = False  # if there are ACLs at all
    authorizer_class_name: str = ""  # not empty: only what an ACL allows is allowed, from the start
    auto_create_topics_enable: bool = False
    connection_failed_authentication_delay_ms: int = 100
    num_partitions: int = 1  # of topics that are created automatically
    offsets_topic_num_partitions: int = 50
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offset_metadata_max_bytes: int = 4096
    group_initial_rebalance_delay_ms: int = 0  # Kafka's default is 3000
    group_min_session_timeout_ms: int = 6000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = (1 << 31) - 1
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000  # that a group may have, as the next ones
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = (1 << 31) - 1
    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000  # that a group may have, as the next one
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_heartbeat_interval_ms: int = 200  # Kafka's default is 5000: a member gets its partitions after it
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int = 0  # Kafka's default is 1000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2000
    group_share_max_share_sessions: int = 2000
    errors_deadletterqueue_topic_name_prefix: str = "dlq."
    errors_deadletterqueue_auto_create_topics_enable: bool = False
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    transaction_state_log_num_partitions: int = 50
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    replica_lag_time_max_ms: int = 30_000
    replica_selector_class: str = RACK_AWARE  # Kafka's default is "": consumers fetch from the leader
    log_cleaner_backoff_ms: int = 15_000
    log_retention_check_interval_ms: int = 300_000
    max_incremental_fetch_session_cache_slots: int = 1000
    metric_reporters: tuple[str, ...] = ()  # not empty: brokers receive the metrics of clients (KIP-714)
    super_users: tuple[str, ...] = ()  # principals, such as "User:admin", that may do everything
    telemetry_max_bytes: int = 1 << 20
    fetch_max_bytes: int = 55 << 20
    message_max_bytes: int = (1 << 20) + 12


#: The defaults of topic settings that have no effect in the model, or that depend on the release.
UNUSED_TOPIC_DEFAULTS: dict[str, str] = {
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.zstd.level": "3",
    "file.delete.delay.ms": "60000",
    "flush.messages": str((1 << 63) - 1),
    "flush.ms": str((1 << 63) - 1),
    "follower.replication.throttled.replicas": "",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str((1 << 63) - 1),
    "max.decompressed.message.bytes": str((1 << 31) - 9),
    "message.timestamp.after.max.ms": str(3600 * 1000),
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "min.compaction.lag.ms": "0",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "segment.index.bytes": str(10 << 20),
    "segment.jitter.ms": "0",
}

#: The defaults of all topic settings.
TOPIC_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": str(24 * 3600 * 1000),
    "errors.deadletterqueue.group.enable": "false",
    "index.interval.bytes": "4096",
    "max.message.bytes": str((1 << 20) + 12),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.bytes": str(1 << 30),
    "segment.ms": str(7 * 24 * 3600 * 1000),
    "unclean.leader.election.enable": "false",
    **UNUSED_TOPIC_DEFAULTS,
}

_OF_CLEANER = ("delete.retention.ms", "max.compaction.lag.ms", "min.compaction.lag.ms")
_OF_LOG = (
    "cleanup.policy",
    "index.interval.bytes",
    "local.retention.bytes",
    "local.retention.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "retention.bytes",
    "segment.bytes",
)
_SAME = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "max.decompressed.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
#: A topic setting -> the broker setting that is its default. Those that brokers leave empty are not here.
BROKER_NAMES: dict[str, str] = {
    "flush.messages": "log.flush.interval.messages",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "segment.index.bytes": "log.index.size.max.bytes",
    **{name: f"log.cleaner.{name}" for name in _OF_CLEANER},
    **{name: f"log.{name}" for name in _OF_LOG},
    **{name: name for name in _SAME},
}
