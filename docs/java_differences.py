"""The tables of docs/coming-from/java.md about what differs from Java's consumer, each row with the tests that show it.

A test checks that these tests exist. Called by migration_tables.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

Table = Callable[[Collection[str], Iterable[Collection[str]]], str]

COMMITS = "tests/unit/coordinator/test_commit_manager.py"
IDS = "tests/unit/coordinator/test_commit_topic_ids.py"
CLASSIC = "tests/unit/coordinator/test_classic_membership.py"
MEMBER = "tests/unit/coordinator/test_consumer_membership.py"
HEARTBEAT = "tests/unit/coordinator/test_consumer_heartbeat.py"
CALLBACKS = "tests/integration/test_api_callbacks.py"
SUBSCRIPTIONS = "tests/integration/test_api_subscriptions.py"
FETCHES = "tests/unit/fetching/test_fetch_manager.py"
TELEMETRY = "tests/unit/telemetry/test_telemetry_manager.py"


class Difference(NamedTuple):
    """One row: what it is about, what Java's consumer does, what kconsumer does, and tests that show the latter."""

    what: str
    java: str
    ours: str
    tests: tuple[str, ...] = ()


class Surprise(NamedTuple):
    """One row: what it is about, what happens here and in Java, and tests that show it."""

    what: str
    text: str
    tests: tuple[str, ...] = ()


