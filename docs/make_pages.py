"""Writes the pages, and parts of pages, that are generated from tables of the code.

These are options.md, parts of spark.md, pipeline.md and testing.md, design/state-machines.md, pages in reference/
(by reference_pages.py), the tables and programs in coming-from/ (by migration_tables.py), and the types of options in
kconsumer/config/signature.py. The texts around the tables are here, too.

python docs/make_pages.py [--check]

With `--check` it writes nothing and exits with 1 if a file is out of date.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from pathlib import Path

import migration_tables
from reference_pages import reference_pages

from kconsumer._common.error_codes import CODES
from kconsumer.config.foreign_options import FOREIGN
from kconsumer.config.kinds import Option
from kconsumer.config.options import ALIASES, OPTIONS, REQUIRED, UPDATABLE
from kconsumer.coordinator.classic_protocol.state import TRANSITIONS as MEMBER
from kconsumer.coordinator.consumer_protocol.heartbeat import HEARTBEAT_ACTIONS as CONSUMER_HEARTBEAT_ACTIONS
from kconsumer.coordinator.consumer_protocol.state import TRANSITIONS as CONSUMER_MEMBER
from kconsumer.coordinator.error_actions import (
    COMMIT_ACTIONS,
    CONSUMER_COMMIT_ACTIONS,
    CONSUMER_OFFSET_FETCH_ACTIONS,
    CONSUMER_OFFSET_FETCH_GROUP_ACTIONS,
    FIND_COORDINATOR_ACTIONS,
    HEARTBEAT_ACTIONS,
    JOIN_ACTIONS,
    LEAVE_ACTIONS,
    OFFSET_FETCH_ACTIONS,
    OFFSET_FETCH_GROUP_ACTIONS,
    SYNC_ACTIONS,
)
from kconsumer.fetching.error_actions import ERROR_ACTIONS as FETCH
from kconsumer.net.states import TRANSITIONS as CONNECTION
from kconsumer.offsets.error_actions import LEADER_EPOCH_ACTIONS, LIST_OFFSETS_ACTIONS
from kconsumer.share import error_actions as share_actions
from kconsumer.share.config import REFUSED
from kconsumer.share.member import TRANSITIONS as SHARE_MEMBER
from kconsumer.spark.options import ROWS as SPARK_ROWS
from kconsumer.spark.options import SourceOption
from kconsumer.spark.pipeline.settings import KEYS as PIPELINE_KEYS
from kconsumer.spark.pipeline.settings import REQUIRED as KEY_REQUIRED
from kconsumer.state.partition import TRANSITIONS as PARTITION
from kconsumer.telemetry.state import PUSH_ACTIONS, SUBSCRIPTION_ACTIONS
from kconsumer.telemetry.state import TRANSITIONS as TELEMETRY
from kconsumer.testing.cluster.releases import NOT_MODELLED
from kconsumer.types import OffsetReset

HERE = Path(__file__).parent

# --- options.md ---

OPTIONS_HEAD = """\
# Options

<!-- Written by docs/make_pages.py from the table in kconsumer/config/options.py; do not edit. -->

`Consumer("topic", bootstrap_servers="localhost:9092", group_id="g", max_poll_records=100)` accepts the names below.
`Consumer.from_config(mapping)` accepts them, too, or the Java consumer's keys: the same words with dots for underscores
(`max.poll.records`), values typed or as text.
Names, defaults and units are those of the Java consumer of Kafka 4.4, unless the row says *own*.
An unknown name, an invalid value, and options that contradict each other raise `ConfigError` at construction.

*classic*, *consumer*: the option belongs to this `group_protocol` only.
*share*: the option belongs to `ShareConsumer` only ([share groups](share.md)).
"""

SECTIONS = {
    "bootstrap_servers": "Group and consumption",
    "fetch_min_bytes": "Fetching",
    "client_id": "Client, network, metadata, metrics",
    "buffer_memory": "kconsumer's own",
    "security_protocol": "Security",
}

ALIASES_TEXT = """
Java's names, and names of librdkafka (confluent-kafka), kafka-python and aiokafka for the same thing.

"""
FOREIGN_TEXT = """
Options of librdkafka (confluent-kafka), kafka-python, aiokafka and Java that kconsumer does not have.
Each of them raises `ConfigError` with the text in this table.
Callbacks with the same name have different arguments here: `on_commit` is called as `(offsets, error)`, `on_assign` and
`on_revoke` as `(consumer, partitions)`.

