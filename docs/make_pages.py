"""Writes what is a table of the code in another form: options.md, the options in spark.md, the keys in pipeline.md,
design/state-machines.md, and the types of options.

python docs/make_pages.py [--check]

With `--check` nothing is written; the exit code says whether the files are what the code says.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from kconsumer.config.foreign_options import FOREIGN
from kconsumer.config.kinds import Option
from kconsumer.config.options import ALIASES, OPTIONS, REQUIRED
from kconsumer.coordinator.classic_protocol.state import TRANSITIONS as MEMBER
from kconsumer.coordinator.consumer_protocol.heartbeat import HEARTBEAT_ACTIONS as EPOCH_HEARTBEAT_REACTIONS
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
from kconsumer.error_codes import CODES
from kconsumer.fetching.error_actions import ERROR_ACTIONS as FETCH
from kconsumer.net.states import TRANSITIONS as CONNECTION
from kconsumer.offsets.error_actions import LEADER_EPOCH_ACTIONS, LIST_OFFSETS_ACTIONS
from kconsumer.spark.options import ROWS as SPARK_ROWS
from kconsumer.spark.options import SourceOption
from kconsumer.spark.pipeline.settings import KEYS as PIPELINE_KEYS
from kconsumer.spark.pipeline.settings import REQUIRED as KEY_REQUIRED
from kconsumer.state.partition import TRANSITIONS as PARTITION
from kconsumer.types import OffsetReset

HERE = Path(__file__).parent

# --- options.md ---

OPTIONS_HEAD = """\
# Options

<!-- Written by docs/make_pages.py from the table in kconsumer/config/options.py; do not edit. -->

`Consumer("topic", bootstrap_servers="localhost:9092", group_id="g", max_poll_records=100)` takes the names below.
`Consumer.from_config(mapping)` takes them too, or the Java consumer's keys: the same words with dots for underscores
(`max.poll.records`), values typed or as text.
Names, defaults and units are those of the Java consumer of Kafka 4.4, unless the row says *own*.
A wrong name, a value that does not fit, and options that contradict each other raise `ConfigError` at construction.

*later*: the feature is not in this version; any value but the default raises `ConfigError`.
*classic*, *consumer*: belongs to this `group_protocol` only.
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
Callbacks with the same name have other arguments here: `on_commit` is called as `(offsets, error)`, `on_assign` and
`on_revoke` as `(consumer, partitions)`.

"""


def default(row: Option) -> str:
    """How the default reads."""
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
    """What sets the option apart."""
    return ", ".join(word for word in ("own" if row.own else "", row.protocol, "later" if row.later else "") if word)


def options_page() -> str:
    """All options, what else they are called, and what other clients call them."""
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
"""The options of a Consumer for type checkers and editors: names, types, meanings.

Written by docs/make_pages.py from the table in config.py; do not edit. What a value must be like is decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Required, TypedDict

from kconsumer.types import IsolationLevel, OffsetReset


class DeserializerObject(Protocol):
    """A deserializer as Java has them."""

    def deserialize(self, topic: Any, headers: Any, data: Any, /) -> Any:
        """Make an object of bytes."""
        ...


Deserializer = Callable[..., Any] | DeserializerObject | str


class ConsumerOptions(TypedDict, total=False):
    """What `Consumer` takes by keyword besides `bootstrap_servers` and `group_id`."""

'''


SIGNATURE_TAIL = '''

class AllOptions(ConsumerOptions, total=False):
    """What `ConsumerConfig` takes."""

    bootstrap_servers: Required[str | Sequence[str | tuple[str, int]]]
    """Brokers to ask first; the rest of the cluster is found through them."""
    group_id: str | None
    """The consumer group."""
