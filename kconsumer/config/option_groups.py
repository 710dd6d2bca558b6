"""The options that each kind of manager reads, as small frozen groups.

A manager receives only its group and not the whole configuration. The fields have the names of the options, because
`ConsumerConfig.select` sets them by name. The meaning and the allowed values of the options are in `options.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class RetryConfig(NamedTuple):
    """Options of managers that only retry: coordinator lookups, group queries."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int


class MetadataConfig(NamedTuple):
    """Options of metadata requests."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool


class OffsetConfig(NamedTuple):
    """Options of initial positions, resets, ListOffsets and validation."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    read_committed: bool


class CommitConfig(NamedTuple):
    """Options of OffsetCommit and OffsetFetch."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int


class GroupRebalanceConfig(NamedTuple):
    """Options of the membership and the heartbeats of both protocols (Java `GroupRebalanceConfig`)."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    client_rack: str
    group_remote_assignor: str | None


class FetchConfig(NamedTuple):
    """Options of Fetch requests, their responses and the collector (Java `FetchConfig`)."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int  # also how long a preferred read replica is used
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    decompressed_batch_max_bytes: int | None
    check_crcs: bool
    read_committed: bool
    client_rack: str
