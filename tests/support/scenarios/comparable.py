"""Converts responses to a form in which those of two brokers are equal: JSON, with symbols for what may differ.

`SYMBOLS`, `REPLACED` and `UNORDERED` are the complete list of what may differ between the model and a real broker, each
with the reason. Every other field of every response must be equal. A value that is replaced by a symbol keeps its
identity: equal values of one scenario have equal symbols. Fields with their default values are left out.
"""

from __future__ import annotations

import re
from typing import Any

from kconsumer.schema import all_apis
from kconsumer.schema.dsl import Api, Array, Message, Scalar
from kconsumer.testing.cluster.releases import NOT_MODELLED
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS, UNUSED_TOPIC_DEFAULTS
from support.scenarios.batch_headers import describe_batches

#: Fields whose value is replaced by a numbered symbol, and why it may differ.
SYMBOLS = {
    "topic_id": "a broker draws it at random",
    "member_id": "a broker draws it at random; a prefix before a UUID is compared",
    "leader": "it is a member id",
    "producer_id": "brokers take producer ids from blocks, which all tests of a broker share",
    "ongoing_txn_producer_id": "it is a producer id",
    "session_id": "a broker draws it at random",
}

#: Fields whose value is replaced by a word, if it is not the default, and why it may differ.
REPLACED = {
    "host": "the address of the test",
    "port": "the address of the test",
    "client_host": "the address of the test",
    "cluster_id": "a broker draws it at random",
    "log_append_time_ms": "it is the time of the run",
    "throttle_time_ms": "a real broker may throttle a client that is too quick for it",
    "error_message": "it is text for people; whether there is one is compared",
    "acknowledge_error_message": "it is text for people; whether there is one is compared",
    "batch_index_error_message": "it is text for people; whether there is one is compared",
    "documentation": "it is text for people",
    "last_timestamp": "after a marker it is the time of the run",
}

#: Fields that are not compared, by API, and why.
LEFT_OUT = {
    "ApiVersions.finalized_features_epoch": "it counts the changes of a real cluster's metadata",
    "ApiVersions.supported_features": "the model announces only the features that clients use",
    "ApiVersions.finalized_features": "the model announces only the features that clients use",
}

#: APIs that ApiVersions lists with these last versions, and that the model lacks, and why.
APIS_LEFT_OUT = {
    ("ConsumerGroupHeartbeat", 0): "the preview of Kafka 3.9 is not in the model",
    ("ConsumerGroupDescribe", 0): "the preview of Kafka 3.9 is not in the model",
}

#: Arrays whose rows a real broker keeps in a hash map, so that their order says nothing: they are sorted.
UNORDERED = {
    "Metadata.topics",
    "Metadata.partitions",
    "JoinGroup.members",
    "DescribeGroups.members",
    "ConsumerGroupDescribe.members",
    "ListGroups.groups",
    "OffsetFetch.topics",
    "OffsetFetch.partitions",
    "AddPartitionsToTxn.results_by_topic_v3_and_below",
    "AddPartitionsToTxn.results_by_partition",
    "Produce.responses",
    "Produce.partition_responses",
    "DescribeGroups.groups",
    "CreatePartitions.results",
    "CreateTopics.topics",
    "CreateTopics.configs",
    "DescribeConfigs.configs",
    "DeleteTopics.responses",
    "DescribeAcls.resources",
    "DescribeAcls.acls",
    "DescribeProducers.active_producers",
    "ShareGroupDescribe.groups",
    "ShareGroupDescribe.members",
    "DescribeShareGroupOffsets.topics",
    "ShareFetch.partitions",
    "ShareAcknowledge.partitions",
}

