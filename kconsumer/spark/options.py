"""The options of the source in one table, and their checked, immutable values.

Names and meanings are those of Spark's own `kafka` source, except for rows marked `own`, which are additions. Values
are checked without a request to a broker; `ConsumerConfig` checks the `kafka.*` keys. Does not need pyspark.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kconsumer.config.options import OPTIONS as CLIENT_OPTIONS
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError
from kconsumer.spark import offsets
from kconsumer.spark.dead_letters import folder
from kconsumer.spark.formats import FORMATS, REGISTRY_PREFIXES, value_format
from kconsumer.spark.offsets import EARLIEST, LATEST, Limit, Named, Specific, Timestamp, Timestamps
from kconsumer.spark.strategy import Assign, Strategy, Subscribe, SubscribePattern
from kconsumer.types import TopicPartition

__all__ = ["OPTIONS", "Mode", "SourceConfig", "SourceOption", "parse"]

Mode = Literal["batch", "stream", "any"]  # any: not known yet; only errors that apply to both modes are raised
log = logging.getLogger(__name__)


class SourceOption(NamedTuple):
    """An option of the source. The table ROWS contains all options."""

    name: str  # as users write it
    read: Callable[[str, str], Any]  # (name, text) -> value; raises ConfigError
    default: Any
    mode: Literal["both", "batch", "stream"]  # the kind of queries in which the option has an effect
    meaning: str  # for the documentation
    own: bool = False  # not an option of Spark's own source
    takes: str = ""  # the allowed values, for the documentation


def _not_allowed(name: str, text: str, takes: str) -> ConfigError:
    return ConfigError(f"option {name}={text!r} is not allowed: it takes {takes}")


def _text(name: str, text: str) -> str:
    if not text.strip():
        raise _not_allowed(name, text, "text that is not empty")
    return text


def _boolean(name: str, text: str) -> bool:
    # As strict as Scala's toBoolean, which rejects "1" and "yes".
    if text.lower() not in ("true", "false"):
        raise _not_allowed(name, text, "true or false")
    return text.lower() == "true"


def _at_least(minimum: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
            raise _not_allowed(name, text, "a whole number")
        if int(text) < minimum:
            raise ConfigError(f"{name} must be {'positive' if minimum == 1 else f'at least {minimum}'}, not {text}")
        return int(text)

    return read


def _timestamp(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ConfigError(f"Expected a single long value (milliseconds since 1970) for {name}, got {text!r}")
    return int(text)


UNITS_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1}


def _duration(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(-?[0-9]+)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in UNITS_MS:
        raise _not_allowed(name, text, "a time such as 500ms, 30s, 15m, 1h, 2d")
    return int(int(match[1]) * UNITS_MS[match[2]])


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.strip().lower() not in words:
            raise _not_allowed(name, text, "one of " + ", ".join(words))
        return text.strip().lower()

    return read


def _names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise _not_allowed(name, text, "names separated by commas")
    return found


def _offset_limit(name: str, text: str) -> Limit:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Named(EARLIEST if word == "earliest" else LATEST)
    return Specific(offsets.parse_offsets(name, text))


def _times(name: str, text: str) -> dict[TopicPartition, int]:
    return offsets.parse_timestamps(name, text)


POSITIVE, DIGITS = "a whole number above 0", "a whole number"
BOOLEAN = "true, false"

# fmt: off
ROWS = (
    SourceOption("subscribe", lambda _, text: text, None, "both",
                 "Topics to read, separated by commas.", takes="topic,topic"),
    SourceOption("subscribePattern", lambda _, text: text, None, "both",
                 "Topics whose name contains a match of this regular expression, without Kafka's internal topics.",
                 takes="a regular expression"),
    SourceOption("assign", lambda _, text: text, None, "both",
                 "Partitions to read.", takes='{"topic":[0,1]}'),
    SourceOption("startingTimestamp", _timestamp, None, "both",
                 "Start at the first record with this timestamp (ms) or a later one; overrides the next two options.",
                 takes="ms"),
    SourceOption("startingOffsetsByTimestamp", _times, None, "both",
                 "The same for each partition. It must name every partition. It overrides the next option.",
                 takes='{"topic":{"0":ms}}'),
    SourceOption("startingOffsets", _offset_limit, None, "both",
                 "Where to start. Default: latest in a stream, earliest in a batch. In JSON -2 is earliest, "
                 "-1 latest. A stream with a checkpoint continues from its offsets.",
                 takes='earliest, latest, {"topic":{"0":23}}'),
    SourceOption("startingOffsetsByTimestampStrategy", _one_of("error", "latest"), "error", "both",
                 "What to do in a partition without a record of the starting timestamp or later.",
                 takes="error, latest"),
    SourceOption("endingTimestamp", _timestamp, None, "batch",
                 "End before the first record with this timestamp (ms) or a later one; overrides the next two options.",
                 takes="ms"),
    SourceOption("endingOffsetsByTimestamp", _times, None, "batch",
                 "The same for each partition. It must name every partition. It overrides the next option.",
                 takes='{"topic":{"0":ms}}'),
    SourceOption("endingOffsets", _offset_limit, None, "batch",
                 "Where to end, exclusive. Default: latest.", takes='latest, {"topic":{"0":23}}'),
    SourceOption("failOnDataLoss", _boolean, True, "both",
                 "Fail if records may have been lost: deleted before they were read, or with their topic or partition.",
                 takes=BOOLEAN),
    SourceOption("includeHeaders", _boolean, False, "both", "Add the column `headers`.", takes=BOOLEAN),
    SourceOption("minPartitions", _at_least(1), None, "both",
                 "Split large partitions until there are about this many tasks.", takes=POSITIVE),
    SourceOption("maxRecordsPerPartition", _at_least(1), None, "both",
                 "Split partitions with more offsets than this into several tasks.", takes=POSITIVE),
    SourceOption("maxOffsetsPerTrigger", _at_least(1), None, "stream",
                 "Maximum number of offsets in a micro-batch, in proportion to the new offsets of each partition.",
                 takes=POSITIVE),
    SourceOption("minOffsetsPerTrigger", _at_least(0), None, "stream",
                 "Wait for this many new offsets before a micro-batch.", takes=DIGITS),
    SourceOption("maxTriggerDelay", _duration, 15 * 60_000, "stream",
                 "Maximum time to wait for minOffsetsPerTrigger.", takes="500ms, 30s, 15m, 1h"),
    SourceOption("kafkaConsumer.pollTimeoutMs", _at_least(1), 120_000, "both",
                 "How long a task waits for records before it fails.", takes="ms"),
    SourceOption("fetchOffset.numRetries", _at_least(0), 3, "both",
                 "Number of attempts of each request of the driver.", takes=DIGITS),
    SourceOption("fetchOffset.retryIntervalMs", _at_least(0), 1000, "both",
                 "Pause between these attempts.", takes="ms"),
    SourceOption("groupIdPrefix", _text, None, "both",
                 "Prefix of the generated client id. The source creates no consumer group.", takes="text"),
    # --- additions to Spark's own source ---
    SourceOption("columns", _names, None, "both",
                 "Read only these columns, in this order; others are not decoded. `.schema(...)` does the same.",
                 True, "name,name"),
    SourceOption("headers", _one_of("array", "map"), "array", "both",
                 "Form of the column `headers`: an array of structs, or a map in which the last value of a key wins.",
                 True, "array, map"),
    SourceOption("valueFormat", _one_of(*FORMATS), "raw", "both",
                 "Format of the values. `string`: key and value are UTF-8 text; json, avro and protobuf: `value` has "
                 "the type of valueSchema. A value that does not match is corrupt (see onCorrupt).",
                 True, ", ".join(FORMATS)),
    SourceOption("valueSchema", _text, None, "both",
                 "Schema of the values. For json a type in Spark's DDL or JSON, for avro an Avro schema, for protobuf "
                 "the path of a file with a FileDescriptorSet, which is read where the query is planned.", True,
                 "id long, tags array<string>"),
    SourceOption("valueMessage", _text, None, "both",
                 "Full name of the message, for protobuf.", True, "package.Message"),
    SourceOption("valueFraming", _one_of("none", "confluent"), None, "both",
                 "`confluent`: the id of a schema is before each value, or in the header `__value_schema_id`, as "
                 "Confluent's serializers write it. Default: confluent with valueRegistry, otherwise none.",
                 True, "none, confluent"),
    SourceOption("valueRegistry", _text, None, "both",
                 "Address of a schema registry with the schemas of the ids. Avro values are converted to valueSchema; "
                 "JSON is validated; protobuf messages must be valueMessage. For avro and protobuf, valueSchema may be "
                 "omitted: it is then the latest schema of the subject `TOPIC-value`, or of `valueRegistry.subject`. "
                 "Other options of the registry's client have this prefix, too, such as "
                 "`valueRegistry.basic.auth.user.info`; a secret may be `env:NAME` or `file:PATH`.",
                 True, "http://host:8081"),
    SourceOption("keyFormat", _one_of(*FORMATS), None, "both",
                 "Format of the keys. Default: string if valueFormat is string, otherwise raw.", True,
                 ", ".join(FORMATS)),
    SourceOption("keySchema", _text, None, "both", "As valueSchema.", True, "id long"),
    SourceOption("keyMessage", _text, None, "both", "As valueMessage.", True, "package.Message"),
    SourceOption("keyFraming", _one_of("none", "confluent"), None, "both",
                 "As valueFraming; the header is `__key_schema_id`.", True, "none, confluent"),
    SourceOption("keyRegistry", _text, None, "both",
                 "As valueRegistry, with the prefix `keyRegistry.` for other options.", True, "http://host:8081"),
    SourceOption("maxBytesPerTrigger", _at_least(1), None, "stream",
                 "Maximum bytes of keys and values in a micro-batch, estimated from a sample of each partition.",
                 True, POSITIVE),
    SourceOption("planner", _text, "spark", "both",
                 "How partitions are split into tasks: spark (as Spark's own source does), even, bytes, or a plugin.",
                 True, "a name"),
    SourceOption("onDataLoss", _one_of("fail", "warn", "deadletter"), None, "both",
                 "Replaces failOnDataLoss: fail, log a warning, or also write the lost offsets to deadLetterPath.",
                 True, "fail, warn, deadletter"),
    SourceOption("onCorrupt", _one_of("fail", "skip", "deadletter"), "fail", "both",
                 "What to do with a batch that fails its CRC or cannot be decoded, or a value that does not match its "
                 "valueFormat: fail, skip and count it, or also write it to deadLetterPath.",
                 True, "fail, skip, deadletter"),
    SourceOption("onBadTimestamp", _one_of("fail", "clamp", "null"), "fail", "both",
                 "What to do with a timestamp that Spark cannot represent, after the year 294247: fail, as Spark's own "
                 "source does, use the last timestamp that Spark has, or null.", True, "fail, clamp, null"),
    SourceOption("deadLetterPath", _text, None, "both",
                 "Folder for dead letters, reachable by every executor.", True, "a path"),
    SourceOption("commitGroupId", _text, None, "stream",
                 "Commit the offsets of finished micro-batches to this group, for lag tools. It must have no members.",
                 True, "a group id"),
    SourceOption("timestampOrder", _one_of("any", "monotonic"), "any", "batch",
                 "`monotonic`: timestamps never decrease in a partition, so reading ends at the upper bound of a "
                 "filter.", True, "any, monotonic"),
    SourceOption("batchRows", _at_least(1), 20_000, "both", "Maximum rows of an Arrow batch.", True, POSITIVE),
    SourceOption("batchBytes", _at_least(1), 4 << 20, "both", "Approximate maximum bytes of an Arrow batch.",
                 True, POSITIVE),
)
# fmt: on

OPTIONS: dict[str, SourceOption] = {row.name.lower(): row for row in ROWS}
STRATEGIES = ("subscribe", "subscribepattern", "assign")

REJECTED = {
    "auto.offset.reset": "set the source option 'startingOffsets' to 'earliest' or 'latest' instead; Spark's"
    " checkpoint, not Kafka, stores the offsets of a stream",
    "key.deserializer": "keys are read as bytes; use DataFrame operations, or valueFormat, to decode them",
    "value.deserializer": "values are read as bytes; use DataFrame operations, or valueFormat, to decode them",
    "enable.auto.commit": "the source commits no offsets by itself; see commitGroupId",
    "interceptor.classes": "the source always reads keys and values as bytes",
}
NO_EFFECT = {"max.poll.records", "receive.buffer.bytes", "group.id", "partition.assignment.strategy"}
IGNORED_IN_BATCH = ("minoffsetspertrigger", "maxtriggerdelay", "maxoffsetspertrigger", "maxbytespertrigger")


@dataclass(frozen=True)
class SourceConfig:
    """The checked options of a query. The driver pickles them for the executors."""

    strategy: Strategy  # the topics or partitions to read
    starting: Limit  # where the query starts
    ending: Limit  # where a batch query ends
    starting_strategy: str  # startingOffsetsByTimestampStrategy
    kafka: Mapping[str, str]  # the options `kafka.*`: name without the prefix -> value
    values: Mapping[str, Any]  # all other options: name in lower case -> value or default

    def __repr__(self) -> str:
        """Returns a text without the values of options that may be secret."""
        kafka = {key: _shown(key, value) for key, value in self.kafka.items()}
        return f"SourceConfig({self.strategy!r}, {self.starting!r}, {self.ending!r}, kafka={kafka!r})"

    def __getitem__(self, name: str) -> Any:
        """Returns the value or the default of an option. Upper and lower case in its name do not matter."""
        return self.values[name.lower()]

    @property
    def on_data_loss(self) -> str:
        """The reaction to lost records: `fail`, `warn` or `deadletter`."""
        given: str | None = self["onDataLoss"]
        return given or ("fail" if self["failOnDataLoss"] else "warn")

    @property
    def fails_on_data_loss(self) -> bool:
        """True if lost records fail the query."""
        return self.on_data_loss == "fail"

    def client_options(self) -> dict[str, Any]:
        """Returns the options `kafka.*` for a `RangeClient`, by name in snake_case.

        Omits options that have no effect in a query (NO_EFFECT).
        """
        options: dict[str, Any] = {key.replace(".", "_"): value for key, value in self.kafka.items()}
        options.setdefault("allow_auto_create_topics", False)
        return {name: value for name, value in options.items() if name not in {k.replace(".", "_") for k in NO_EFFECT}}


def _shown(key: str, value: str) -> str:
    row = CLIENT_OPTIONS.get(key.replace(".", "_"))
    return value if row is not None and not row.secret else "<hidden>"


def parse(options: Mapping[str, Any], mode: Mode) -> SourceConfig:
    """Parse and check the options of a query, without a request to a broker.

    Raises ConfigError for a wrong value or combination of options. Its message says what to change.
    """
    given = {str(key).lower(): str(value) for key, value in options.items() if value is not None}
    kafka = {key[len("kafka.") :]: value for key, value in given.items() if key.startswith("kafka.")}
    own = {key: value for key, value in given.items() if not key.startswith("kafka.")}
    strategy = _strategy(own)
    _check_kafka(kafka)
    values = {key: row.default for key, row in OPTIONS.items()}
    if mode == "stream":
        _reject_endings(own)
    for key, text in own.items():
        if key in OPTIONS and not (mode == "batch" and key in IGNORED_IN_BATCH):
            values[key] = OPTIONS[key].read(OPTIONS[key].name, text)
        elif key.startswith(REGISTRY_PREFIXES):
            values[key] = text
    _check_together(values, own, mode)
    if mode != "any":
        _warn(own, kafka, mode)
    starting = _limit(values, "starting", LATEST if mode == "stream" else EARLIEST)
    ending = _limit(values, "ending", LATEST)
    if mode == "batch":
        _check_batch(starting, ending)
    return SourceConfig(strategy, starting, ending, values["startingoffsetsbytimestampstrategy"], kafka, values)


def _strategy(own: Mapping[str, str]) -> Strategy:
    chosen = [key for key in STRATEGIES if key in own]
    names = ", ".join(OPTIONS[key].name for key in STRATEGIES)
    if not chosen:
        raise ConfigError(f"One of the following options must be specified for Kafka source: {names}")
    if len(chosen) > 1:
        raise ConfigError(f"Only one of the following options can be specified for Kafka source: {names}")
    (key,), text = chosen, own[chosen[0]]
    if key == "assign":
        if not text.strip().startswith("{"):
            raise ConfigError(f"No topicpartitions to assign as specified value for option 'assign' is {text!r}")
        return Assign(offsets.parse_partitions("assign", text))
    if key == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise ConfigError(f"No topics to subscribe to as specified value for option 'subscribe' is {text!r}")
        return Subscribe(topics)
    if not text.strip():
        raise ConfigError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is {text!r}")
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"option subscribePattern={text!r} is not a regular expression: {error}") from None
    return SubscribePattern(text)


def _check_kafka(kafka: Mapping[str, str]) -> None:
    for key, hint in REJECTED.items():
        if key in kafka:
            raise ConfigError(f"Kafka option '{key}' is not supported: {hint}")
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
    try:
        ConsumerConfig.from_mapping({key: value for key, value in kafka.items() if key != "group.id"})
    except ConfigError as error:
        raise ConfigError(f"in the options that start with 'kafka.': {error}") from None


def _reject_endings(own: Mapping[str, str]) -> None:
    if "endingoffsets" in own:
        raise ConfigError("ending offset not valid in streaming queries: omit endingOffsets")
    for key in ("endingoffsetsbytimestamp", "endingtimestamp"):
        if key in own:
            raise ConfigError(f"ending timestamp not valid in streaming queries: omit {OPTIONS[key].name}")


def _check_together(values: Mapping[str, Any], own: Mapping[str, str], mode: Mode) -> None:
    minimum, maximum = values["minoffsetspertrigger"], values["maxoffsetspertrigger"]
    if mode == "stream" and minimum is not None and maximum is not None and minimum > maximum:
        raise ConfigError(
            f"The value of minOffsetPerTrigger({minimum}) is higher than the maxOffsetsPerTrigger({maximum});"
            " lower minOffsetsPerTrigger"
        )
    if "failondataloss" in own and values["ondataloss"] is not None:
        raise ConfigError("failOnDataLoss and onDataLoss set the same thing: give one of them")
    for column in ("key", "value"):
        value_format(values, column)
    if values["deadletterpath"] is not None:
        folder(values["deadletterpath"])
    policies = [key for key in ("ondataloss", "oncorrupt") if values[key] == "deadletter"]
    if policies and values["deadletterpath"] is None:
        raise ConfigError(f"{OPTIONS[policies[0]].name}=deadletter needs deadLetterPath, the folder to write to")


def _limit(values: Mapping[str, Any], side: str, default: int) -> Limit:
    """Returns the limit at which the query starts or ends, or `default` if no option sets it. `side`: starting or
    ending.

    If several options set it, startingTimestamp has priority over startingOffsetsByTimestamp, and this over
    startingOffsets, as in Spark's source. The same holds for the options that begin with `ending`.
    """
    if values[f"{side}timestamp"] is not None:
        return Timestamp(values[f"{side}timestamp"])
    if values[f"{side}offsetsbytimestamp"] is not None:
        return Timestamps(values[f"{side}offsetsbytimestamp"])
    given: Limit | None = values[f"{side}offsets"]
    return Named(default) if given is None else given


def _check_batch(starting: Limit, ending: Limit) -> None:
    if starting == Named(LATEST):
        raise ConfigError("starting offset can't be latest for batch queries on Kafka")
    if ending == Named(EARLIEST):
        raise ConfigError("ending offset can't be earliest for batch queries on Kafka")
    for limit, wrong, text in ((starting, LATEST, "starting offset"), (ending, EARLIEST, "ending offset")):
        for tp, offset in limit.offsets.items() if isinstance(limit, Specific) else ():
            if offset == wrong:
                word = "latest" if wrong == LATEST else "earliest"
                raise ConfigError(f"{text} for {tp} can't be {word} for batch queries on Kafka")
    if isinstance(starting, Specific) and isinstance(ending, Specific):
        _check_order("offset", starting.offsets, ending.offsets)
    if isinstance(starting, Timestamps) and isinstance(ending, Timestamps):
        _check_order("timestamp", starting.ms, ending.ms)


def _check_order(kind: str, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
    """Raise ConfigError if a partition starts beyond its end.

    A limit that is EARLIEST or LATEST is not compared here, but in `batch_plan.py`, when its offset is known.
    """
    for tp in sorted(start.keys() & end.keys()):
        if 0 <= end[tp] < start[tp]:
            raise ConfigError(
                f"[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The specified start {kind} {start[tp]} is greater"
                f" than the end {kind} {end[tp]} for topic {tp.topic} partition {tp.partition}"
            )


def _warn(own: Mapping[str, str], kafka: Mapping[str, str], mode: Mode) -> None:
    if mode == "batch":
        for key in IGNORED_IN_BATCH:
            if key in own:
                log.warning("option %s has no effect in batch queries", OPTIONS[key].name)
    if "group.id" in kafka:
        log.warning(
            "kafka.group.id=%s has no effect: this source uses no consumer group; see commitGroupId", kafka["group.id"]
        )
        if "groupidprefix" in own:
            log.warning("groupIdPrefix has no effect together with kafka.group.id")
    for key in own:
        if key not in OPTIONS and key != "path" and not key.startswith(REGISTRY_PREFIXES):
            log.warning("unknown option %s is ignored", key)
