"""The integration tests that need a newer Kafka than the chosen one (`KAFKA_VERSION`), with what old brokers lack."""

from __future__ import annotations

from collections.abc import Iterable

from support.brokers.kafka_jars import release_of

EPOCHS_OF_OFFSETS = "2.2: leader epochs in responses of ListOffsets"
KNOWN_MEMBERS = "2.2: members have an id before they join (KIP-394); the coordinator waits for one that does not return"
STATIC_MEMBERS = "2.3: static members (KIP-345)"
INCREMENTAL_CHANGES = "2.3: IncrementalAlterConfigs (KIP-339)"
EPOCHS_OF_LEADERS = "2.4: leader epochs in Metadata that never go backwards, without which no truncation is detected"
OFFSET_DELETE = "2.4: OffsetDelete (KIP-496)"
GENERATIONS = "2.5: transactions that check the member and generation of their offsets (KIP-447)"
REQUEST_LOG = "2.7: request logs in JSON (KIP-673), from which the tests take what was requested"
SCRAM_USERS = "2.7: SCRAM users made by clients (KIP-554), which set up this broker"
ILLEGAL_NAMES = "2.8: an error in Metadata for an illegal name; older brokers report a topic that does not exist"
TOPIC_IDS = "3.1: fetching by topic ids (KIP-516)"
KEY_UPDATES = "3.2: key updates of TLS 1.3 (KAFKA-13418)"
SKIPPED_ASSIGNMENT = "3.2: a static leader that returns keeps the assignment (KIP-814)"
ALERTS = "3.3: support of Java 17, with which older brokers send alerts that cannot be decrypted"
ILLEGAL_SETTINGS = "3.3: controllers without ZooKeeper, which report an illegal setting as INVALID_CONFIG"
NEW_LEADERS = "3.7: the new leader in responses to a client that has fetched from the old one (KIP-951)"
SUBSCRIPTIONS = "3.7: subscriptions for metrics of clients (KIP-714)"
GROUP_TYPES = "3.8: types in the list of groups (KIP-1043)"
TIERED = "3.9: offsets of tiered storage (KIP-1005)"
GROUP_SETTINGS = "4.0: settings of groups"
KEPT_GROUPS = "4.0: groups that remain when their last offset is deleted"
NEXT_GENERATION = "4.0: the group protocol of KIP-848"
OF_ALL_RELEASES = "4.2: share groups (KIP-932), which the page shows as well"
SHARE_GROUPS = "4.2: share groups (KIP-932); those of 4.0 and 4.1 are previews with other versions of requests"
DELIVERY_LIMITS = "4.3: a limit of deliveries for each group"
DEAD_LETTERS = "4.4: dead-letter topics of share groups (KIP-1191)"

