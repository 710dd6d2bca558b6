"""The integration tests that do not run on the model of a cluster, with the reason of each."""

from __future__ import annotations

ADMIN_REMOVAL = "needs LeaveGroup for members of the consumer protocol"
POSTGRES = "needs PostgreSQL, which only `make integration` installs"
JAVA = "compares with Java classes, or needs Java programs, which start slowly"
FENCING = "needs brokers that are fenced while they are paused"
LOG_FILES = "reads or changes the log files of a broker"
PROXY = "needs brokers with a second listener, behind a proxy"
SECURITY = "configures the security protocols of a broker by properties"

#: Modules of tests/integration, or single tests of them as `module::test` or with their parameters.
NEED_REAL_BROKERS: dict[str, str] = {
    "test_api_old_broker.py::test_group_health_is_as_java_says": JAVA,
    "test_broker_runner.py": "is about the runner of real brokers",
    "test_chaos.py": PROXY,
    "test_cluster_administration.py::test_as_javas_tools_say": JAVA,
    "test_close_states.py::test_close[fenced-consumer]": ADMIN_REMOVAL,
    "test_close_states.py::test_close[fenced_and_not_aware_of_it-consumer]": ADMIN_REMOVAL,
    "test_cluster_scenarios.py": "compares the model with real brokers",
    "test_command_line.py::test_demo[Apache Kafka]": "starts a real broker itself",
    "test_consumer_protocol.py::test_member_removed_by_an_admin": ADMIN_REMOVAL,
    "test_docs.py::test_shell": LOG_FILES,
    "test_exactly_once.py::test_results_in_postgres_across_kills": POSTGRES,
    "test_exactly_once.py::test_each_record_once_across_random_kills": "commits of killed producers are the broker's",
    "test_fake_cluster_java.py": JAVA,
    "test_fetch_sessions.py::test_more_consumers_than_sessions": "needs a cache of fetch sessions that is divided",
    "test_groups.py::test_a_classic_group_is_as_java_says": JAVA,
    "test_groups.py::test_a_consumer_group_is_as_java_says": JAVA,
    "test_groups.py::test_a_share_group_is_as_java_says": JAVA,
    "test_groups.py::test_listing_is_as_java_says": JAVA,
    "test_groups_altered.py::test_resets_are_as_java_does_them": JAVA,
    "test_groups_altered.py::test_share_resets_are_as_java_does_them": JAVA,
    "test_java_assignors.py": JAVA,
    "test_java_names.py": JAVA,
    "test_java_records.py": JAVA,
    "test_java_avro.py": JAVA,
    "test_java_sticky_random.py": JAVA,
    "test_java_wire.py": JAVA,
    "test_metrics.py::test_names_are_kafkas": JAVA,
    "test_mixed_groups.py": JAVA,
    "test_registry_server.py": "runs a schema registry in Java",
    "test_sasl.py": SECURITY,
    "test_share_mixed.py": JAVA,
    "test_telemetry.py": "needs a plugin of the broker in Java",
    "test_tls.py": SECURITY,
    "test_transactions.py::test_dump_shows_what_is_in_a_segment": LOG_FILES,
    "test_truncation.py": FENCING,
    "test_who_serves.py": "reads the request log of the brokers",
}


def needs_real_broker(node_id: str) -> bool:
    """Returns True if a test, given by its id in pytest, does not run on the model."""
    return any(name in NEED_REAL_BROKERS for name in entry_names(node_id))


def entry_names(node_id: str) -> tuple[str, str, str]:
    """Returns how a table may name a test: by its module, with its parameters, and for all parameters."""
    path, _, test = node_id.partition("::")
    module = path.rpartition("/")[2]
    return module, f"{module}::{test}", f"{module}::{test.partition('[')[0]}"
