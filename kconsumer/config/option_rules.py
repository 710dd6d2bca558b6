"""The rules for several options together: defaults that depend on others, and options that contradict each other.

`values` maps the names of all options to their values. `given` maps the names of those that were set to the names that
the user wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

from kconsumer._common.deferred_calls import get_logger
from kconsumer.config.kinds import Option
from kconsumer.errors import ConfigError

log = get_logger(__name__)

FETCH_OVERHEAD_BYTES = 512  # size of a Fetch response without its batches
MUST_BE_LESS: tuple[tuple[str, str, str], ...] = (
    ("heartbeat_interval_ms", "session_timeout_ms", "or the group removes each member between two heartbeats"),
    ("fetch_max_wait_ms", "request_timeout_ms", "or every fetch without records times out"),
)
"""Pairs of options (ms), of which the first must be less than the second, and what happens if it is not."""
SHARE = "share"  # the group protocol of options that only a ShareConsumer has
_client_numbers = itertools.count(1)  # next() is atomic (without the GIL, from Python 3.14 on)


def derive(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Set the defaults that depend on other options, by Java's rules unless a comment says otherwise."""
    group, instance = values["group_id"], values["group_instance_id"]
    if not values["client_id"]:
        suffix = instance or next(_client_numbers)
        values["client_id"] = f"consumer-{suffix}" if group is None else f"consumer-{group}-{suffix}"
    if values["enable_auto_commit"] is None:
        values["enable_auto_commit"] = group is not None
    if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
        values["reconnect_backoff_max_ms"] = values["reconnect_backoff_ms"]
    if "fetch_max_wait_ms" not in given:  # not Java's rule: there, a short timeout ends every fetch without records
        values["fetch_max_wait_ms"] = min(values["fetch_max_wait_ms"], values["request_timeout_ms"] // 2)


def derive_login(values: dict[str, Any], given: Mapping[str, str], table: Mapping[str, Option]) -> None:
    """Check the SASL options, and set those that `sasl_jaas_config` contains.

    Logs a warning if SASL options are set but `security_protocol` does not use SASL.
    """
    if values["security_protocol"].startswith("SASL"):
        from kconsumer.config import sasl_rules  # imported only if it is used

        sasl_rules.derive(values, given, table)
    elif unused := [spelling for name, spelling in given.items() if name.startswith("sasl_")]:
        protocol = values["security_protocol"]
        log.warning("%s: ignored, because security_protocol is %s and not SASL_…", ", ".join(unused), protocol)


def check_together(
    values: Mapping[str, Any], given: Mapping[str, str], protocol: str, table: Mapping[str, Option]
) -> None:
    """Raise ConfigError if two options contradict each other. The message names both."""
    _check_security(values, given)
    if values["socks_proxy"] is not None and values["http_proxy"] is not None:
        raise ConfigError(f"{given['socks_proxy']} and {given['http_proxy']} cannot both be set; remove one of them")
    for name, spelling in given.items():
        belongs_to = table[name].protocol
        if belongs_to == SHARE != protocol:
            raise ConfigError(f"{spelling} is an option of ShareConsumer, and cannot be set for other consumers")
        if belongs_to not in (None, protocol):
            raise ConfigError(
                f"{spelling} is an option of group_protocol={belongs_to!r} "
                f"and cannot be set with group_protocol={protocol!r}"
            )
    if protocol == "consumer" and values["engine"] == "classic":
        raise ConfigError("engine='classic' cannot be set with group_protocol='consumer', which needs a network thread")
    if values["group_id"] is None:
        if values["enable_auto_commit"]:
            raise ConfigError("enable_auto_commit=True needs a group to commit to; set group_id, or remove it")
        if values["group_instance_id"] is not None:
            raise ConfigError("group_instance_id needs a group; set group_id, or remove it")
    check_limits(values, given)


def check_limits(values: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise ConfigError if limits contradict each other. `given` has the names of the options that were set."""
    for name, limit, consequence in MUST_BE_LESS:
        if values[name] >= values[limit]:
            raise ConfigError(
                f"{name}={values[name]} must be less than {limit}={values[limit]}, {consequence}; "
                f"lower {name} or raise {limit}"
            )
    largest, fetched = values["receive_message_max_bytes"], values["fetch_max_bytes"]
    if "receive_message_max_bytes" in given and fetched + FETCH_OVERHEAD_BYTES > largest:
        raise ConfigError(
            f"receive_message_max_bytes={largest} is not enough for fetch_max_bytes={fetched} and "
            f"{FETCH_OVERHEAD_BYTES} more bytes of a response; raise the one or lower the other"
        )


def _check_security(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    protocol = values["security_protocol"]
    unused = (
        [] if protocol.endswith("SSL") else [spelling for name, spelling in given.items() if name.startswith("ssl_")]
    )
    if unused and values["sasl_oauthbearer_token_endpoint_url"] is None:  # the token endpoint uses TLS, too
        log.warning("%s: ignored, because security_protocol is %s and not SSL or SASL_SSL", ", ".join(unused), protocol)