#: The tables by their headings.
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "In a program": (
        Difference(
            "timeouts",
            "`Duration`; `poll` requires one",
            "seconds as a float, or a `timedelta`. Without one, `poll` waits for up to a second, and other methods for "
            "`default_api_timeout_ms`",
        ),
        Difference(
            "a loop over the consumer",
            "does not exist",
            "`for record in consumer`. A loop that stops early has consumed only the records that it was given",
            ("tests/integration/test_api_iteration.py::test_close_after_a_break_commits_what_was_seen",),
        ),
        Difference(
            "errors",
            "`WakeupException`, `CommitFailedException`, …",
            "`WakeupError`, `CommitFailedError`, …: [errors](../guides/errors.md)",
        ),
        Difference(
            "an exception of a listener",
            "is wrapped in `KafkaException`",
            "is raised unchanged",
            (f"{CALLBACKS}::test_error_of_a_callback_is_raised_and_the_member_continues",),
        ),
        Difference(
            "a block that an error ends",
            "`close()` at the end of `try (consumer)` auto-commits",
            "the end of a `with` block does not auto-commit after an error, because what the body has received is not "
            "processed; `close()` does",
            ("tests/integration/test_close_states.py::test_close",),
        ),
        Difference(
            "a consumer that is dropped without `close()`",
            "keeps its partitions until `session_timeout_ms`",
            "leaves its group when Python collects it: [notebooks](../guides/data-frames.md#notebooks)",
            ("tests/brokerless/test_unclosed_consumers.py::test_the_last_reference",),
        ),
        Difference(
            "other threads",
            "may call `wakeup()`",
            "may also call [methods that do not wait](../guides/threads.md#calls-from-other-threads), such as "
            "`commit_async` and `pause`; any other call raises ConcurrentAccessError",
            (
                "tests/unit/engine/test_access_guard.py::test_second_thread_is_refused_with_advice",
                "tests/brokerless/test_shared_calls.py::test_a_commit_of_another_thread_is_sent_while_a_poll_waits",
            ),
        ),
        Difference(
            "a forked process",
            "does not exist",
            "gets ForkedConsumerError if it uses its parent's consumer",
            ("tests/brokerless/test_forked_children.py::test_every_call_of_a_child",),
        ),
        Difference(
            "plugins",
            "classes, by name",
            "interceptors, metrics reporters and OAuth token providers are objects; deserializers are callables, or "
            "the names of Java's classes for bytes, text and numbers; assignors are names, classes or objects",
        ),
        Difference(
            "a consumer that makes no progress",
            "logs at most at INFO, for many causes",
            "logs a warning with the cause within ten seconds, and then once a minute; `consumer.status()`, the repr "
            "and `partition_states()` have it, too: "
            "[operating](../guides/operating.md#a-consumer-that-reads-nothing)",
            (
                "tests/unit/public/test_progress.py::test_a_request_without_a_response_is_logged",
                "tests/unit/net/test_connection_warnings.py::test_each_state_without_progress_is_a_warning",
            ),
        ),
        Difference(
            "a call with a partition that does not exist",
            "waits for its timeout",
            "`end_offsets`, `position` and the like request the metadata again, and raise TimeoutError at once if they "
            "lack the partition. The message names the partitions that exist",
            ("tests/brokerless/test_timeout_causes.py::test_what_does_not_exist_is_a_timeout_in_each_call",),
        ),
        Difference(
            "bootstrap servers that cannot be resolved",
            "the constructor throws ConfigException; with `bootstrap.resolve.timeout.ms`, `poll` throws after that "
            "time, and the client cannot be used any more",
            "the constructor does no I/O. The first call that waits raises BootstrapResolutionError, after "
            "`bootstrap_resolve_timeout_ms` at the earliest. The next call tries again",
            (
                "tests/brokerless/test_bootstrap_names.py::test_the_first_call_that_waits_raises",
                "tests/brokerless/test_bootstrap_names.py::test_a_name_that_resolves_in_time_is_no_error",
            ),
        ),
        Difference(
            "an unknown option",
            "is logged",
            "raises ConfigError, which names the nearest one",
            ("tests/unit/config/test_config.py::test_unknown_option_names_the_nearest",),
        ),
        Difference(
            "key stores",
            "JKS, PKCS12, PEM",
            "PEM; the error for the others has the command that converts them: [security](../security.md)",
            ("tests/unit/net/test_tls_context.py::test_stores_of_java",),
        ),
        Difference(
            "threads",
            "the consumer protocol uses a network thread; the classic protocol works in `poll`, and has a thread for "
            "heartbeats",
            'the same; `engine="threaded"` gives the classic protocol a network thread, too',
        ),
    ),
    "Positions and commits": (
        Difference(
            "a commit while a position is compared with a new leader's log",
            "silently leaves the partition out",
            "contains the position, with its epoch: the records before it were consumed",
            ("tests/unit/state/test_subscription_state.py::test_positions_that_await_validation_are_committed",),
        ),
        Difference(
            "a topic that was deleted and created again",
            "the position stays, so records of the new topic before it are skipped",
            "the position is reset by `auto_offset_reset`, and a warning is logged. With `latest`, the records that "
            "are there already are skipped",
            (
                f"{FETCHES}::test_position_of_a_deleted_topic_is_not_kept",
                f"{SUBSCRIPTIONS}::test_topic_that_is_re_created",
            ),
        ),
        Difference(
            "the same with Kafka 2.4 to 2.7, after changes of the leader",
            "nothing of the new topic is read before a restart",
            "the new topic is read",
            ("tests/unit/state/test_cluster.py::test_a_topic_that_was_gone_for_long_starts_its_epochs_again",),
        ),
        Difference(
            "records that retention deletes before they are read",
            "the position is reset, which is logged at INFO",
            "the same, with a warning that has both offsets and the number of records",
            ("tests/integration/test_api_positions.py::test_a_reset_of_a_lost_position_is_a_warning",),
        ),
        Difference(
            "commits of the consumer protocol",
            "name the topic that has the name now",
            "name the topic that was read, so offsets of a deleted topic are not committed for its successor",
            (f"{IDS}::test_offsets_of_a_deleted_topic_are_not_committed_to_its_successor",),
        ),
        Difference(
            "an auto-commit of a deleted topic",
            "is retried before a rebalance until `max_poll_interval_ms`, and nothing is read meanwhile",
            "is given up. `commit()` is retried",
            (f"{COMMITS}::test_auto_commit_gives_up_on_a_deleted_topic",),
        ),
        Difference(
            "a failed auto-commit",
            "is repeated each `retry_backoff_ms`",
            "is repeated with a backoff that grows to `retry_backoff_max_ms`",
            (f"{COMMITS}::test_failed_auto_commit_is_tried_again_soon",),
        ),
        Difference(
            "the commit before a rebalance, when it is retried",
            "has the positions of the moment",
            "has those of the poll that began the rebalance, since records that were returned later are still being "
            "processed",
            (
                f"{COMMITS}::test_commit_before_rebalance_is_of_the_poll_that_began_it",
                f"{COMMITS}::test_retried_commit_does_not_go_back",
            ),
        ),
        Difference(
            "many calls of `commit_async`",
            "are all sent",
            "at most ten are in flight; later ones are sent together, and each has its own result",
            (f"{COMMITS}::test_async_commits_in_flight_are_limited",),
        ),
        Difference(
            "the first lookup of committed offsets, by a member that was fenced",
            "raises UNKNOWN_MEMBER_ID from `poll`",
            "is repeated after the member has joined again",
            ("tests/unit/offsets/test_initial_positions.py::test_member_that_is_fenced_during_the_lookup",),
        ),
    ),
    "Groups": (
        Difference(
            "a permission on a topic that is granted later (classic protocol)",
            "is noticed after `metadata_max_age_ms`",
            "is noticed within 3 s",
            ("tests/unit/metadata/test_metadata_manager.py::test_a_topic_with_an_error_is_requested_again_soon",),
        ),
        Difference(
            "a changed subscription (consumer protocol)",
            "is sent with the next heartbeat",
            "is sent at once",
            (f"{HEARTBEAT}::test_a_changed_subscription_is_sent_at_once",),
        ),
        Difference(
            "a pattern (consumer protocol)",
            "the member joins before it knows topics, so the first `onPartitionsAssigned` has no partitions",
            "the member joins with the topics that match a `re.Pattern`",
            (f"{MEMBER}::test_a_client_pattern_is_matched_before_joining",),
        ),
        Difference(
            "a member that is fenced while `on_revoke` runs",
            "gets `onPartitionsLost` with all partitions",
            "gets `on_lost` with the other partitions only",
            (f"{MEMBER}::test_fenced_in_the_middle_of_a_reconciliation",),
        ),
        Difference(
            "GROUP_ID_NOT_FOUND (consumer protocol)",
            "ends the consumer",
            "a member that had joined joins again: the group may have been changed to the classic protocol",
            ("tests/unit/coordinator/test_consumer_error_tables.py::test_heartbeat",),
        ),
        Difference(
            "a failed authentication (consumer protocol)",
            "ends the membership",
            "is raised by `poll`; the member continues when the password is corrected within the session",
            (f"{HEARTBEAT}::test_an_error_that_may_be_temporary_does_not_end_the_membership",),
        ),
        Difference(
            "a static leader that returns",
            "notices later changes of the topics only",
            "sends DescribeGroups, and joins again if partitions were added while it was away",
            (f"{CLASSIC}::test_a_returned_leader_rejoins_if_partitions_were_added",),
        ),
        Difference(
            "a static cooperative member that closes during a rebalance",
            "leaves partitions without a reader until the next rebalance",
            "sends a last JoinGroup, so that they get one",
            (f"{CLASSIC}::test_a_static_member_does_not_leave_withheld_partitions_unassigned",),
        ),
        Difference(
            "a fenced member, and a broker that is not the coordinator",
            "a retry at once, each time",
            "one retry at once; later ones after a backoff",
            ("tests/unit/engine/test_nothing_is_silent.py::test_each_error_is_named",),
        ),
    ),
    "Fetching and connections": (
        Difference(
            "memory for fetched data",
            "has no bound",
            "is bounded by `buffer_memory`: [memory](../guides/memory.md)",
            ("tests/integration/test_memory_bound.py::test_memory_of_a_backlog",),
        ),
        Difference(
            "a broker with buffered records",
            "is not asked for more",
            "is asked for the records after them, two fetches ahead",
            (f"{FETCHES}::test_no_more_than_two_fetches_ahead",),
        ),
        Difference(
            "a preferred replica (`client_rack`) that refuses, or cannot be reached",
            "is asked again, as long as the leader names it, and nothing is read",
            "is not asked for `metadata_max_age_ms`: the leader is read",
            (
                "tests/unit/fetching/test_fetch_leaders.py::test_an_unreachable_replica_does_not_stop_reading",
                "tests/unit/fetching/test_fetch_leaders.py::test_after_a_redirect_that_gave_nothing_the_leader_is_read",
            ),
        ),
        Difference(
            "a transaction that stays open (`read_committed`), a quota",
            "look like a consumer that has read everything",
            "are named by `partition_states()`, and by a warning; a transaction with the last stable offset and the "
            "high watermark",
            (
                "tests/unit/fetching/test_partition_monitor.py::test_an_open_transaction_is_reported",
                "tests/unit/fetching/test_partition_monitor.py::test_throttling_is_named",
            ),
        ),
        Difference(
            "connections to a broker",
            "one, and a second one to the coordinator",
            "one more for requests that must not wait behind a fetch, such as a fetch after `seek`, or those of "
            "`close()`: [three at most](../guides/operating.md#connections)",
            ("tests/unit/fetching/test_fetch_expedited.py::test_seek_while_a_fetch_waits",),
        ),
    ),
    "Share groups": (
        Difference(
            "a loop over the consumer, and methods of records",
            "do not exist",
            "`for record in consumer`, `record.ack()`, `release()`, `reject()`, `renew()`: [share groups](../share.md)",
            ("tests/brokerless/test_share_interruptions.py::test_a_commit_inside_a_loop",),
        ),
        Difference(
            "a quick program",
            "has one fetch for each poll",
            "acquires the records of several polls with one request",
            ("tests/unit/share/test_fetch_ahead.py::test_a_fetch_ahead_is_for_several_polls",),
        ),
        Difference(
            "options that a share consumer does not read",
            "are refused in part; others are ignored",
            "are all refused, with what to do instead",
            ("tests/brokerless/test_share_options.py::test_no_option_without_effect",),
        ),
        Difference(
            "offsets in callbacks and results",
            "are by `TopicIdPartition`",
            "are by `TopicPartition`",
            ("tests/integration/test_share_scenarios.py::test_release_then_accept",),
        ),
    ),
    "Metrics and telemetry": (
        Difference(
            "values of metrics",
            "any object",
            "numbers. `version` and `commit-id` of `app-info` are tags of metrics with the value 1, with the tag "
            "`client-id` only",
            ("tests/unit/engine/test_consumer_metrics.py::test_app_info",),
        ),
        Difference(
            "`records-lag-max` and `records-lead-min` of a consumer",
            "have no value after a minute without records",
            "include the present values, so that an alert notices a consumer that is stuck",
            (f"{FETCHES}::test_lag_of_a_consumer_that_reads_nothing",),
        ),
        Difference(
            "`records-lag-seconds` and `records-lag-seconds-max`",
            "do not exist",
            "are the age of the last record returned while there is a lag",
            ("tests/brokerless/test_fetch_metrics.py::test_the_age_of_the_last_record",),
        ),
        Difference(
            "`records-consumed-total`, `bytes-consumed-total`",
            "grow when the last record of a response has been read",
            "grow with each poll",
            (f"{FETCHES}::test_metrics_of_fetches",),
        ),
        Difference(
            "metrics of topics that are neither assigned nor subscribed any more",
            "stay",
            "are removed",
            (f"{FETCHES}::test_metrics_of_topics_that_are_gone",),
        ),
        Difference(
            "`failed-rebalance-total`",
            "counts each first join of a dynamic member",
            "does not count it",
            ("tests/unit/coordinator/test_group_metrics.py::test_a_response_with_a_member_id_is_no_failure",),
        ),
        Difference(
            "the tag `node-id` of the third connection to broker 1",
            "does not exist",
            "`node-*1`, in `consumer-node-metrics`",
        ),
        Difference(
            "reports",
            "JMX by default",
            "`metrics_reporters` has none by default: [observability](../guides/observability.md)",
        ),
        Difference(
            "increases in a push that failed ([telemetry](../guides/telemetry.md))",
            "are lost",
            "are part of the next push",
            (f"{TELEMETRY}::test_a_failed_push_loses_no_increase",),
        ),
        Difference(
            "a lost connection, or brokers without a plugin",
            "end telemetry",
            "do not end it: the next attempt follows after the interval",
            (f"{TELEMETRY}::test_lost_connections", f"{TELEMETRY}::test_brokers_without_telemetry"),
        ),
        Difference(
            "pushed metrics of one name",
            "are sent one by one",
            "are sent together, which needs about a third of the bytes",
        ),
    ),
}

