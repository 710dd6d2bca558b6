"""The pages of docs/reference/ that are generated from tables of the code: errors, metrics, commands, versions, KIPs.

`make_pages.py` writes them. What the code does not say, such as what to do about an error, is in the tables here.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial

from kconsumer import Consumer, ShareConsumer, TopicPartition, errors
from kconsumer._common.error_codes import CODES
from kconsumer.cli import build_parser
from kconsumer.fetching.metrics import FetchMetrics
from kconsumer.metrics.registry import Metrics
from kconsumer.net.metrics import ConnectionMetrics
from kconsumer.parallel import Processor
from kconsumer.schema import APIS
from kconsumer.state.subscription import SubscriptionState
from kconsumer.testing import MockConsumer
from kconsumer.testing.cluster.releases import RELEASES, versions_of
from kconsumer.types import MetricName

Table = Callable[[Collection[str], Iterable[Collection[str]]], str]

WRITTEN = "<!-- Written by docs/make_pages.py from {}; do not edit. -->\n"

# --- errors.md ---

ERRORS_HEAD = """\
# Errors

{written}
All errors are classes of `kconsumer.errors` and derive from `KafkaError`. Its attribute `retriable` says whether the
same call may succeed when it is repeated; the consumer itself retries most such errors until the timeout of the call.
Messages name the topic, partition, group or broker, and what to change.

