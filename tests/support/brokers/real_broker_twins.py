"""The integration tests that the model covers and that `make test` runs on real brokers as well, with their reasons.

`make test` runs the others only on the model. `make integration-all` runs every test on real brokers.
"""

from __future__ import annotations

from support.brokers.fake_kafka_tests import entry_names

COMPACTION = "the broker's log cleaner removes records, and keeps or removes markers"
COORDINATOR = "the coordinator decides who is fenced, and when"
FAILOVER = "brokers that die, and controllers that elect others, take their own time and order"
OLD = "Kafka 3.9 responds with older versions"
PRODUCERS = "other clients' producers and the broker's transaction coordinator write what is read"
REBALANCE = "the coordinator decides how a rebalance proceeds"
SEGMENTS = "the broker writes, converts and deletes log segments"
SHARES = "the leader of a partition decides which member receives a record, and for how long"
TOPIC_IDS = "the broker decides which topic an id or a name means"

#: What the broker does is the point of these tests, so a model that does something else would hide an error. Modules of
#: tests/integration, or single tests of them as `module::test` or with their parameters.
REAL_BROKER_TWINS: dict[str, str] = {
    "test_api_old_broker.py": OLD,
    "test_api_records.py::test_log_append_time": SEGMENTS,
    "test_api_static_members.py::test_a_duplicate_takes_the_place_of_a_member_that_is_alive": COORDINATOR,
    "test_api_static_members.py::test_a_member_that_does_not_come_back_is_replaced": COORDINATOR,
    "test_api_static_members.py::test_commits_of_a_fenced_member": COORDINATOR,
    "test_api_subscriptions.py::test_new_partitions_have_a_reset_policy_of_their_own": REBALANCE,
    "test_cluster_administration.py": "brokers check settings, and find offsets in their logs",
    "test_commit_topic_ids.py": TOPIC_IDS,
    "test_consumer_protocol.py::test_callback_longer_than_the_rebalance_timeout": COORDINATOR,
    "test_consumer_protocol.py::test_no_topics_of_a_pattern_after_a_leave_that_was_not_sent": COORDINATOR,
    "test_consumer_protocol.py::test_pattern_of_the_broker": "the coordinator evaluates patterns, by RE2",
    "test_consumer_protocol.py::test_pattern_that_is_none": "the coordinator evaluates patterns, by RE2",
    "test_consumer_protocol.py::test_second_consumer_with_the_same_instance_id": COORDINATOR,
    "test_consumer_protocol.py::test_static_member_returns": COORDINATOR,
    "test_consumer_protocol.py::test_topic_created_enlarged_and_deleted": REBALANCE,
    "test_exactly_once.py::test_each_record_once_across_kills[confluent]": PRODUCERS,
    "test_exactly_once.py::test_only_the_present_member_commits[classic-confluent_producer]": PRODUCERS,
    "test_exactly_once.py::test_only_the_present_member_commits[consumer-confluent_producer]": PRODUCERS,
    "test_failover.py::test_leader_and_coordinator_die_under_load[consumer]": FAILOVER,
    "test_groups.py::test_an_empty_group_and_a_deleted_topic": TOPIC_IDS,
    "test_groups_altered.py": COORDINATOR,
    "test_groups_failover.py": FAILOVER,
    "test_range_log_changes.py::test_a_compacted_partition": COMPACTION,
    "test_ranges.py": SEGMENTS,
    "test_retry_topics.py::test_a_killed_member_loses_no_record[aiokafka-transactions]": PRODUCERS,
    "test_retry_topics.py::test_a_killed_member_loses_no_record[confluent-transactions]": PRODUCERS,
    "test_share_consumer.py::test_no_partition_waits_for_the_end_of_others": SHARES,
    "test_share_scenarios.py::test_a_late_acknowledgement": SHARES,
    "test_share_scenarios.py::test_implicit_acknowledgements": SHARES,
    "test_share_scenarios.py::test_isolation_level_changes": SHARES,
    "test_topic_tables.py": COMPACTION,
    "test_transactions.py::test_a_compacted_topic[kafka-classic]": COMPACTION,
    "test_transactions.py::test_a_compacted_topic[kafka39-classic]": COMPACTION,
    "test_transactions.py::test_a_topic_that_the_broker_compresses": SEGMENTS,
    "test_transactions.py::test_an_aborted_tail[kafka-classic]": PRODUCERS,
    "test_transactions.py::test_an_open_transaction_is_the_end[kafka-classic]": PRODUCERS,
    "test_transactions.py::test_interleaved_transactions[kafka-consumer-0]": PRODUCERS,
}


def has_real_broker_twin(node_id: str) -> bool:
    """Returns True if a test, given by its id in pytest, runs on the model and on a real broker."""
    return any(name in REAL_BROKER_TWINS for name in entry_names(node_id))