#: What is as in Java, and surprises.
SURPRISES = (
    Surprise(
        "`pause` and eager rebalances",
        "An eager rebalance, which the default assignors make, revokes all partitions, and so resumes them. Pause them "
        "again in `on_assign`. With `cooperative-sticky` and with the consumer protocol, they stay paused.",
        (f"{CALLBACKS}::test_pausing_and_rebalances",),
    ),
    Surprise(
        "`latest` and new partitions",
        "Records that are written to a new partition before a member reads it are skipped, unless "
        "`auto_offset_reset_new_partitions` is set: [new partitions](../guides/committing.md#new-partitions).",
        (
            f"{SUBSCRIPTIONS}::test_records_written_before_a_new_partition_is_discovered",
            f"{SUBSCRIPTIONS}::test_new_partitions_have_a_reset_policy_of_their_own",
        ),
    ),
    Surprise(
        "`metrics_recording_level`",
        "It changes nothing: all metrics of a consumer have the level INFO.",
    ),
)


def differences(table: Table) -> str:
    """Returns a heading and a table for each part."""
    return "\n".join(
        f"### {heading}\n\n" + table(("", "Java", "kconsumer"), [(row.what, row.java, row.ours) for row in rows])
        for heading, rows in DIFFERENCES.items()
    )


def surprises(table: Table) -> str:
    """Returns the table of what is the same and surprises."""
    return table(("", "as in Java"), [(row.what, row.text) for row in SURPRISES])


def tests() -> list[str]:
    """Returns the tests that rows name, each as `file::function`."""
    rows = [*itertools.chain.from_iterable(DIFFERENCES.values()), *SURPRISES]
    return [test for row in rows for test in row.tests]