A `BrokerError` has the broker's error `code` and Kafka's `name` for it. [The table of codes](#error-codes) says which
class each code becomes. [State machines and error actions](../design/state-machines.md#error-codes) has what the
consumer does about each code, and [the guide to errors](../guides/errors.md) how a program handles them.
"""

#: What a program or its operator can do about each class of errors.
ADVICE = {
    "KafkaError": "Catch it where any failure of Kafka has the same consequence, such as an alert and a restart.",
    "ConfigError": "Correct the option that the message names.",
    "StateError": "Correct the program. The message says which call must come first, or which calls exclude each "
    "other.",
    "TimeoutError": "Repeat the call, or give it more time. `__cause__` has the last error, such as a broker that "
    "cannot be reached.",
    "WakeupError": "Leave the loop and close the consumer, or repeat the call.",
    "ConcurrentAccessError": "Let one thread poll. Others call methods that do not wait, such as `commit_async`.",
    "ForkedConsumerError": "Create the consumer in the child process.",
    "BrokerConnectionError": "Nothing, if it is rare. If it stays, check the address, the firewall and "
    "`security_protocol`.",
    "BootstrapResolutionError": "Check the names in `bootstrap_servers`. If the name server may be late, such as when "
    "a container starts, set `bootstrap_resolve_timeout_ms`, or repeat the call.",
    "ProtocolError": "Check that `bootstrap_servers` are Kafka brokers, and that no proxy changes the data. In a "
    "group, check the other members: one of them may have sent what cannot be parsed.",
    "CorruptRecordError": "Store `topic`, `partition` and `offset`, and `seek` past the offset. If a restart does not "
    "help, the log of the broker may be damaged.",
    "RecordTooLargeError": "Increase `max_partition_fetch_bytes` and `fetch_max_bytes`.",
    "BatchTooLargeError": "Increase `decompressed_batch_max_bytes`, or `seek` to `next_offset` to skip the batch.",
    "RecordDeserializationError": "Store `key`, `value` and `headers` as a dead letter, then "
    "`seek(topic_partition, offset + 1)`.",
    "RecordFilterError": "Correct the filter. `seek(topic_partition, offset + 1)` skips the record.",
    "InvalidOffsetError": "Catch it for both of its kinds. `seek` the partitions, or set `auto_offset_reset`.",
    "NoOffsetForPartitionError": "`seek` the partitions, commit an offset for the group, or set `auto_offset_reset` to "
    "`earliest` or `latest`.",
    "OffsetOutOfRangeError": "`seek` to `beginning_offsets` and report the records between as lost, or set "
    "`auto_offset_reset`.",
    "LogTruncationError": "Decide what happens to results of records that were lost. Then `seek` to the divergent "
    "offset.",
    "CommitFailedError": "Do not repeat the commit: the new owner reads the records again. Call `poll` to rejoin. If "
    "it happens often, increase `max_poll_interval_ms` or decrease `max_poll_records`.",
    "TableTooLargeError": "Increase `max_entries` or `max_bytes`, or keep fewer keys in the topic.",
    "WorkerProcessError": "Find out why the process died, for example for lack of memory. `on_failure` decides what "
    "happens to the record that it processed.",
    "UnknownAssignorError": "Correct the name, or install the distribution. `kconsumer assignors list` shows what is "
    "installed.",
    "AssignorLoadError": "Correct the plugin. `kconsumer assignors check NAME` repeats the checks.",
    "AssignorError": "Correct the plugin that the message names. Later polls join again.",
    "BrokerError": "The table of codes has the meaning of its `code`, and the message what it concerns.",
    "RetriableBrokerError": "Repeat the call.",
    "StaleMetadataError": "Repeat the call. If it stays, check that the topic exists and that its partitions have "
    "leaders.",
    "CoordinatorError": "Repeat the call. If it stays, check that the topic `__consumer_offsets` has leaders.",
    "AuthorizationError": "Add an ACL for the operation that the message names.",
    "TopicAuthorizationError": "Add ACLs for Read and Describe on the `topics`.",
    "GroupAuthorizationError": "Add an ACL for Read on the group.",
    "AuthenticationError": "Correct the certificate, the credentials or `sasl_mechanism`. Retries do not help.",
    "UnsupportedVersionError": "Leave out the option that the message names, or upgrade the broker.",
    "InvalidTopicError": "Correct the names in `topics`.",
    "GroupError": "The message has the code and its meaning. Many of them mean that other clients use the group with "
    "other settings.",
    "RebalanceInProgressError": "Call `poll`, then commit what is still assigned.",
    "FencedInstanceIdError": "Give each consumer its own `group_instance_id`, and close this one.",
}


def errors_page(table: Table) -> str:
    """Return the page of all exception classes and error codes."""
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.KafkaError)]
    unknown = {cls.__name__ for cls in classes} ^ set(ADVICE)
    if unknown:
        raise SystemExit(f"docs/reference_pages.py: ADVICE and kconsumer.errors differ: {sorted(unknown)}")
    parts = [ERRORS_HEAD.format(written=WRITTEN.format("kconsumer/errors.py and docs/reference_pages.py"))]
    rows = [(f"[`{cls.__name__}`](#{cls.__name__.lower()})", *_summary(cls)) for cls in classes]
    parts.append("\n## All classes\n\n" + table(("class", "when", "what to do"), rows))
    for title, root in (("Detected by the client", None), ("Sent by a broker", errors.BrokerError)):
        parts.append(f"\n## {title}\n")
        parts += [_error(cls) for cls in classes if issubclass(cls, errors.BrokerError) == (root is not None)]
    codes = [
        (
            str(code),
            f"`{row.name}`",
            f"`{errors.error_class(code).__name__}`",
            "yes" if row.retriable else "",
            row.meaning,
        )
        for code, row in sorted(CODES.items())
    ]
    parts.append("\n## Error codes\n\n" + table(("code", "name", "class", "retriable", "meaning"), codes))
    return "".join(parts)


def _summary(cls: type) -> tuple[str, str]:
    return " ".join(_doc(cls).partition("\n\n")[0].split()), ADVICE[cls.__name__]


def _error(cls: type[errors.KafkaError]) -> str:
    """Return the section of one class."""
    bases = ", ".join(f"`{_name(base)}`" for base in cls.__bases__ if base is not Exception)
    facts = [f"Derives from {bases}."] if bases else []
    facts += ["Retriable."] if cls.retriable else []
    fields = _fields(cls)
    facts += [f"Attributes: {', '.join(f'`{name}`' for name in fields)}."] if fields else []
    lines = [f"\n### {cls.__name__}\n", _doc(cls), " ".join(facts), f"What to do: {ADVICE[cls.__name__]}"]
    return "\n".join(_wrapped(line) for line in lines if line)


def _doc(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "")


def _wrapped(text: str) -> str:
    """Return paragraphs as lines of 120 columns."""
    if text.startswith("\n#"):
        return text
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    wrap = partial(textwrap.fill, width=120, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(wrap(paragraph) for paragraph in paragraphs) + "\n"


def _name(cls: type) -> str:
    return cls.__name__ if cls.__module__.startswith("kconsumer") else f"{cls.__module__}.{cls.__name__}"


def _fields(cls: type[errors.KafkaError]) -> list[str]:
    """Return the attributes that a class adds: those of its constructor, and those that it declares."""
    if "__init__" not in vars(cls):
        return []
    names = [name for name in inspect.signature(cls).parameters if name not in ("message", "args", "kwargs")]
    return names + (["name", "topic_partition", "offset"] if cls is errors.BrokerError else [])


# --- metrics.md ---

METRICS_HEAD = """\
# Metrics

{written}
`Consumer.metrics()` returns a value for each `MetricName`, and a [reporter](monitoring.md) is notified of names that
come and go. Names and groups are those of the Java consumer, so that dashboards for it can be used.
[Operating](../guides/operating.md) says which of them to watch.

- Every metric has the tag `client-id`, the option `client_id`; the tables show the other tags.
- Averages, extremes and rates are taken over `metrics_num_samples` windows of `metrics_sample_window_ms`, by default
  the last 30 to 60 seconds. An average of no values is NaN.
- *only*: the metric exists with this `group_protocol` or engine only. `group_protocol="consumer"` always runs on a
  network thread, which is `engine="threaded"`.
"""


PARALLEL_METRICS = """
## parallel-metrics

Any kind of consumer that has run [`kconsumer.parallel`](../parallel.md) has these, until its next run replaces them.

"""
SHARE_METRICS = """
## Share consumers

A [share consumer](../share.md) has these groups in place of `consumer-coordinator-metrics` and
`consumer-fetch-manager-metrics`. Metrics of connections are the same. Java's metrics of a network thread and its queues
do not exist: a share consumer has no such thread.
"""


def metrics_page(table: Table) -> str:
    """Return the page of all metrics."""
    kinds = {"classic": {}, "threaded": {"engine": "threaded"}, "consumer": {"group_protocol": "consumer"}}
    found: dict[tuple[str, str, tuple[str, ...]], tuple[str, set[str]]] = {}
    for kind, options in kinds.items():
        with Consumer(bootstrap_servers="localhost:9092", group_id="billing", client_id="c", **options) as consumer:
            names = [*consumer.metrics(), *_later_metrics()]
        for name in names:
            tags = tuple(key for key, _value in name.tags if key != "client-id")
            found.setdefault((name.group, name.name, tags), (name.description, set()))[1].add(kind)
    parts = [METRICS_HEAD.format(written=WRITTEN.format("the metrics of consumers"))]
    for group in sorted({group for group, _name, _tags in found}):
        rows = [
            (f"`{name}`", ", ".join(f"`{tag}`" for tag in tags), _only(kinds_of), description)
            for (of_group, name, tags), (description, kinds_of) in sorted(found.items())
            if of_group == group
        ]
        parts.append(f"\n## {group}\n\n" + table(("name", "more tags", "only", "description"), rows))
    return "".join([*parts, _parallel_group(table), SHARE_METRICS, *_share_groups(table)])


def _parallel_group(table: Table) -> str:
    """Return the table of the metrics of a run of `kconsumer.parallel`."""
    with MockConsumer(group_id="billing", client_id="c", enable_auto_commit=False) as consumer:
        consumer.assign([("orders", 0)])
        processor = Processor(consumer, print)
        processor.stop()
        processor.run()
        rows = sorted((f"`{name.name}`", name.description) for name in processor.metrics())
    return PARALLEL_METRICS + table(("name", "description"), rows)


def _share_groups(table: Table) -> Iterable[str]:
    """Yield the tables of the groups that only a ShareConsumer has."""
    with ShareConsumer(bootstrap_servers="localhost:9092", group_id="workers", client_id="c") as consumer:
        names = sorted(consumer.metrics(), key=lambda name: (name.group, name.name))
    for group, metrics in itertools.groupby(names, lambda name: name.group):
        if group.startswith("consumer-share-"):
            rows = [(f"`{name.name}`", name.description) for name in metrics]
            yield f"\n### {group}\n\n" + table(("name", "description"), rows)


def _later_metrics() -> list[MetricName]:
    """Return the metrics that a consumer adds for connections, topics and partitions."""
    metrics, subscription, tp = Metrics(), SubscriptionState(), TopicPartition("orders", 0)
    ConnectionMetrics(metrics)._new_node("1")
    subscription.assign([tp])
    fetching = FetchMetrics(metrics, subscription, lambda: 0)
    fetching.publish_filtered()
    fetching.update_assignment()
    fetching.add_partitions([tp])
    fetching._new_topic(tp.topic)
    return [*metrics.snapshot(0.0)]


def _only(kinds: Collection[str]) -> str:
    if kinds == {"classic", "threaded"}:
        return "`classic`"
    if kinds == {"threaded", "consumer"}:
        return "`threaded`"
    return "" if len(kinds) == 3 else ", ".join(f"`{kind}`" for kind in sorted(kinds))


# --- cli.md ---

CLI_HEAD = """\
# Command line

{written}
`kconsumer COMMAND` or `python -m kconsumer COMMAND`. `--help` after any command prints what is on this page.

| exit code | meaning |
| --- | --- |
| 0 | success |
| 1 | an error, with one line on stderr (`--debug` adds the traceback) |
| 2 | a wrong command line or option |
| 3 | a group lags by more than `--max-lag` |
| 4 | handlers of `kconsumer work` had not returned after `--drain-timeout` |
| 130 | ended by Ctrl-C (SIGINT) |
| 143 | ended by SIGTERM |
"""


def cli_page(table: Table) -> str:
    """Return the page of all commands and their arguments."""
    commands = list(_commands("kconsumer", build_parser()))
    rows_of = {words: [_argument(action) for action in _arguments(parser)] for words, parser in commands}
    count = Counter(row for rows in rows_of.values() for row in rows)
    common = [row for row, times in count.items() if times > len(commands) / 2]
    parts = [CLI_HEAD.format(written=WRITTEN.format("the parsers in kconsumer/cli/"))]
    parts.append(f"\n## Arguments of most commands\n\n{table(('argument', 'meaning'), common)}")
    for words, parser in commands:
        parts.append(f"\n## {words}\n\n{_paragraph(parser.description)}\n")
        rows = rows_of[words]
        own = [row for row in rows if row not in common]
        if own:
            parts.append("\n" + table(("argument", "meaning"), own))
        names = ", ".join(row[0].partition(",")[0] for row in common if row in rows)
        parts.append(f"\n{_wrapped(f'Also: {names}.')}")
        if parser.epilog:
            parts.append(_paragraphs(parser.epilog))
    return "".join(parts)


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest not in ("help", "version")]


def _commands(words: str, parser: argparse.ArgumentParser) -> Iterable[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands that have no commands of their own, with their words."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for action in inner:
        for name, command in action.choices.items():
            yield from _commands(f"{words} {name}", command)


def _argument(action: argparse.Action) -> tuple[str, str]:
    """Return the row of an argument."""
    takes = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else f" {takes}"
    names = [f"`{name}{value}`" for name in action.option_strings] or [f"`{takes}`"]
    return ", ".join(names), _escaped((action.help or "").replace("%%", "%"))


def _paragraphs(text: str) -> str:
    """Return the paragraphs of an epilog. Indented lines, which are examples, become a block."""
    parts = []
    for part in text.split("\n\n"):
        lines = part.split("\n")
        examples = [line.strip() for line in lines if line.startswith(" ")]
        parts.append(f"\n{_paragraph(' '.join(line for line in lines if not line.startswith(' ')))}\n")
        if examples:
            parts.append("\n```text\n" + "\n".join(examples) + "\n```\n")
    return "".join(parts)


def _paragraph(text: str | None) -> str:
    return _wrapped(_escaped(" ".join((text or "").split()))).strip()


def _escaped(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    return re.sub(r"([\\<>*_])", r"\\\1", text)


# --- wire-versions.md ---

WIRE_HEAD = """\
# Versions of the protocol

{written}
The requests that kconsumer sends, with the versions that it supports. For each connection it uses the highest version
that the broker supports, too (KIP-35); the last columns show it for three releases. From *tagged fields* on, a request
has compact lengths and tagged fields (KIP-482). Brokers of Kafka 2.1 to 4.4 are supported.
"""
SHOWN = ("2.1", "3.9", "4.4")


def wire_page(table: Table) -> str:
    """Return the page of API keys and versions."""
    rows = []
    for key, api in sorted(APIS.items()):
        used = []
        for release in SHOWN:
            theirs = versions_of(release).get(key)
            used.append("" if theirs is None else f"v{theirs.last}")
        flexible = "" if api.flexible_from is None else f"v{api.flexible_from}"
        rows.append((str(key), api.name, f"v{api.min_version} to v{api.max_version}", flexible, *used))
    headings = ("key", "request", "supported", "tagged fields", *(f"Kafka {release}" for release in SHOWN))
    assert SHOWN[0] == RELEASES[0]
    assert SHOWN[-1] == RELEASES[-1]
    return WIRE_HEAD.format(written=WRITTEN.format("kconsumer/schema/")) + "\n" + table(headings, rows)


# --- kips.md ---

KIPS_HEAD = """\
# KIPs

{written}
The Kafka Improvement Proposals that concern a consumer, and how kconsumer supports them. *Brokers*: the first release
of Kafka whose brokers are needed for it; empty if any supported broker (2.1 and newer) will do, or if it concerns the
client alone. What is supported is so since version 0.1.0; **not supported** marks the rest.
"""

#: Number, what it is, how kconsumer supports it, and since when brokers do.
KIPS: list[tuple[int, str, str, str]] = [
    (12, "TLS and Kerberos", "`security_protocol`; [Kerberos](../security.md#kerberos)", ""),
    (
        35,
        "version negotiation",
        "ApiVersions is the first request of each connection; [versions](wire-versions.md)",
        "",
    ),
    (42, "interceptors", "`interceptors`", ""),
    (54, "sticky assignor", "`sticky`", ""),
    (62, "heartbeats in the background", "`max_poll_interval_ms`, `session_timeout_ms`", ""),
    (74, "limit of a response's size", "`fetch_max_bytes`", ""),
    (79, "offsets by time", "`offsets_for_times`", ""),
    (82, "record headers", "`ConsumerRecord.headers`", ""),
    (84, "SCRAM", "`sasl_mechanism`", ""),
    (98, "transactions", '`isolation_level="read_committed"`', ""),
    (110, "zstd", "records compressed by zstd are read", ""),
    (152, "errors of SASL", "`AuthenticationError` has the broker's message", ""),
    (219, "throttling by the client", "the client waits for the throttle time that a broker returns", ""),
    (227, "fetch sessions", "requests name only partitions that changed", ""),
    (255, "OAUTHBEARER", "`sasl_oauth_token_provider`", ""),
    (266, "timeouts of calls", "`timeout` of each method, `default_api_timeout_ms`", ""),
    (302, "all addresses of a name", "`client_dns_lookup`", ""),
    (320, "detection of log truncation", "`LogTruncationError`; positions are validated after each leader change", ""),
    (345, "static membership", "`group_instance_id`", "2.3"),
    (368, "re-authentication", "before a session ends, over the same connection", "2.2"),
    (392, "fetching from the nearest replica", "`client_rack`", "2.4"),
    (394, "member id before the first join", "the member joins again with the id that it gets", "2.2"),
    (405, "tiered storage", "records in remote storage are fetched", "3.6"),
    (429, "cooperative rebalances", "`cooperative-sticky`, `RebalanceProtocol`", ""),
    (430, "authorized operations", "not requested", ""),
    (447, "group metadata for producers", "`group_metadata()`; stable offsets are required", "2.5"),
    (482, "tagged fields", "all requests that have them", "2.4"),
    (511, "name of the client software", "sent with ApiVersions", "2.4"),
    (
        516,
        "topic ids",
        "in Metadata (2.8), Fetch (3.1), OffsetCommit and OffsetFetch (4.2); re-created topics are recognized",
        "2.8",
    ),
    (518, "states of groups", "`kconsumer.groups.list`", "2.6"),
    (568, "rebalance on request", "`enforce_rebalance`", ""),
    (580, "exponential backoff", "`retry_backoff_max_ms`", ""),
    (584, "features of brokers", "read in ApiVersions", "2.7"),
    (595, "diverging epochs in fetches", "truncation is found by a fetch", "2.7"),
    (601, "timeout of a connection attempt", "`socket_connection_setup_timeout_ms`", ""),
    (651, "PEM certificates as text", "`ssl_keystore_key`, `ssl_truststore_certificates`", ""),
    (699, "coordinators of several groups", "FindCoordinator v4", "3.0"),
    (709, "offsets of several groups", "OffsetFetch v8", "3.0"),
    (714, "telemetry", "`enable_metrics_push`, `client_instance_id()`; [telemetry](../guides/telemetry.md)", "3.7"),
    (734, "offset of the largest timestamp", "**not supported**: `offsets_for_times` takes times only", ""),
    (735, "session timeout of 45 s", "the default of `session_timeout_ms`", ""),
    (768, "OAuth token endpoints", "`sasl_oauthbearer_token_endpoint_url`", ""),
    (792, "generation of owned partitions", "sticky assignors ignore outdated ownership", ""),
    (800, "reasons for joining and leaving", "shown in the coordinator's log", "3.2"),
    (814, "static leaders that return", "the leader keeps the current assignment", "3.2"),
    (848, "the consumer group protocol", '`group_protocol="consumer"`, `SubscriptionPattern`', "4.0"),
    (853, "directories of replicas", "for followers; a consumer sends the default", ""),
    (877, "metrics of plugins", "**not supported**: deserializers, interceptors and assignors register none", ""),
    (881, "rack-aware assignment", "`range` and the sticky assignors; `Subscription.rack_id`", ""),
    (896, "oldest versions of the protocol", "as in Java 4: those of Kafka 2.1; [versions](wire-versions.md)", ""),
    (899, "rebootstrapping", "`metadata_recovery_strategy`", ""),
    (903, "replica state in fetches", "for followers; a consumer sends the default", ""),
    (909, "retries of unresolved bootstrap names", "`bootstrap_resolve_timeout_ms`, BootstrapResolutionError", ""),
    (932, "share groups", "`ShareConsumer`; described by `kconsumer.groups`; offsets, too", "4.2"),
    (951, "leaders in fetch responses", "a new leader is used at once", "3.7"),
    (1005, "first local and last remote offset", "**not supported**: `offsets_for_times` takes times only", ""),
    (1023, "first offset that is not remote yet", "**not supported**: `offsets_for_times` takes times only", ""),
    (1025, "encoded client credentials of OAuth", "`sasl_oauthbearer_header_urlencode`", ""),
    (1036, "deserialization errors with the record", "`RecordDeserializationError`", ""),
    (1043, "types of groups", "`kconsumer.groups.list` and `describe`", "4.0"),
    (1068, "metrics of the network thread", "[metrics](metrics.md#consumer-metrics)", ""),
    (1075, "timeout of lookups in remote storage", "lookups of offsets send `request_timeout_ms`", "4.0"),
    (1076, "metrics of applications in telemetry", "**not supported**: [telemetry](../guides/telemetry.md)", ""),
    (1082, "member ids made by the client", "with the consumer protocol", "4.0"),
    (1092, "leave the group or stay when closing", "`close(leave_group=…)`", ""),
    (1094, "next offsets of a batch", "`ConsumerRecords.next_offsets`", ""),
    (1099, "type of a member", "members of the classic protocol in a consumer group", "4.0"),
    (
        1101,
        "rebalances when racks change",
        "brokers do it with the consumer protocol; the leader of a classic group, if it has a `client_rack`",
        "4.0",
    ),
    (1102, "rebootstrapping on demand", "`metadata_recovery_rebootstrap_trigger_ms`", "4.0"),
    (1106, "reset by duration", '`auto_offset_reset="by_duration:PT1H"`', ""),
    (1109, "dots in tags of metrics", "topics with dots have both forms of the tag", ""),
    (1120, "client id of `app-info`", "a tag; the older form without it does not exist", ""),
    (1124, "brokers that clients of 4.x support", "as in Java: Kafka 2.1 and newer", ""),
    (1139, "OAuth by signed assertions (jwt-bearer)", "**not supported**: use `sasl_oauth_token_provider`", ""),
    (
        1161,
        "values of list options",
        "empty lists are refused; brokers named twice cause a warning, assignors an error",
        "",
    ),
    (1166, "high watermark in fetches", "for followers; a consumer sends the default", ""),
    (
        1191,
        "dead-letter topics of share groups",
        "the broker writes them; nothing has to be set here. `FakeCluster` has none",
        "4.4",
    ),
    (1205, "headers that any thread may read", "`ConsumerRecord.headers` is a tuple of immutable values", ""),
    (1206, "strict limit of the records of a share fetch", "`share_acquire_mode`", "4.2"),
    (1222, "renewal of acquisition locks", "`AcknowledgeType.RENEW`", "4.2"),
    (1226, "lag of share groups", "`kconsumer.groups.offsets`", "4.2"),
    (1227, "racks of members", "`GroupMember.rack_id` of `kconsumer.groups.describe`", "4.0"),
    (1240, "more configurations of share groups", "[share groups](../share.md#configuration-of-the-group)", "4.3"),
    (1242, "check of cluster and node ids", "`metadata_cluster_check_enable`", "4.4"),
    (
        1251,
        "epochs of assigned partitions",
        "the brokers accept commits of an older epoch; nothing is needed here",
        "4.3",
    ),
    (1258, "OAuth client assertions", "**not supported**: use `sasl_oauth_token_provider`", ""),
    (
        1327,
        "reset of new partitions",
        "`auto_offset_reset_new_partitions`: [new partitions](../guides/committing.md#new-partitions)",
        "",
    ),
]


def kips_page(table: Table) -> str:
    """Return the page of KIPs."""
    rows = [(f"KIP-{number}", what, how, since) for number, what, how, since in KIPS]
    head = KIPS_HEAD.format(written=WRITTEN.format("the table in docs/reference_pages.py"))
    return head + "\n" + table(("KIP", "what", "in kconsumer", "brokers"), rows)


def reference_pages(table: Table) -> dict[str, str]:
    """Return the text of each generated page by its name. `table` makes a table in Markdown."""
    return {
        "errors.md": errors_page(table),
        "metrics.md": metrics_page(table),
        "cli.md": cli_page(table),
        "wire-versions.md": wire_page(table),
        "kips.md": kips_page(table),
    }
