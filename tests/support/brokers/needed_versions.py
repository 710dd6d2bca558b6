"""The integration tests that need a newer Kafka than the chosen one (`KAFKA_VERSION`), with what old brokers lack."""

from __future__ import annotations

from collections.abc import Iterable

from support.brokers.fake_kafka_tests import entry_names
from support.brokers.kafka_jars import release_of

EPOCHS_OF_OFFSETS = "2.2: leader epochs in responses of ListOffsets"
KNOWN_MEMBERS = "2.2: members have an id before they join (KIP-394); the coordinator waits for one that does not return"
STATIC_MEMBERS = "2.3: static members (KIP-345)"
SCRAM_USERS = "2.7: SCRAM users made by clients (KIP-554), which set up this broker"
ILLEGAL_NAMES = "2.8: an error in Metadata for an illegal name; older brokers report a topic that does not exist"
TOPIC_IDS = "3.1: fetching by topic ids (KIP-516)"
KEY_UPDATES = "3.2: key updates of TLS 1.3 (KAFKA-13418)"
SKIPPED_ASSIGNMENT = "3.2: a static leader that returns keeps the assignment (KIP-814)"
ALERTS = "3.3: support of Java 17, with which older brokers send alerts that cannot be decrypted"
NEXT_GENERATION = "4.0: the group protocol of KIP-848"
SHARE_GROUPS = "4.2: share groups (KIP-932); those of 4.0 and 4.1 are previews with other versions of requests"

#: Where no KIP or report says since when, the release is the lowest one of those in `tox.ini` that has it.
#:
#: A mark of tests, a module of tests/integration, or tests of it as `module::test` or with their parameters -> the
#: lowest release that has what they need, and what that is.
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
    "test_close_states.py::test_close[joining_while_another_holds_it_up-classic]": KNOWN_MEMBERS,
    "test_close_states.py::test_close[joining_while_another_holds_it_up-threaded]": KNOWN_MEMBERS,
    "test_close_states.py::test_close[static_member_joining_while_another_holds_it_up-classic]": STATIC_MEMBERS,
    "test_close_states.py::test_close[static_member_joining_while_another_holds_it_up-threaded]": STATIC_MEMBERS,
    "test_close_states.py::test_close[static_member-classic]": STATIC_MEMBERS,
    "test_close_states.py::test_close[static_member-threaded]": STATIC_MEMBERS,
    "test_close_states.py::test_close[static_member_with_leave_group-classic]": STATIC_MEMBERS,
    "test_close_states.py::test_close[static_member_with_leave_group-threaded]": STATIC_MEMBERS,
    "test_close_states.py::test_close[fenced-classic]": STATIC_MEMBERS,
    "test_close_states.py::test_close[fenced-threaded]": STATIC_MEMBERS,
    "test_close_states.py::test_close[fenced_and_not_aware_of_it-classic]": STATIC_MEMBERS,
    "test_close_states.py::test_close[fenced_and_not_aware_of_it-threaded]": STATIC_MEMBERS,
    "test_sasl.py": SCRAM_USERS,
    "test_share_consumer.py": SHARE_GROUPS,
    "test_share_dead_letters.py": SHARE_GROUPS,
    "test_share_leaders.py": SHARE_GROUPS,
    "test_share_mixed.py": SHARE_GROUPS,
    "test_share_scenarios.py": SHARE_GROUPS,
    "test_tls.py::test_failures_are_raised_at_once": ALERTS,
    "test_tls.py::test_large_records": KEY_UPDATES,
    "test_tls.py::test_single_records": KEY_UPDATES,
}


def missing_in(version: str, node_id: str, marks: Iterable[str]) -> str | None:
    """Returns what this version of Kafka lacks for a test, given by its id in pytest and its marks, or None."""
    needed = [NEEDED_VERSIONS[name] for name in (*entry_names(node_id), *marks) if name in NEEDED_VERSIONS]
    return next((text for text in needed if release_of(version) < release_of(text.partition(":")[0])), None)