"""


def default(row: Option) -> str:
    """Return the default as the page shows it."""
    if row.default is REQUIRED:
        return "required"
    if row.default in (None, ()):
        return "none"
    if row.default == "":
        return "empty"
    if isinstance(row.default, OffsetReset):
        return f"`{row.default}`"
    if isinstance(row.default, tuple):
        return "`" + ",".join(str(entry) for entry in row.default) + "`"
    return f"`{row.default}`"


def marks(row: Option) -> str:
    """Return the marks of the option: own, its group protocol."""
    return ", ".join(word for word in ("own" if row.own else "", row.protocol) if word)


def options_page() -> str:
    """Return the page of all options, their other names, and options of other clients."""
    parts = [OPTIONS_HEAD]
    rows: list[tuple[str, ...]] = []
    for name, row in reversed(OPTIONS.items()):
        rows.insert(0, (f"`{name}`", default(row), row.kind.text, marks(row), row.meaning))
        if name in SECTIONS:
            headings = ("option", "default", "takes", "", "meaning")
            parts.insert(1, f"\n## {SECTIONS[name]}\n\n" + table(headings, rows))
            rows = []
    aliases = [(f"`{alias}`", f"`{name}`") for alias, name in ALIASES.items()]
    parts.append("\n## Other names of the same options\n" + ALIASES_TEXT + table(("name", "option"), aliases))
    foreign = [(f"`{name}`", advice) for name, advice in sorted(FOREIGN.items())]
    parts.append("\n## Options of other clients\n" + FOREIGN_TEXT + table(("name", "what to do"), foreign))
    return "".join(parts)


# --- kconsumer/config/signature.py ---

SIGNATURE_HEAD = '''\
"""The options of consumers for type checkers and editors: names, types, meanings.

Written by docs/make_pages.py from the table in config/options.py, which also decides which values are valid; do not
edit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypedDict

from kconsumer.types import IsolationLevel, OffsetReset

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key = TypeVar("Key", default=bytes | None)  # the types that deserializers return
    Value = TypeVar("Value", default=bytes | None)
else:
    from typing import TypeVar

    Key, Value = TypeVar("Key"), TypeVar("Value")

T_co = TypeVar("T_co", covariant=True)


class DeserializerObject(Protocol[T_co]):
    """An object with the method of Java's interface `Deserializer`."""

    def deserialize(self, topic: Any, headers: Any, data: Any, /) -> T_co:
        """Returns the deserialized object."""
        ...


Deserializer = Callable[..., Key] | DeserializerObject[Key]
AsyncDeserializer = Callable[..., Awaitable[Key]] | DeserializerObject[Awaitable[Key]]


class CommonOptions(TypedDict, total=False):
    """The options that all consumers have. The classes below have all others."""

'''

#: What is written before and after the options of the other classes of signature.py.
SIGNATURE_CLASSES = '''

class OnlyConsumer(CommonOptions, total=False):
    """The options of `Consumer` that a share consumer does not have."""

{consumer}

class OnlyShareConsumer(CommonOptions, total=False):
    """The options that only a share consumer has."""

{share}

class DeserializerOptions(TypedDict, total=False):
    """The deserializers, which decide the types of keys and values."""

{deserializers}

class ConsumerKeywords(OnlyConsumer, total=False):
    """The keyword arguments of `Consumer`, except the deserializers."""

    bootstrap_servers: Required[str | Sequence[str]]
    group_id: str | None