#: Where no KIP or report says since when, the release is the lowest one of those in `tox.ini` that has it.
#:
#: A mark of tests, a module of tests/integration, or tests of it by the begin of their name -> the lowest release that
#: has what they need, and what that is.
NEEDED_VERSIONS: dict[str, str] = {
    "consumer_protocol": NEXT_GENERATION,
    "test_api_lookups.py::test_offsets_for_times": EPOCHS_OF_OFFSETS,
    "test_api_lookups.py::test_partitions_for_a_topic_with_an_illegal_name": ILLEGAL_NAMES,
    "test_api_membership.py::test_group_metadata": STATIC_MEMBERS,
    "test_api_membership.py::test_leaving_and_joining_again_while_others_hold_up_the_join": KNOWN_MEMBERS,
    "test_api_membership.py::test_static_member_that_exceeds_the_poll_interval": STATIC_MEMBERS,
    "test_api_static_members.py": STATIC_MEMBERS,
    "test_api_static_members.py::test_a_leader_that_restarts_takes_over_what_there_is": SKIPPED_ASSIGNMENT,
    "test_api_subscriptions.py::test_illegal_topic_can_be_left": ILLEGAL_NAMES,
    "test_api_subscriptions.py::test_illegal_topic_next_to_a_good_one": ILLEGAL_NAMES,
    "test_api_subscriptions.py::test_topic_that_is_re_created_and_longer": TOPIC_IDS,
    "test_chaos.py::test_a_group_under_faults[consumer": NEXT_GENERATION,
    "test_chaos.py::test_a_group_under_faults[share": SHARE_GROUPS,
    "test_close_states.py::test_close[fenced": STATIC_MEMBERS,
    "test_close_states.py::test_close[joining_while_another_holds_it_up": KNOWN_MEMBERS,
    "test_close_states.py::test_close[static_member": STATIC_MEMBERS,
    "test_cluster_administration.py::test_as_javas_tools_say": SUBSCRIPTIONS,
    "test_cluster_administration.py::test_commands": SUBSCRIPTIONS,
    "test_cluster_administration.py::test_offsets_at_special_times": TIERED,
    "test_cluster_administration.py::test_subscriptions": SUBSCRIPTIONS,
    "test_cluster_scenarios.py::test_other_clients_see_what_they_saw[aiokafka-admin": ILLEGAL_SETTINGS,
    "test_cluster_scenarios.py::test_other_clients_see_what_they_saw[kafka-python-admin": INCREMENTAL_CHANGES,
    "test_docs.py::test_python[docs/groups.md": OF_ALL_RELEASES,
    "test_docs.py::test_shell[docs/groups.md": OF_ALL_RELEASES,
    "test_exactly_once.py::test_each_record_once_across_kills": STATIC_MEMBERS,
    "test_exactly_once.py::test_each_record_once_across_random_kills": STATIC_MEMBERS,
    "test_exactly_once.py::test_only_the_present_member_commits": GENERATIONS,
    "test_exactly_once.py::test_results_in_postgres_across_kills": STATIC_MEMBERS,
    "test_groups.py::test_a_classic_group_is_as_java_says": STATIC_MEMBERS,
    "test_groups.py::test_a_share_group_is_as_java_says": SHARE_GROUPS,
    "test_groups.py::test_listing_is_as_java_says": GROUP_TYPES,
    "test_groups.py::test_watching_ends_with_ctrl_c": STATIC_MEMBERS,
    "test_groups_administration.py::test_a_static_member_is_removed": STATIC_MEMBERS,
    "test_groups_administration.py::test_commands_show_and_then_change": GROUP_SETTINGS,
    "test_groups_administration.py::test_javas_tool_finds_the_changes": OFFSET_DELETE,
    "test_groups_administration.py::test_offsets_of_a_topic_are_deleted": KEPT_GROUPS,
    "test_groups_altered.py::test_offsets_of_a_share_group": SHARE_GROUPS,
    "test_groups_altered.py::test_share_resets_are_as_java_does_them": SHARE_GROUPS,
    "test_retry_topics.py::test_a_killed_member_loses_no_record": STATIC_MEMBERS,
    "test_sasl.py": SCRAM_USERS,
    "test_share_consumer.py": SHARE_GROUPS,
    "test_share_dead_letters.py": DEAD_LETTERS,
    "test_share_leaders.py": SHARE_GROUPS,
    "test_share_mixed.py": SHARE_GROUPS,
    "test_share_scenarios.py": SHARE_GROUPS,
    "test_share_scenarios.py::test_deliveries_after_close": DELIVERY_LIMITS,
    "test_telemetry.py": SUBSCRIPTIONS,
    "test_telemetry.py::test_kafkas_own_consumer_pushes_the_same_metrics[consumer": NEXT_GENERATION,
    "test_tls.py::test_failures_are_raised_at_once": ALERTS,
    "test_tls.py::test_large_records": KEY_UPDATES,
    "test_tls.py::test_single_records": KEY_UPDATES,
    "test_truncation.py": EPOCHS_OF_LEADERS,
    "test_who_serves.py": REQUEST_LOG,
    "test_who_serves.py::test_new_leader_is_followed_without_metadata": NEW_LEADERS,
}


def missing_in(version: str, node_id: str, marks: Iterable[str]) -> str | None:
    """Returns what this version of Kafka lacks for a test, given by its id in pytest and its marks, or None."""
    path, _, test = node_id.partition("::")
    full, named = f"{path.rpartition('/')[2]}::{test}", set(marks)
    for name, needed in NEEDED_VERSIONS.items():
        if (name in named or full.startswith(name)) and release_of(version) < release_of(needed.partition(":")[0]):
            return needed
    return None