'''


def signature_page() -> str:
    """A TypedDict with a key for each option and each other name of one."""
    keys = {name: row for name, row in OPTIONS.items() if name not in ("bootstrap_servers", "group_id")}
    keys |= {alias: OPTIONS[name] for alias, name in ALIASES.items() if name in keys}
    lines = [SIGNATURE_HEAD]
    for name, row in keys.items():
        optional = " | None" if row.default is None and row.kind.annotation != "object" else ""
        lines.append(f'    {name}: {row.kind.annotation}{optional}\n    """{row.meaning}"""\n')
    lines.append(SIGNATURE_TAIL)
    return "".join(lines)


# --- design/state-machines.md ---

MACHINES_HEAD = """\
# State machines and reactions

<!-- Written by docs/make_pages.py from the tables in the code; do not edit. -->

States and error reactions are data; the code walks the data.
An illegal change of state raises or is ignored, as each section says, and changes nothing.
"""

MEMBER_TEXT = """
The states of a member of a classic group (`kconsumer/coordinator/classic_protocol/state.py`, driven by
`kconsumer/coordinator/classic_protocol/manager.py`).
An illegal change raises `StateError`.
Every state may fall back to UNJOINED: an answer can take the membership away at any time.

- PREPARING: the old generation still holds. Positions are committed (with auto-commit), then `on_revoke` runs, or
  `on_lost` if the membership is gone already. Eager: for all partitions. Cooperative: only for those no longer
  subscribed.
- JOINING: JoinGroup is to be sent or under way.
- SYNCING: JoinGroup was answered. The leader runs the assignor; SyncGroup is to be sent or under way.
- COMPLETING: the new assignment is here. Cooperative: what moves away is committed and revoked first, and another
  join follows. Then `on_assign` runs.
- STABLE: heartbeats only.
"""

EPOCHS_TEXT = """
Where a member of the consumer protocol stands (`kconsumer/coordinator/consumer_protocol/state.py`, driven by
`kconsumer/coordinator/consumer_protocol/manager.py`).
An illegal change raises `StateError`.

- UNSUBSCRIBED: not a member. The next `poll` with a subscription joins.
- JOINING: a heartbeat with epoch 0 and every field is to be sent, or to be answered.
- RECONCILING: what is assigned is not what is owned. Step by step: topic ids get names, what goes is held back,
  positions are committed (with auto-commit), `on_revoke`, what is new is taken but not fetched, `on_assign`.
- ACKNOWLEDGING: owned is what was assigned; the next heartbeat, at once, says so.
- STABLE: heartbeats at the interval that the coordinator told.
- FENCED: the coordinator does not know us, or not with this epoch. `on_lost`, then JOINING under the same member id.
- PREPARE_LEAVING: callbacks before leaving. LEAVING: the heartbeat with epoch -1 (-2: a static member will be back).
- STALE: left because the caller did not poll for `max_poll_interval_ms`. The next `poll` runs `on_lost` and joins.
- FATAL: the coordinator refuses this consumer for good.
"""

PARTITION_TEXT = """
How far an assigned partition is on its way to being fetched (`kconsumer/state/partition.py`).
An illegal change raises `StateError`; a response that arrives late is recognized before it changes anything.
`paused`, `pending_revocation`, `unsubscribed` and `awaiting_callback` are flags beside the state: each of them holds
the partition back, and `partition_states()` says which. Two of them are computed: `pending_revocation` whenever the
target assignment changes, `unsubscribed` whenever the subscription does.

- INITIALIZING: no position yet; the group's committed offset is asked for first.
- AWAIT_RESET: no usable offset; ListOffsets finds one by `auto_offset_reset`, or by a `seek_to_beginning/end`.
- AWAIT_VALIDATION: the leader changed; OffsetForLeaderEpoch tells whether the log was cut below the position (KIP-320).
- FETCHING: the position may be fetched from, returned and committed.
"""

CONNECTION_TEXT = """
The life of one connection (`kconsumer/net/states.py`).
An illegal change raises `StateError`.

- PROBING: the listener closed connections without a word. One request shows whether it speaks Kafka without TLS, or
  wants a login (`kconsumer/net/probes.py`); the connection then ends in any case.
- AUTHENTICATING: only with `security_protocol` SASL_PLAINTEXT or SASL_SSL. The credentials are looked for, then
  ApiVersions v0, SaslHandshake and tokens are exchanged (`kconsumer/net/sasl/authenticator.py`).
- REAUTHENTICATING: the broker limits the session (`connections.max.reauth.ms`), and 85 to 95 % of it are over: another
  login is under way behind the requests in flight; further ones wait.
"""

REACTIONS_TEXT = """
Codes that are not listed are raised from the caller's next `poll` (or from the call that asked), with six exceptions.
FindCoordinator and OffsetFetch of a group retry what is retriable; ListOffsets and OffsetForLeaderEpoch ask again, and
log it; LeaveGroup only logs; after a code that ConsumerGroupHeartbeat does not know, every poll raises it.
"""

GROUP_TABLES = "coordinator/error_actions.py"
ERRORS = [
    ("FindCoordinator", GROUP_TABLES, FIND_COORDINATOR_ACTIONS),
    ("JoinGroup", GROUP_TABLES, JOIN_ACTIONS),
    ("SyncGroup", GROUP_TABLES, SYNC_ACTIONS),
    ("Heartbeat", GROUP_TABLES, HEARTBEAT_ACTIONS),
    ("LeaveGroup", GROUP_TABLES, LEAVE_ACTIONS),
    ("OffsetCommit, per partition", GROUP_TABLES, COMMIT_ACTIONS),
    ("OffsetFetch, per group", GROUP_TABLES, OFFSET_FETCH_GROUP_ACTIONS),
    ("ConsumerGroupHeartbeat", "coordinator/consumer_protocol/heartbeat.py", EPOCH_HEARTBEAT_REACTIONS),
    ("OffsetCommit of a member with an epoch, per partition", GROUP_TABLES, CONSUMER_COMMIT_ACTIONS),
    ("OffsetFetch of a member with an epoch, per group", GROUP_TABLES, CONSUMER_OFFSET_FETCH_GROUP_ACTIONS),
    ("OffsetFetch, per partition", GROUP_TABLES, OFFSET_FETCH_ACTIONS),
    ("OffsetFetch of a member with an epoch, per partition", GROUP_TABLES, CONSUMER_OFFSET_FETCH_ACTIONS),
    ("ListOffsets, per partition", "offsets/error_actions.py", LIST_OFFSETS_ACTIONS),
    ("OffsetForLeaderEpoch, per partition", "offsets/error_actions.py", LEADER_EPOCH_ACTIONS),
    ("Fetch, per partition", "fetching/error_actions.py", FETCH),
]


def drawing(arrows: Iterable[tuple[enum.Enum, enum.Enum, str]], start: enum.Enum) -> str:
    """A diagram in mermaid."""
    lines = [f"    [*] --> {start.name}"]
    for before, after, label in arrows:
        lines.append(f"    {before.name} --> {after.name}" + (f": {label}" if label else ""))
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines) + "\n```\n"


def machine(transitions: Mapping[enum.Enum, Collection[enum.Enum]]) -> str:
    """Diagram and table of a machine whose table is state -> states; staying in a state is not drawn."""
    order = list(type(next(iter(transitions))))
    arrows = [(a, b, "") for a in order for b in order if b in transitions[a] and a is not b]
    rows = [(a.name, ", ".join(b.name for b in order if b in transitions[a])) for a in order]
    return drawing(arrows, order[0]) + "\n" + table(("from", "to"), rows)


def reactions(codes: Mapping[int, enum.Enum]) -> str:
    """A table of error codes."""
    rows = []
    for code, reaction in codes.items():
        if code:
            text = reaction.value if isinstance(reaction.value, str) else reaction.name.lower().replace("_", " ")
            rows.append((str(code), CODES[code].name, text))
    return table(("code", "error", "reaction"), rows)


def machines_page() -> str:
    """The machines, then what error codes lead to."""
    parts = [MACHINES_HEAD]
    parts.append("\n## Membership, classic protocol\n" + MEMBER_TEXT + "\n" + machine(MEMBER))
    parts.append("\n## Membership, consumer protocol (KIP-848)\n" + EPOCHS_TEXT + "\n" + machine(CONSUMER_MEMBER))
    parts.append("\n## A partition\n" + PARTITION_TEXT + "\n" + machine(PARTITION))
    parts.append("\n## A connection\n" + CONNECTION_TEXT + "\n" + machine(CONNECTION))
    parts.append("\n## Error codes\n" + REACTIONS_TEXT)
    for title, module, codes in ERRORS:
        parts.append(f"\n### {title}\n\n`kconsumer/{module}`\n\n{reactions(codes)}")
    return "".join(parts)


# --- the table in spark.md ---

SPARK_BEGIN = "<!-- Written by docs/make_pages.py from the table in kconsumer/spark/options.py; do not edit. -->\n"
SPARK_END = "<!-- Until here. -->\n"


def spark_default(row: SourceOption) -> str:
    """How the default reads."""
    if isinstance(row.default, bool):
        return str(row.default).lower()
    return "" if row.default is None else str(row.default)


def spark_page() -> str:
    """The page with the table in it as the code has it."""
    before, _, rest = (HERE / "spark.md").read_text(encoding="utf-8").partition(SPARK_BEGIN)
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
    """How the default reads."""
    if value is KEY_REQUIRED:
        return "required"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value in (None, {}) else str(value)


def pipeline_page() -> str:
    """The page with the table of keys in it as the code has it."""
    before, _, rest = (HERE / "pipeline.md").read_text(encoding="utf-8").partition(PIPELINE_BEGIN)
    _, _, after = rest.partition(SPARK_END)
    rows = [(f"`{row.full}`", row.takes, key_default(row.default), row.meaning) for row in PIPELINE_KEYS]
    keys = table(("key", "takes", "default", "meaning"), rows)
    return before + PIPELINE_BEGIN + "\n" + keys + "\n" + SPARK_END + after


# --- all of them ---


def table(headings: Collection[str], rows: Iterable[Collection[str]]) -> str:
    """A table in markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main() -> int:
    """Write the pages, or compare them."""
    pages = {
        HERE / "options.md": options_page(),
        HERE / "design" / "state-machines.md": machines_page(),
        HERE / "spark.md": spark_page(),
        HERE / "pipeline.md": pipeline_page(),
        HERE.parent / "kconsumer" / "config" / "signature.py": signature_page(),
    }
    if sys.argv[1:] == ["--check"]:
        old = [
            path.name for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        if old:
            sys.stderr.write(f"not what the code says: {', '.join(old)}; run python docs/make_pages.py\n")
        return int(bool(old))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
