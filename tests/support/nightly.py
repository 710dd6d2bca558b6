"""The tests that run every night and not in `make test`, each with what still finds the same kind of defect there.

The tests of a row have the mark `long`, which `make test` leaves out. Tests may also have that mark where they are
written: the long form of a test whose short form stays, for example. `tox.ini` says which command runs them.
"""

from __future__ import annotations

from zlib import crc32

#: A folder, a module, or tests of a module by the begin of their name, below tests/ -> what stays in `make test` and
#: finds the same kind of defect.
NIGHTLY: dict[str, str] = {
    # Real brokers. `make test` has each kind of failure of a broker once, and all rules of groups in virtual time.
    "integration/test_chaos.py": "a rule of groups, handlers or share groups under faults, at random: "
    "simulation/test_scenarios, test_parallel_runs and test_share_groups; brokers that die: test_failover",
    "integration/test_java_avro.py": "a value that differs from Java's: unit/registry/test_avro_resolution",
    "integration/test_java_sticky_random.py": "a result that is worse than Java's: test_java_assignors and the proofs "
    "of assignors/test_sticky_properties",
    "integration/test_broker_runner.py": "it tests the runner of brokers, which every real-broker test uses",
    "integration/test_mixed_groups.py::test_classic_group[range": "the bytes of assignments: test_java_wire; groups "
    "with Java: cooperative-sticky",
    "integration/test_mixed_groups.py::test_classic_group[roundrobin": "as for range",
    "integration/test_mixed_groups.py::test_classic_group[sticky": "user data of Java's sticky assignor: "
    "test_java_assignors",
    "integration/test_mixed_groups.py::test_group_of_the_consumer_protocol[kconsumer": "as with Java first",
    "integration/test_mixed_groups.py::test_upgrade_from_eager_to_cooperative": "both protocols of an assignor: "
    "unit/coordinator/test_classic_membership",
    "integration/test_mixed_groups.py::test_upgrade_to_the_consumer_protocol_and_back": "rolling changes of "
    "protocols: simulation/test_scenarios, in which members have either",
    "integration/test_sasl.py::test_a_delegation_token": "the marked user name: unit/net/test_sasl_mechanisms",
    "integration/test_sasl.py::test_a_token_that_has_expired": "unit/net/test_sasl_tokens",
    "integration/test_tls.py::test_large_records": "brokerless/test_tls_sockets",
    "integration/test_tls.py::test_stores_of_java": "the command in the error: unit/net/test_tls_context",
    "integration/test_truncation.py::test_committed_before": "the leader epoch of a commit: "
    "unit/offsets/test_initial_positions",
    "integration/test_truncation.py::test_the_old_leader_returns": "unclean elections: "
    "simulation/test_scenarios; a validation that succeeds: unit/offsets/test_validation",
    # Spark. `make test` has each way to read (batch, stream, each policy) once, and compares with what is recorded of
    # Spark's own source.
    "spark/test_pipeline.py": "unit/spark/test_spark_pipeline_*",
    "spark/test_pipeline_jdbc.py": "unit/spark/test_spark_pipeline_sinks",
    "spark/test_pipeline_kill.py": "unit/spark/test_spark_stream_offsets: a batch that runs again is the same",
    "spark/test_spark_cluster.py": "the source on executors in processes of their own: test_spark_source",
    "spark/test_spark_connect.py": "what a plan contains: test_spark_source",
    "spark/test_spark_docs.py": "options of blocks: unit/public/test_docs_blocks",
    "spark/test_spark_executors.py": "a task that runs again: test_spark_bad_values, unit/spark/test_spark_executor",
    "spark/test_spark_extremes.py": "gaps and empty partitions: integration/test_spark_tasks",
    "spark/test_spark_parity_failures.py": "the words of failures: unit/spark/test_spark_options and "
    "test_spark_batch_plan",
    "spark/test_spark_sasl.py": "a password in a plan: unit/config/test_secrets; the login: integration/test_sasl",
    "spark/test_spark_formats.py::test_avro": "unit/spark/test_spark_schema_ids and test_spark_formats",
    "spark/test_spark_formats.py::test_binary_formats": "unit/spark/test_spark_formats_avro and _protobuf",
    # Without a broker.
    "simulation/test_mutations.py::test_the_simulation": "it tests the simulation, which runs in `make test`",
    "test_packaging.py::test_wheel": "a source that no package has: test_sdist_contains_every_source",
    "test_packaging.py::test_entry_points": "unit/assignors/test_assignor_loading",
    "test_packaging.py::test_import_is_light": "unit/public/test_imports",
    "test_packaging.py::test_strict_editable_install": "the package as `make setup` installs it",
}

#: Modules of tests/integration about what a consumer returns, decided by code that all engines share. `make test` runs
#: each of their tests with one engine, and half of the tests with each engine.
ONE_ENGINE = {
    "test_api_flow.py",
    "test_api_lookups.py",
    "test_api_old_broker.py",
    "test_api_positions.py",
    "test_api_records.py",
    "test_arrow.py",
    "test_commit_topic_ids.py",
    "test_fetch_sessions.py",
    "test_sasl.py",
    "test_tls.py",
    "test_truncation.py",
    "test_who_serves.py",
    "test_wrong_input.py",
}

#: Modules in which an AsyncConsumer differs: its callbacks are awaited, and its loop suspends. brokerless/test_async_*
#: and test_event_loops show in `make test` what else it does.
WITH_ASYNCIO = {"test_api_callbacks.py", "test_api_iteration.py"}


def is_nightly(node_id: str) -> bool:
    """Returns True if a test, given by its id in pytest, is in a row of NIGHTLY."""
    return node_id.removeprefix("tests/").startswith(tuple(NIGHTLY))


def is_engine_nightly(module: str, test: str, engine: str, engines: list[str]) -> bool:
    """Returns True if `make test` runs this test of tests/integration with other engines only. `engines` are those
    with which it can run, and "asyncio" is the last of them if it is among them.
    """
    if engine == "asyncio":
        return module not in WITH_ASYNCIO
    blocking = [name for name in engines if name != "asyncio"]
    return module in ONE_ENGINE and engine != blocking[crc32(test.encode()) % len(blocking)]
