"""The options that each kind of manager reads, as small immutable groups.

A manager receives only its group and not the whole configuration. The fields have the names of the options, because
`ConsumerConfig.select` sets them by name. The meaning and the allowed values of the options are in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


class OptionGroup:
    """Base of the groups, which are immutable. The annotations of a subclass are its fields.

    The groups are neither named tuples nor dataclasses. Python would generate methods for each of these classes in
    every process, which makes the first consumer slower.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} is immutable: {name} cannot be set")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class RetryConfig(OptionGroup):
    """Options of managers that only retry: coordinator lookups, group queries."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int


class MetadataConfig(OptionGroup):
    """Options of metadata requests."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    auto_offset_reset_new_partitions: str | None


class OffsetConfig(OptionGroup):
    """Options of initial positions, resets, ListOffsets and validation."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    read_committed: bool


class CommitConfig(OptionGroup):
    """Options of OffsetCommit and OffsetFetch."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int


class GroupRebalanceConfig(OptionGroup):
    """Options of the membership and the heartbeats of both protocols (Java `GroupRebalanceConfig`)."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    client_rack: str
    group_remote_assignor: str | None


class ShareConfig(OptionGroup):
    """Options of the fetches and acknowledgements of a share consumer (Java `ShareFetchConfig`)."""

    retry_backoff_ms: int
    retry_backoff_max_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_poll_records: int
    share_acquire_mode: str
    check_crcs: bool


class FetchLimits(OptionGroup):
    """Limits of Fetch requests. `update_options` replaces them while a consumer runs."""

    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int


class FetchConfig(OptionGroup):
    """Other options of Fetch requests, their responses and the collector (Java `FetchConfig`)."""

    record_filter: Callable[..., object] | None
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int  # also how long a preferred read replica is used
    decompressed_batch_max_bytes: int | None
    check_crcs: bool
    read_committed: bool
    client_rack: str
