"""Methods of other Kafka clients that a Consumer and its records do not have, and what replaces each of them.

The tables are read only if an attribute does not exist. They contain hints for the message of the AttributeError.
"""

from __future__ import annotations

_ITERATE = "poll() returns several records: iterate over them, as in `for record in records`; each has"
_NO_ERROR = "poll() raises errors; records have none"
_POSITIONS = "commit(records) what you have processed, with enable_auto_commit=False"

CONSUMER: dict[str, str] = {
    # confluent-kafka
    "consume": "poll() returns up to max_records records",
    "store_offsets": _POSITIONS,
    "get_watermark_offsets": "use beginning_offsets() and end_offsets()",
    "incremental_assign": "assign() keeps the positions of partitions that stay: pass all partitions",
    "incremental_unassign": "assign() keeps the positions of partitions that stay: pass all partitions",
    "unassign": "use unsubscribe()",
    "consumer_group_metadata": "use group_metadata()",
    "memberid": "use group_metadata().member_id",
    "set_sasl_credentials": "give sasl_plain_password as file:PATH or a callable; each authentication reads it",
    # kafka-python and aiokafka
    "partitions_for_topic": "use partitions_for()",
    "topics": "use list_topics()",
    "highwater": "use partition_states()[partition].high_watermark, or end_offsets()",
    "bootstrap_connected": "methods connect when they need to; partition_states() says why nothing is read",
    "commit_offsets_async": "use commit_async()",
    "getone": "iterate over the consumer, or poll(max_records=1)",
    "getmany": "poll() returns several records; by_partition() groups them",
    "start": "not needed: the first call connects",
    "stop": "use close()",
    "last_stable_offset": "use end_offsets() with isolation_level='read_committed'",
    "seek_to_committed": "use committed() and seek()",
    "next": "use next(iter(consumer)), or poll(max_records=1)",
}

RECORDS: dict[str, str] = {
    # a dict of lists, in kafka-python and aiokafka
    "items": "use by_partition().items()",
    "keys": "use partitions()",
    "values": "use by_partition().values(), or iterate over all records",
    "get": "use records(partition)",
    # one message, in confluent-kafka
    "error": _NO_ERROR,
    **{name: f"{_ITERATE} .{name}" for name in ("key", "value", "topic", "offset", "timestamp", "headers")},
    "partition": f"{_ITERATE} .partition; all of them: partitions()",
}
SUBSCRIPT = (
    "ConsumerRecords is neither a list nor a dict: iterate over it, as in `for record in records`; "
    "records.records(partition) returns those of one partition, records.by_partition() a dict of all of them"
)


def explain(owner: object, name: str, known: dict[str, str]) -> str:
    """Returns the message of the AttributeError for a missing name of `owner`, with the hint in `known` if any."""
    missing = f"{type(owner).__name__!r} object has no attribute {name!r}"
    return f"{missing}; {known[name]}" if name in known else missing