TOPIC_CONFIG = 1  # the source of a setting
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Comparable:
    """Converts the responses of one run of a scenario. It remembers which value has which symbol.

    `prefix` begins the names of topics and groups of this run; it is replaced by "~".
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._symbols: dict[tuple[str, object], str] = {}
        self._counts: dict[str, int] = {}

    def response(self, api: Api, version: int, message: Message) -> dict[str, Any]:
        """Returns the comparable form of a response."""
        return self._struct(api, version, message)

    def _struct(self, api: Api, version: int, message: Message) -> dict[str, Any]:
        found = {}
        for field in message.FIELDS:
            if version not in field.versions or f"{api.name}.{field.name}" in LEFT_OUT:
                continue
            value = getattr(message, field.name)
            if value == (field.fresh() if field.fresh else field.default):
                continue
            if field.name == "records":
                found[field.name] = self._records(value)
            else:
                found[field.name] = self._value(api, version, field.name, field.kind, value)
        return {name: value for name, value in found.items() if value is not None or name not in LEFT_OUT}

    def _value(self, api: Api, version: int, name: str, kind: Any, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(kind, Array):
            return self._array(api, version, name, kind.element, value)
        if not isinstance(kind, Scalar):
            return self._struct(api, version, value)
        if name in SYMBOLS:
            return self.symbol(name, value)
        if name in REPLACED:
            return value if value == -1 else f"<{name}>"
        if isinstance(value, bytes):
            return f"hex {value.replace(self._prefix.encode(), b'~').hex()}"
        return self._text(value) if isinstance(value, str) else value

    def _array(self, api: Api, version: int, name: str, element: Any, rows: list[Any]) -> list[Any]:
        rows = _known(api, name, rows)
        if f"{api.name}.{name}" in UNORDERED:
            rows = sorted(rows, key=_sort_key)
        return [self._value(api, version, name, element, row) for row in rows]

    def symbol(self, name: str, value: Any) -> Any:
        """Returns the symbol of a value."""
        if value in (0, -1, "", bytes(16)):
            return value if isinstance(value, int) else ""
        kind = {"leader": "member_id", "ongoing_txn_producer_id": "producer_id"}.get(name, name)
        found = self._symbols.get((kind, value))
        if found is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            shown = f"{kind} {number}"
            if isinstance(value, str) and (uuid := _UUID.search(value)):
                shown += f" of {self._text(value[: uuid.start()])}"
            found = self._symbols[kind, value] = f"<{shown}>"
        return found

    def _text(self, value: str) -> str:
        return value.replace(self._prefix, "~")

    def _records(self, value: Any) -> Any:
        if value is None:
            return None
        rows = describe_batches(bytes(value))
        for row in rows:
            if "producer_id" in row:
                row["producer_id"] = self.symbol("producer_id", row["producer_id"])
        return rows


def _sort_key(row: Any) -> tuple[Any, ...]:
    """Returns the fields that name a row of an unordered array."""
    names = (
        "name",
        "resource_name",
        "pattern_type",
        "operation",
        "last_sequence",
        "group_id",
        "group_instance_id",
        "client_id",
        "member_id",
        "topic_name",
        "partition_index",
        "index",
    )
    return tuple(_UUID.sub("", str(getattr(row, name, None) or "")) for name in names)


def _known(api: Api, name: str, rows: list[Any]) -> list[Any]:
    """Returns the rows that the model can have: APIs and versions of its wire tables, and settings that it follows."""
    left_out = {key for keys in NOT_MODELLED.values() for key in keys}
    if api.name == "ApiVersions" and name == "api_keys":
        return [_clipped(row) for row in rows if row.api_key not in left_out and not _is_left_out(row)]
    if name == "configs":
        return [row for row in rows if row.name in TOPIC_DEFAULTS.keys() - UNUSED_TOPIC_DEFAULTS and _is_compared(row)]
    return rows


def _is_compared(setting: Any) -> bool:
    """Returns False for defaults that the test brokers change, that a real cluster keeps as a dynamic setting, or that
    the recordings do not have.
    """
    names = (
        "retention.ms",
        "min.insync.replicas",
        "min.cleanable.dirty.ratio",
        "errors.deadletterqueue.group.enable",
    )
    return setting.name not in names or setting.config_source == TOPIC_CONFIG


def _is_left_out(row: Any) -> bool:
    """Returns whether a row of ApiVersions is not compared."""
    name = all_apis()[row.api_key].name if row.api_key in all_apis() else "unknown"
    return (name, row.max_version) in APIS_LEFT_OUT


def _clipped(row: Any) -> Any:
    """Returns the versions of an API without those that the wire tables lack."""
    if row.api_key not in all_apis():
        return row
    table = all_apis()[row.api_key]
    first, last = max(row.min_version, table.min_version), min(row.max_version, table.max_version)
    return type(row)(api_key=row.api_key, min_version=first, max_version=last)
