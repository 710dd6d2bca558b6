"""Scenarios of what administrators ask: access control lists, producers and transactions, and topics in pages."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, AclCreation, DeleteAclsFilter
from kconsumer.schema.dsl import Api
from kconsumer.schema.topics import DESCRIBE_TOPIC_PARTITIONS, Cursor, DescribedTopicRequest
from kconsumer.schema.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    TopicRequest,
)
from kconsumer.schema.transactions import INIT_PRODUCER_ID
from support.scenarios import produce, transactions
from support.scenarios.scenario import SETTLE_MS, Run, scenarios

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
MATCH, LITERAL, PREFIXED = 2, 3, 4
READ, WRITE, DESCRIBE = 3, 4, 8
DENY, ALLOW = 2, 3
#: The fields of a filter that finds every entry of a resource.
ANYTHING: dict[str, Any] = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


def creation(run: Run, **fields: Any) -> AclCreation:
    """Returns an entry that allows alice to read a topic, or with other fields."""
    known = {
        "resource_type": TOPIC,
        "resource_name": run.name(),
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**known, **fields})


def create(run: Run, version: int, *rows: AclCreation) -> None:
    """Record the response to CreateAcls, and let the broker apply it."""
    run.call(CREATE_ACLS, version, creations=list(rows))
    run.sleep(SETTLE_MS)


def find(run: Run, version: int, **fields: Any) -> None:
    """Record which entries a filter finds; those of this scenario have names that begin with its prefix."""
    known: dict[str, Any] = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": run.name(),
        "operation": 1,
        "permission_type": 1,
    }
    run.call(DESCRIBE_ACLS, version, **{**known, **ANYTHING, **fields})


@scenarios(CREATE_ACLS, authorizer="super")
def acls(run: Run, version: int) -> None:
    """Entries are created, one of them twice, described and deleted."""
    prefixed = creation(run, resource_name=run.name(""), resource_pattern_type=PREFIXED, permission_type=DENY)
    create(run, version, creation(run), creation(run), creation(run, operation=WRITE, host="10.0.0.1"), prefixed)
    find(run, version)
    for fields in ({"operation": READ}, {"permission_type": DENY}, {"principal_filter": "User:bob"}):
        find(run, version, **fields)
    for pattern in (1, MATCH, LITERAL, PREFIXED):
        find(run, version, pattern_type_filter=pattern)
    for host in ("10.0.0.1", "10.0.0.2"):
        find(run, version, host_filter=host)
    known: dict[str, Any] = {**ANYTHING, "resource_name_filter": run.name(), "resource_type_filter": TOPIC}
    filters = [DeleteAclsFilter(**{**known, "operation": operation}) for operation in (READ, DESCRIBE)]
    run.call(DELETE_ACLS, version, filters=filters)
    run.sleep(SETTLE_MS)
    find(run, version)


@scenarios(CREATE_ACLS, versions=[1, 3])
def no_authorizer(run: Run, version: int) -> None:
    """A broker without an authorizer has no entries."""
    create(run, version, creation(run))
    find(run, version)
    run.call(DELETE_ACLS, version, filters=[DeleteAclsFilter(**ANYTHING, resource_type_filter=TOPIC)])


WRONG: dict[str, dict[str, Any]] = {
    "no-name": {"resource_name": ""},
    "principal": {"principal": "alice"},
    "cluster": {"resource_type": CLUSTER, "resource_name": "mine"},
    "operation-any": {"operation": 1},
    "operation-unknown": {"operation": 77},
    "type-any": {"resource_type": 1},
    "type-unknown": {"resource_type": 77},
    "pattern-match": {"resource_pattern_type": MATCH},
    "permission-any": {"permission_type": 1},
    "group-write": {"resource_type": GROUP, "operation": WRITE},
    "transactional-id-read": {"resource_type": TRANSACTIONAL_ID, "operation": READ},
}


@scenarios(CREATE_ACLS, versions=[3], cases=WRONG, authorizer="super")
def wrong_acls(run: Run, version: int, fields: dict[str, Any]) -> None:
    """Entries that cannot be created."""
    create(run, version, creation(run, **fields))


@scenarios(DESCRIBE_TOPIC_PARTITIONS)
def topic_partitions(run: Run, version: int) -> None:
    """Topics in the order of their names, whole and in pages, and those that do not exist."""
    names = [run.topic("b", 3), run.topic("a", 2), run.name("none"), "a b"]
    rows = [DescribedTopicRequest(name=name) for name in names]
    run.call(DESCRIBE_TOPIC_PARTITIONS, version, topics=rows)
    cursor: Cursor | None = None
    for _ in range(3):
        response = run.call(
            DESCRIBE_TOPIC_PARTITIONS, version, topics=rows[:2], response_partition_limit=2, cursor=cursor
        )
        cursor = response.next_cursor


@scenarios(DESCRIBE_PRODUCERS)
def producers(run: Run, version: int) -> None:
    """The producers of a partition: idempotent, in a transaction and after it; partitions that do not exist."""
    topic = run.topic()
    plain = run.prepare(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    produce.produce(run, 9, topic, produce.idempotent(plain, 0, b"a", b"b"))
    producer = transactions.init(run)
    transactions.add(run, producer, topic)
    transactions.write(run, producer, topic, 0, b"c")

    def describe(name: str, index: int) -> None:
        rows = [TopicRequest(name=name, partition_indexes=[index])]
        run.call(DESCRIBE_PRODUCERS, version, topics=rows)

    describe(topic, 0)
    transactions.end(run, producer, True)
    transactions.await_markers(run, topic, 4)
    describe(topic, 0)
    describe(topic, 7)
    describe(run.name("none"), 0)


def note_state(run: Run, api: Api, version: int, **fields: Any) -> None:
    """Record a transaction: its state, timeout, partitions, and whether it has a start."""
    for row in run.prepare(api, version, **fields).transaction_states:
        begun = row.transaction_start_time_ms > 0
        topics = [(topic.topic.replace(run.prefix, "~"), sorted(topic.partitions)) for topic in row.topics]
        run.note("state", (row.error_code, row.transaction_state, row.transaction_timeout_ms, begun, sorted(topics)))


@scenarios(DESCRIBE_TRANSACTIONS)
def described_transactions(run: Run, version: int) -> None:
    """A transaction before, while and after it is open, and transactional ids without a transaction."""
    topic = run.topic(partitions=2)
    ids = [run.name("x")]
    note_state(run, DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)
    producer = transactions.init(run)
    note_state(run, DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)
    transactions.add(run, producer, topic, 1, 0)
    note_state(run, DESCRIBE_TRANSACTIONS, version, transactional_ids=[*ids, *ids, ""])
    transactions.end(run, producer, False)
    run.sleep(SETTLE_MS * 3)
    note_state(run, DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)
    transactions.init(run)
    note_state(run, DESCRIBE_TRANSACTIONS, version, transactional_ids=ids)


@scenarios(LIST_TRANSACTIONS)
def listed_transactions(run: Run, version: int) -> None:
    """Transactions by state, producer id, duration and pattern, and a state that does not exist."""
    topic = run.topic()
    producer = transactions.init(run)
    transactions.add(run, producer, topic)
    run.sleep(SETTLE_MS)
    mine: dict[str, Any] = {"producer_id_filters": [producer.producer_id]}
    run.call(LIST_TRANSACTIONS, version, **mine)
    for states in (["Ongoing"], ["Empty"], ["Sleeping"], ["Sleeping", "Ongoing"], ["ongoing"], ["Dead"]):
        run.call(LIST_TRANSACTIONS, version, state_filters=states, **mine)
    for duration_ms in (0, 3_600_000):
        run.call(LIST_TRANSACTIONS, version, duration_filter=duration_ms, **mine)
    for pattern in (".*x", "nothing", "", "("):
        run.call(LIST_TRANSACTIONS, version, transactional_id_pattern=pattern, **mine)
    transactions.end(run, producer, True)
    run.sleep(SETTLE_MS * 3)
    run.call(LIST_TRANSACTIONS, version, duration_filter=0, **mine)