class ConsumerOptions(OnlyConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `Consumer` and `AsyncConsumer`, for a dict that is passed as `**options`."""

    bootstrap_servers: str | Sequence[str]
    group_id: str | None


class ShareConsumerOptions(OnlyShareConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `ShareConsumer` and `AsyncShareConsumer`, for a dict that is passed as `**options`."""

    bootstrap_servers: str | Sequence[str]
    group_id: str


class ShareKeywords(OnlyShareConsumer, total=False):
    """The keyword arguments of `ShareConsumer`, except the deserializers."""

    bootstrap_servers: Required[str | Sequence[str]]
    group_id: Required[str]


class MockOptions(OnlyConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `MockConsumer`, except `bootstrap_servers` and `group_id`."""


class AllOptions(OnlyConsumer, OnlyShareConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `ConsumerConfig`."""

    bootstrap_servers: Required[str | Sequence[str | tuple[str, int]]]
    """Brokers to connect to first; the rest of the cluster is found through them."""
    group_id: str | None
    """The consumer group."""


class UpdatableOptions(TypedDict, total=False):
    """The keyword arguments of `update_options`."""

'''


def signature_page() -> str:
    """Return the module with the TypedDicts, which have a key for each option and each other name of one."""
    keys = {name: row for name, row in OPTIONS.items() if name not in ("bootstrap_servers", "group_id")}
    keys |= {alias: OPTIONS[name] for alias, name in ALIASES.items() if name in keys}
    found: dict[str, list[str]] = {"common": [], "consumer": [], "share": [], "deserializers": []}
    for name, row in keys.items():
        optional = " | None" if row.default is None and row.kind.annotation != "object" else ""
        line = f'    {name}: {row.kind.annotation}{optional}\n    """{row.meaning}"""\n'
        found[_owner(name, row)].append(line)
    texts = {owner: "".join(lines) for owner, lines in found.items()}
    updatable = "".join(f"    {name}: {OPTIONS[name].kind.annotation}\n" for name in UPDATABLE)
    return SIGNATURE_HEAD + texts.pop("common") + SIGNATURE_CLASSES.format(**texts) + updatable


def _owner(name: str, row: Option) -> str:
    if name in ("key_deserializer", "value_deserializer"):
        return "deserializers"
    return "share" if row.protocol == "share" else "consumer" if ALIASES.get(name, name) in REFUSED else "common"


# --- design/state-machines.md ---

MACHINES_HEAD = """\
# State machines and error actions

<!-- Written by docs/make_pages.py from the tables in the code; do not edit. -->

States and error actions are tables; the code looks them up. Every state machine is a table `TRANSITIONS` from a state
to its successors, and one method that changes the state. An illegal change raises `StateError` and changes nothing
(`kconsumer/_internal/transitions.py`).
"""

MEMBER_TEXT = """
The states of a member of a classic group (`kconsumer/coordinator/classic_protocol/state.py`, driven by
`kconsumer/coordinator/classic_protocol/manager.py`).
Every state may go back to UNJOINED, because any response can end the membership.

- UNJOINED: not a member, or fenced. The next `poll` with a subscription joins.
- PREPARING: the old generation is still valid. Positions are committed (with auto-commit), then `on_revoke` runs, or
  `on_lost` if the membership has ended already. Eager: with all partitions. Cooperative: only with those whose topic is
  no longer subscribed.
- JOINING: JoinGroup must be sent, or is in flight.
- SYNCING: the response to JoinGroup has arrived. The leader runs the assignor; SyncGroup must be sent, or is in flight.
- COMPLETING: the new assignment has arrived. Cooperative: partitions that move away are committed and revoked first,
  and another join follows. Then `on_assign` runs.
- STABLE: only heartbeats are sent.
"""

SHARE_MEMBER_TEXT = """
The states of a member of a share group (`kconsumer/share/member.py`, driven by `kconsumer/share/membership.py`).
There are no callbacks: an assignment is applied as soon as it arrives.

- UNSUBSCRIBED: not a member. The next `poll` with a subscription joins.
- JOINING: a heartbeat with member epoch 0 and every field must be sent, or is in flight. A member that was fenced comes
  back here, under the same member id.
- STABLE: a heartbeat is sent in each interval that the coordinator specified.
- LEAVING: the heartbeat with member epoch -1 must be sent, or is in flight.
- STALE: the member left because the caller did not poll for `max_poll_interval_ms`. The next `poll` joins.
- FATAL: the coordinator refuses this consumer, until it unsubscribes.
"""

CONSUMER_MEMBER_TEXT = """
The states of a member of the consumer protocol (`kconsumer/coordinator/consumer_protocol/state.py`, driven by
`kconsumer/coordinator/consumer_protocol/manager.py`).

- UNSUBSCRIBED: not a member. The next `poll` with a subscription joins.
- JOINING: a heartbeat with member epoch 0 and every field must be sent, or is in flight.
- RECONCILING: the target assignment differs from the owned partitions. Step by step: topic ids are resolved to names;
  partitions to be revoked are no longer fetched; positions are committed (with auto-commit); `on_revoke` runs; new
  partitions are owned but not fetched; `on_assign` runs.
- ACKNOWLEDGING: the owned partitions are the target assignment; the next heartbeat, at once, reports it.
- STABLE: a heartbeat is sent in each interval that the coordinator specified.
- FENCED: the coordinator does not know the member, or not with this epoch. `on_lost` runs, then the member joins under
  the same member id.
- PREPARE_LEAVING: callbacks run before the member leaves.
- LEAVING: the heartbeat with member epoch -1 must be sent, or is in flight (-2: a static member that will return).
- STALE: the member left because the caller did not poll for `max_poll_interval_ms`. The next `poll` runs `on_lost` and
  joins.
- FATAL: the coordinator refuses this consumer permanently.
"""

PARTITION_TEXT = """
The states of an assigned partition on its way to being fetched (`kconsumer/state/partition.py`).
A response that arrives too late is recognized before it changes anything.
`paused`, `pending_revocation`, `unsubscribed` and `awaiting_callback` are flags in addition to the state. Each of them
prevents fetching, and `partition_states()` shows which is set. Two of them are computed: `pending_revocation` whenever
the target assignment changes, `unsubscribed` whenever the subscription does.

- INITIALIZING: no position yet; the group's committed offset is requested first.
- AWAIT_RESET: no usable offset; ListOffsets finds one by `auto_offset_reset`, or for `seek_to_beginning` and
  `seek_to_end`.
- AWAIT_VALIDATION: the leader changed; OffsetForLeaderEpoch shows whether the log was truncated below the position
  (KIP-320).
- FETCHING: the position may be fetched from, returned and committed.
"""

CONNECTION_TEXT = """
The states of one connection (`kconsumer/net/states.py`).

- PROBING: the listener closed earlier connections without a response. One request shows whether it speaks Kafka without
  TLS, or requires SASL (`kconsumer/net/probes.py`); the connection is then closed in any case.
- AUTHENTICATING: only with `security_protocol` SASL_PLAINTEXT or SASL_SSL. The credentials are read, then
  ApiVersions v0, SaslHandshake and tokens are exchanged (`kconsumer/net/sasl/authenticator.py`).
- REAUTHENTICATING: the broker limits the session (`connections.max.reauth.ms`), and 85 to 95 % of it are over. A
  re-authentication is in progress behind the requests in flight; further requests wait.
"""

TELEMETRY_TEXT = """
The states of client telemetry (`kconsumer/telemetry/state.py`, driven by `kconsumer/telemetry/manager.py`), which are
those of Java. In Java a consumer that is closed while its subscription is in flight tries to push;
here it does not, because it does not know what to push.

- SUBSCRIPTION_NEEDED: GetTelemetrySubscriptions is due, at once or at the end of an interval. A consumer stays here if
  brokers have no plugin for telemetry, or request nothing.
- PUSH_NEEDED: PushTelemetry is due at the end of the interval.
- TERMINATING_PUSH_NEEDED: the consumer is being closed, and the last push is due.
- TERMINATED: the consumer is closed, telemetry is disabled, or a broker has refused it permanently.
"""

ACTIONS_TEXT = """
A code that is not listed is raised from the caller's next `poll`, or from the call that sent the request. There are
these exceptions. FindCoordinator, OffsetFetch of a group, ShareFetch and ShareAcknowledge retry retriable codes;
ListOffsets and OffsetForLeaderEpoch retry and log; LeaveGroup only logs; after an unknown code for
ConsumerGroupHeartbeat or ShareGroupHeartbeat every poll raises it; an unknown code ends telemetry, and is not raised.
"""

GROUP_TABLES = "coordinator/error_actions.py"
SHARE_TABLES = "share/error_actions.py"
TELEMETRY_TABLES = "telemetry/state.py"
ERRORS = [
    ("FindCoordinator", GROUP_TABLES, FIND_COORDINATOR_ACTIONS),
    ("JoinGroup", GROUP_TABLES, JOIN_ACTIONS),
    ("SyncGroup", GROUP_TABLES, SYNC_ACTIONS),
    ("Heartbeat", GROUP_TABLES, HEARTBEAT_ACTIONS),
    ("LeaveGroup", GROUP_TABLES, LEAVE_ACTIONS),
    ("OffsetCommit, per partition", GROUP_TABLES, COMMIT_ACTIONS),
    ("OffsetFetch, per group", GROUP_TABLES, OFFSET_FETCH_GROUP_ACTIONS),
    ("ConsumerGroupHeartbeat", "coordinator/consumer_protocol/heartbeat.py", CONSUMER_HEARTBEAT_ACTIONS),
    ("OffsetCommit in the consumer protocol, per partition", GROUP_TABLES, CONSUMER_COMMIT_ACTIONS),
    ("OffsetFetch in the consumer protocol, per group", GROUP_TABLES, CONSUMER_OFFSET_FETCH_GROUP_ACTIONS),
    ("OffsetFetch, per partition", GROUP_TABLES, OFFSET_FETCH_ACTIONS),
    ("OffsetFetch in the consumer protocol, per partition", GROUP_TABLES, CONSUMER_OFFSET_FETCH_ACTIONS),
    ("ListOffsets, per partition", "offsets/error_actions.py", LIST_OFFSETS_ACTIONS),
    ("OffsetForLeaderEpoch, per partition", "offsets/error_actions.py", LEADER_EPOCH_ACTIONS),
    ("Fetch, per partition", "fetching/error_actions.py", FETCH),
    ("ShareGroupHeartbeat", SHARE_TABLES, share_actions.HEARTBEAT_ACTIONS),
    ("ShareFetch and ShareAcknowledge", SHARE_TABLES, share_actions.SESSION_ACTIONS),
    ("ShareFetch, per partition", SHARE_TABLES, share_actions.FETCH_ACTIONS),
    ("ShareAcknowledge, per partition", SHARE_TABLES, share_actions.ACKNOWLEDGE_ACTIONS),
    ("GetTelemetrySubscriptions", TELEMETRY_TABLES, SUBSCRIPTION_ACTIONS),
    ("PushTelemetry", TELEMETRY_TABLES, PUSH_ACTIONS),
]


def drawing(arrows: Iterable[tuple[enum.Enum, enum.Enum, str]], start: enum.Enum) -> str:
    """Return a diagram in mermaid."""
    lines = [f"    [*] --> {start.name}"]
    for before, after, label in arrows:
        lines.append(f"    {before.name} --> {after.name}" + (f": {label}" if label else ""))
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines) + "\n```\n"


def machine(transitions: Mapping[enum.Enum, Collection[enum.Enum]]) -> str:
    """Return the diagram of a machine, without transitions of a state to itself."""
    order = list(type(next(iter(transitions))))
    return drawing([(a, b, "") for a in order for b in order if b in transitions[a] and a is not b], order[0])


def actions(codes: Mapping[int, enum.Enum]) -> dict[str, list[str]]:
    """Return the error codes by the action that they lead to."""
    found: dict[str, list[str]] = {}
    for code, action in codes.items():
        if code:
            text = action.value if isinstance(action.value, str) else action.name.lower().replace("_", " ")
            found.setdefault(text, []).append(CODES[code].name)
    return found


def machines_page() -> str:
    """Return the page of state machines and error actions."""
    parts = [MACHINES_HEAD]
    parts.append("\n## Membership, classic protocol\n" + MEMBER_TEXT + "\n" + machine(MEMBER))
    parts.append(
        "\n## Membership, consumer protocol (KIP-848)\n" + CONSUMER_MEMBER_TEXT + "\n" + machine(CONSUMER_MEMBER)
    )
    parts.append("\n## Membership, share groups (KIP-932)\n" + SHARE_MEMBER_TEXT + "\n" + machine(SHARE_MEMBER))
    parts.append("\n## A partition\n" + PARTITION_TEXT + "\n" + machine(PARTITION))
    parts.append("\n## A connection\n" + CONNECTION_TEXT + "\n" + machine(CONNECTION))
    parts.append("\n## Client telemetry (KIP-714)\n" + TELEMETRY_TEXT + "\n" + machine(TELEMETRY))
    parts.append("\n## Error codes\n" + ACTIONS_TEXT)
    for module, group in groupby(ERRORS, key=lambda entry: entry[1]):
        rows = [(title, text, ", ".join(names)) for title, _, codes in group for text, names in actions(codes).items()]
        parts.append(f"\n`kconsumer/{module}`:\n\n" + table(("response", "action", "errors"), rows))
    return "".join(parts)


# --- the table in spark.md ---

SPARK_BEGIN = "<!-- Written by docs/make_pages.py from the table in kconsumer/spark/options.py; do not edit. -->\n"
SPARK_END = "<!-- Until here. -->\n"


def spark_default(row: SourceOption) -> str:
    """Return the default as the page shows it."""
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return "" if row.default is None else str(row.default)


VERSIONS_BEGIN = "<!-- Written by docs/make_pages.py from docs/spark-versions.json; do not edit. -->\n"
VERSIONS_ROWS = {
    "batch": "batches",
    "decoding": "`valueFormat`: values as columns",
    "push_down": "filter push-down",
    "stream": "streams",
    "limits": "limits of micro-batches (without them, one takes everything that is available)",
    "available_now": "`availableNow` in several micro-batches",
    "pipeline": "[pipelines](pipeline.md)",
    "connect": "Spark Connect",
}


def spark_versions(page: str) -> str:
    """Return the page with the table of what each version of pyspark can do."""
    found = json.loads((HERE / "spark-versions.json").read_text(encoding="utf-8"))
    rows = [(text, *("yes" if found[each][name] else "" for each in found)) for name, text in VERSIONS_ROWS.items()]
    before, _, rest = page.partition(VERSIONS_BEGIN)
    _, _, after = rest.partition(SPARK_END)
    return before + VERSIONS_BEGIN + "\n" + table(("pyspark", *found), rows) + "\n" + SPARK_END + after


def spark_page() -> str:
    """Return the page with the current tables of versions and options."""
    page = spark_versions((HERE / "spark.md").read_text(encoding="utf-8"))
    before, _, rest = page.partition(SPARK_BEGIN)
    _, _, after = rest.partition(SPARK_END)
    parts = []
    for own, title in ((False, "As in Spark's own source"), (True, "More")):
        rows = [
            (f"`{row.name}`", row.takes, spark_default(row), "" if row.mode == "both" else row.mode, row.meaning)
            for row in SPARK_ROWS
            if row.own == own
        ]
        parts.append(f"\n### {title}\n\n" + table(("option", "takes", "default", "only in a", "meaning"), rows))
    return before + SPARK_BEGIN + "".join(parts) + "\n" + SPARK_END + after


# --- pipeline.md ---

PIPELINE_BEGIN = SPARK_BEGIN.replace("options.py", "pipeline/settings.py")


def key_default(value: object) -> str:
    """Return the default as the page shows it."""
    if value is KEY_REQUIRED:
        return "required"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value in (None, {}) else str(value)


def pipeline_page() -> str:
    """Return the page with the current table of keys."""
    before, _, rest = (HERE / "pipeline.md").read_text(encoding="utf-8").partition(PIPELINE_BEGIN)
    _, _, after = rest.partition(SPARK_END)
    rows = [(f"`{row.full}`", row.takes, key_default(row.default), row.meaning) for row in PIPELINE_KEYS]
    keys = table(("key", "takes", "default", "meaning"), rows)
    return before + PIPELINE_BEGIN + "\n" + keys + "\n" + SPARK_END + after


# --- testing.md ---

TESTING_BEGIN = SPARK_BEGIN.replace("spark/options.py", "testing/cluster/releases.py")


def testing_page() -> str:
    """Return the page with the current table of what FakeCluster does not model."""
    before, _, rest = (HERE / "testing.md").read_text(encoding="utf-8").partition(TESTING_BEGIN)
    _, _, after = rest.partition(SPARK_END)
    rows = [(subject, ", ".join(f"`{name}`" for name in found.values())) for subject, found in NOT_MODELLED.items()]
    return before + TESTING_BEGIN + "\n" + table(("subject", "requests"), rows) + "\n" + SPARK_END + after


# --- all of them ---


def table(headings: Collection[str], rows: Iterable[Collection[str]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main() -> int:
    """Write the pages, or compare them with the files. Returns the exit code."""
    pages = {
        HERE / "options.md": options_page(),
        HERE / "design" / "state-machines.md": machines_page(),
        HERE / "spark.md": spark_page(),
        HERE / "pipeline.md": pipeline_page(),
        HERE / "testing.md": testing_page(),
        HERE.parent / "kconsumer" / "config" / "signature.py": signature_page(),
        **{HERE / "reference" / name: text for name, text in reference_pages(table).items()},
        **migration_tables.pages(table),
    }
    if sys.argv[1:] == ["--check"]:
        old = [
            path.name for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        if old:
            sys.stderr.write(f"out of date: {', '.join(old)}; to repair it: python docs/make_pages.py\n")
        return int(bool(old))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
