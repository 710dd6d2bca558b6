"""The integration tests that need a newer Kafka than the chosen one (`KAFKA_VERSION`), with what old brokers lack."""

from __future__ import annotations

from collections.abc import Iterable

from support.brokers.fake_kafka_tests import entry_names
from support.brokers.kafka_jars import release_of

NEXT_GENERATION = "4.0: the group protocol of KIP-848"
SHARE_GROUPS = "4.2: share groups (KIP-932); those of 4.0 and 4.1 are previews with other versions of requests"

#: A mark of tests, a module of tests/integration, or tests of it as `module::test` or with their parameters -> the
#: lowest release that has what they need, and what that is.
NEEDED_VERSIONS: dict[str, str] = {
    "consumer_protocol": NEXT_GENERATION,
    "test_share_consumer.py": SHARE_GROUPS,
    "test_share_dead_letters.py": SHARE_GROUPS,
    "test_share_leaders.py": SHARE_GROUPS,
    "test_share_mixed.py": SHARE_GROUPS,
    "test_share_scenarios.py": SHARE_GROUPS,
}


def missing_in(version: str, node_id: str, marks: Iterable[str]) -> str | None:
    """Returns what this version of Kafka lacks for a test, given by its id in pytest and its marks, or None."""
    needed = [NEEDED_VERSIONS[name] for name in (*entry_names(node_id), *marks) if name in NEEDED_VERSIONS]
    return next((text for text in needed if release_of(version) < release_of(text.partition(":")[0])), None)
