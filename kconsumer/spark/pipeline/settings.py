"""The keys of a pipeline's file in one table, and their checked, immutable values.

Each section of the file has a class here. Every error names the key. Needs neither Spark nor a broker: `frames.py`
checks SQL expressions when it builds the plan, `checks.py` checks that topics exist.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from kconsumer.errors import ConfigError
from kconsumer.formats.column_types import parse_type
from kconsumer.spark import options

__all__ = [
    "DELETED",
    "KEYS",
    "Aggregate",
    "DeadLetters",
    "Decode",
    "Key",
    "PipelineConfig",
    "Run",
    "Sink",
    "check_places",
    "comparable",
    "load",
    "parse",
    "places",
    "quoted",
]

Text = Mapping[str, str]

# Columns of rows that the pipeline adds to the decoded fields. A field cannot have these names.
METADATA = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key")
EVENT_TIME = "event_time"
INTERNAL = "_kconsumer_"  # the beginning of the names of columns that are not written; a field cannot have it either
DELETED = f"{INTERNAL}deleted"  # 1 for rows that an upsert deletes, 0 for those that it writes
DERIVED = ("date", "hour")
HEADERS = "kafka_headers"  # the column of all headers
BINARY = ("avro", "protobuf")  # formats that only the source decodes
# Options of the source that users cannot set, because the pipeline decides which columns it reads, and how.
RESERVED_SOURCE_OPTIONS = ("columns", "valueformat", "valueschema", "headers", "includeheaders")
RECORDS_PER_TRIGGER = 1_000_000  # the default of maxOffsetsPerTrigger


@dataclass(frozen=True)
class Decode:
    """The section `decode`: how values are decoded, and which rows are valid."""

    format: str
    schema: str | None  # DDL
    required: tuple[str, ...]  # fields that must not be null
    rules: Text  # name of a rule -> SQL expression that must be true
    event_time: str  # SQL expression
    metadata: tuple[str, ...]  # the columns of METADATA that valid rows contain
    on_invalid: str
    parser: str = "spark"  # of JSON
    message: str | None = None  # the full name of the message, for protobuf
    registry: Text = field(default_factory=dict)  # options of the client of a schema registry
    headers: Text = field(default_factory=dict)  # name of a column -> name of a header; "" for all headers

    @property
    def in_source(self) -> bool:
        """True if the source decodes the values, and not Spark."""
        return self.format in BINARY or (self.format == "json" and self.parser == "kconsumer")

    @property
    def source_options(self) -> Text:
        """The options of the source with which it decodes the values."""
        given = {"valueFormat": self.format, "valueSchema": self.schema, "valueMessage": self.message}
        given |= {"valueRegistry" + (f".{name}" if name != "url" else ""): text for name, text in self.registry.items()}
        return {name: text for name, text in given.items() if text is not None}


@dataclass(frozen=True)
class DeadLetters:
    """The section `dead_letters`: the output for invalid records."""

    path: str | None


@dataclass(frozen=True)
class Sink:
    """An output: a folder of files or a table. The section `sink` describes the output for valid rows."""

    format: str
    path: str | None
    table: str | None
    partition_by: tuple[str, ...]
    max_records_per_file: int  # 0: no maximum
    files: int | None  # maximum number of tasks that write a micro-batch
    options: Text  # of Spark's writer
    url: str | None = None  # of the database
    mode: str = "append"
    key: tuple[str, ...] = ()  # the columns that identify a row, for upserts

    @property
    def place(self) -> str:
        """The path or the name of the table, for messages."""
        return self.path or self.table or "the terminal"


@dataclass(frozen=True)
class Aggregate:
    """The section `aggregate`: an output for aggregates of time windows, in addition to the output for rows."""

    window: str
    slide: str | None
    watermark: str
    by: tuple[str, ...]
    columns: Text  # name -> SQL expression
    path: str | None
    table: str | None
    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """The section `run`: how the queries are run and reported."""

    name: str
    checkpoint: str
    trigger: str  # AVAILABLE_NOW or an interval
    progress_log: str | None
    stop_timeout: int  # seconds
    start_timeout: int = 60  # seconds
    prometheus: str | None = None  # host:port
    prometheus_file: str | None = None
    opentelemetry: bool = False

    @property
    def interval(self) -> str | None:
        """The time between two micro-batches, or None if the queries read everything available and then end."""
        return None if self.trigger == AVAILABLE_NOW else self.trigger


@dataclass(frozen=True)
class PipelineConfig:
    """The settings of a pipeline, with the defaults of keys that its file does not contain."""

    source: Text  # options of the Spark source
    decode: Decode
    dead_letters: DeadLetters
    sink: Sink
    aggregate: Aggregate | None
    run: Run
    spark: Text = field(default_factory=dict)  # settings of the session

    @property
    def aggregate_sink(self) -> Sink:
        """The output for the aggregates of time windows. Its files are small, so nothing limits their size."""
        assert self.aggregate is not None
        at = self.aggregate
        return Sink(self.sink.format, at.path, at.table, at.partition_by, 0, None, self.sink.options, self.sink.url)


# --- the table ------------------------------------------------------------------------------------

Reader = Callable[[str, Any], Any]  # (key, value of the file) -> value; raises ConfigError
REQUIRED = object()  # in place of a default: the key must be in the file
AVAILABLE_NOW = "available_now"
DURATION = r"\d+ (millisecond|second|minute|hour|day|week)s?"


class Key(NamedTuple):
    """A key that the file may contain. The table KEYS contains all of them."""

    section: str  # as users write it
    name: str  # as users write it
    read: Reader
    default: Any
    meaning: str  # for the documentation
    takes: str  # the allowed values, for the documentation and messages

    @property
    def full(self) -> str:
        """The name of the key with its section, such as `sink.path`."""
        return f"{self.section}.{self.name}"


def _not_allowed(key: str, value: Any, takes: str) -> ConfigError:
    return ConfigError(f"{key} = {value!r} is not allowed: it takes {takes}")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _not_allowed(key, value, "text that is not empty")
    return value


def _names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name.strip() for name in value):
        raise _not_allowed(key, value, "a list of names")
    if len(set(value)) != len(value):
        raise ConfigError(f"{key} = {value!r} contains a name twice")
    return tuple(value)


def _some_of(*words: str) -> Reader:
    def read(key: str, value: Any) -> tuple[str, ...]:
        for name in _names(key, value):
            if name not in words:
                raise ConfigError(f"{key} has {name!r}{_instead(name, words)}")
        return tuple(value)

    return read


def _one_of(*words: str) -> Reader:
    def read(key: str, value: Any) -> str:
        if value not in words:
            raise ConfigError(f"{key} = {value!r} is not allowed{_instead(str(value), words)}")
        return str(value)

    return read


def _at_least(minimum: int) -> Reader:
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise _not_allowed(key, value, f"a whole number, at least {minimum}")
        return value

    return read


def _duration(key: str, value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(DURATION, value):
        raise _not_allowed(key, value, "a time such as '30 seconds' or '1 minute'")
    return value


def _address(key: str, value: Any) -> str:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise _not_allowed(key, value, "an address such as '127.0.0.1:9404'")
    return str(value)


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _not_allowed(key, value, "true or false")
    return value


def _trigger(key: str, value: Any) -> str:
    if value == AVAILABLE_NOW:
        return AVAILABLE_NOW
    if not isinstance(value, str) or not re.fullmatch(DURATION, value):
        raise _not_allowed(key, value, f"{AVAILABLE_NOW!r}, or a time such as '10 seconds'")
    return value


def _table(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _not_allowed(key, value, "a table of name = text")
    return flatten(key, value)


def _schema(key: str, value: Any) -> str:
    if isinstance(value, str):
        return _text(key, value)
    fields = _table(key, value)
    if not fields:
        raise ConfigError(f"{key} has no fields")
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())


def comparable(spark: Any) -> Callable[[str], str]:
    """Returns a function that converts names to the same text if Spark compares them as equal."""
    sensitive = spark.conf.get("spark.sql.caseSensitive") == "true"
    return lambda name: name if sensitive else name.upper().lower()


def quoted(name: str) -> str:
    """Returns a name as SQL writes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def _registry(key: str, value: Any) -> dict[str, str]:
    return {"url": _text(key, value)} if isinstance(value, str) else _table(key, value)


def _headers(key: str, value: Any) -> dict[str, str]:
    return ({HEADERS: ""} if value else {}) if isinstance(value, bool) else _table(key, value)


# fmt: off
KEYS = (
    Key("decode", "format", _one_of("json", "raw", *BINARY), "json",
        "Format of the values; `raw` keeps their bytes in a column `value`.", "json, raw, avro, protobuf"),
    Key("decode", "schema", _schema, None,
        "Fields of the JSON object and their Spark types, as a table `[decode.schema]` or as DDL. For avro and "
        "protobuf the [`valueSchema`](spark.md#options) of the source, or nothing: the latest one in the registry.",
        "name = type"),
    Key("decode", "message", _text, None, "Full name of the message (protobuf).", "a name"),
    Key("decode", "registry", _registry, {}, "Address of a schema registry, or a table of `url` and other options of "
        "its client; a secret may be `env:NAME` or `file:PATH`.", "a URL, name = text"),
    Key("decode", "headers", _headers, {}, "`true` keeps the headers in a column `kafka_headers`; a table keeps the "
        "last value of a header as text in a column.", "true, column = header"),
    Key("decode", "parser", _one_of("spark", "kconsumer"), "spark",
        "Parser of the JSON objects: Spark's `from_json`, or the [decoder of the source](spark.md#json), with which a "
        "pipeline takes about half the processor time, and which accepts fewer forms.", "spark, kconsumer"),
    Key("decode", "required", _names, (), "Fields that must not be null in a valid row.", "names"),
    Key("decode", "rules", _table, {},
        "Names and SQL expressions over the fields. All of them must be true for a valid row.", "name = expression"),
    Key("decode", "event_time", _text, "kafka_timestamp",
        "SQL expression for the event time of a row, which must not be null in a valid row.", "an expression"),
    Key("decode", "metadata", _some_of(*METADATA), METADATA[:4], "Columns of the record to keep in addition to its "
        "fields.", ", ".join(METADATA)),
    Key("decode", "on_invalid", _one_of("deadletter", "drop", "fail"), "deadletter",
        "What to do with an invalid row.", "deadletter, drop, fail"),
    Key("dead_letters", "path", _text, None, "Folder for invalid records (Parquet).", "a path"),
    Key("sink", "format", _one_of("parquet", "delta", "iceberg", "jdbc", "console"), "parquet",
        "Format of the output. Delta, Iceberg and JDBC drivers need their packages in the session "
        "(`spark.jars.packages`).", "parquet, delta, iceberg, jdbc, console"),
    Key("sink", "path", _text, None, "Folder for rows, or of the Delta table.", "a path"),
    Key("sink", "table", _text, None, "Table for rows (iceberg, jdbc).", "a name"),
    Key("sink", "url", _text, None, "URL of the database (jdbc), such as `jdbc:postgresql://db/shop`.", "a URL"),
    Key("sink", "mode", _one_of("append", "upsert"), "append",
        "`upsert` keeps the newest row of each key, and a record without a value deletes it (delta, iceberg, jdbc).",
        "append, upsert"),
    Key("sink", "key", _names, (), "Columns that identify a row, for `upsert`.", "names"),
    Key("sink", "partition_by", _names, DERIVED,
        "Columns that the output is partitioned by; `date` and `hour` are those of `event_time`.", "names"),
    Key("sink", "max_records_per_file", _at_least(1), 1_000_000, "Maximum rows of a file.", "a number"),
    Key("sink", "files", _at_least(1), None,
        "Maximum number of tasks that write a micro-batch. It limits the files per folder, too, unless they exceed "
        "`max_records_per_file`.", "a number"),
    Key("sink", "options", _table, {}, "Options of Spark's writer, such as `compression`, or `user` and `password` "
        "of a database; the password may be `env:NAME` or `file:PATH`.", "name = text"),
    Key("aggregate", "columns", _table, REQUIRED, "Names and SQL expressions of the aggregates of a window.",
        "name = expression"),
    Key("aggregate", "window", _duration, REQUIRED, "Length of a window.", "a time"),
    Key("aggregate", "slide", _duration, None, "Time between the starts of two windows, if they overlap.", "a time"),
    Key("aggregate", "watermark", _duration, REQUIRED,
        "How late a row may be. A window is written once, when a row has arrived that is newer than its end by this "
        "time.", "a time"),
    Key("aggregate", "by", _names, (), "Columns to group by within a window.", "names"),
    Key("aggregate", "path", _text, None, "Folder for windows, in the format of `sink`.", "a path"),
    Key("aggregate", "table", _text, None, "Table for windows (iceberg, jdbc).", "a name"),
    Key("aggregate", "partition_by", _names, ("date",), "As in `sink`, by the start of the window.", "names"),
    Key("run", "name", _text, "pipeline", "Name of the queries and of the application.", "text"),
    Key("run", "checkpoint", _text, REQUIRED,
        "Folder in which Spark stores its progress. Each pipeline needs its own, for as long as its output exists.",
        "a path"),
    Key("run", "trigger", _trigger, AVAILABLE_NOW,
        "Read everything available and end, or run a micro-batch at this interval.", "available_now, a time"),
    Key("run", "progress_log", _text, None, "File to which a JSON object is appended for each micro-batch.", "a path"),
    Key("run", "start_timeout", _at_least(0), 60, "Seconds after the first failure for which a start is tried again, "
        "if it fails for a reason that may pass: a broker, registry or database that cannot be reached.", "a number"),
    Key("run", "stop_timeout", _at_least(0), 30,
        "Seconds that a running micro-batch has to finish when the pipeline is stopped.", "a number"),
    Key("run", "prometheus", _address, None,
        "Address at which Prometheus finds the metrics of the pipeline, such as `0.0.0.0:9404`.", "host:port"),
    Key("run", "prometheus_file", _text, None, "File for the metrics in the text format of Prometheus, written after "
        "each micro-batch. Prometheus's node_exporter reads `*.prom`.", "a path"),
    Key("run", "opentelemetry", _flag, False, "Export the metrics to the meter provider of OpenTelemetry that the "
        "process has set.", "true, false"),
)
# fmt: on

FREE = ("source", "spark")  # sections with arbitrary keys
SECTIONS = tuple(dict.fromkeys([*FREE, *(row.section for row in KEYS)]))


# --- reading --------------------------------------------------------------------------------------


def load(path: str | Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Read and check the file of a pipeline. Returns its settings.

    Each of `overrides`, such as `run.trigger=10 seconds`, replaces the value of a key. Raises ConfigError if the file
    cannot be read or is not TOML, and for a wrong section, key or value.
    """
    try:
        with Path(path).open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for line in overrides:
        _override(document, line)
    return parse(document)


def _override(document: dict[str, Any], line: str) -> None:
    """Apply an override such as `run.trigger=10 seconds`. A value that is not TOML is used as text.

    Raises ConfigError for an override of another form.
    """
    name, equals, text = line.partition("=")
    section, dot, key = name.strip().partition(".")
    if not equals or not dot:
        raise ConfigError(f"--set {line!r} is not of the form section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    at = document.setdefault(section, {})
    if section in FREE:
        at = document[section] = dict(flatten(section, at))
    elif "." in key:
        inner, _, key = key.partition(".")
        at = at.setdefault(inner, {})
    at[key] = value


def parse(document: Mapping[str, Any]) -> PipelineConfig:
    """Check the content of a pipeline's file, given as parsed TOML. Returns the settings.

    Raises ConfigError for a wrong section, key or value. Its message names the key.
    """
    for section, content in document.items():
        if section not in SECTIONS:
            raise ConfigError(f"section [{section}] does not exist{_instead(section, SECTIONS)}")
        if not isinstance(content, Mapping):
            raise ConfigError(f"{section} = {content!r} is not allowed: write a section [{section}]")
    made = {name: _section(name, document.get(name, {})) for name in SECTIONS if name not in (*FREE, "aggregate")}
    aggregate = Aggregate(**_section("aggregate", document["aggregate"])) if "aggregate" in document else None
    if made["sink"]["format"] == "jdbc":
        for name in ("sink", "aggregate"):
            if "partition_by" in document.get(name, {}):
                raise ConfigError(f"{name}.partition_by has no meaning with sink.format = 'jdbc'; omit it")
        made["sink"]["partition_by"] = ()
        aggregate = aggregate and replace(aggregate, partition_by=())
    config = PipelineConfig(
        _source(document.get("source", {})),
        Decode(**made["decode"]),
        DeadLetters(**made["dead_letters"]),
        Sink(**made["sink"]),
        aggregate,
        Run(**made["run"]),
        _session(document.get("spark", {})),
    )
    _check_together(config)
    return config


def _section(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    rows = {row.name: row for row in KEYS if row.section == section}
    for name in given:
        if name not in rows:
            raise ConfigError(f"key {section}.{name} does not exist{_instead(name, rows)}")
    values = {}
    for name, row in rows.items():
        if name in given:
            values[name] = row.read(row.full, given[name])
        elif row.default is REQUIRED:
            raise ConfigError(f"{row.full} is missing: it takes {row.takes}")
        else:
            values[name] = row.default
    return values


def _source(given: Mapping[str, Any]) -> dict[str, str]:
    """Check the options of the source. Returns them as text.

    Raises ConfigError for a wrong value, and also for an unknown option, for which the source only logs a warning.
    """
    found = flatten("source", given)
    names = {row.name.lower(): row.name for row in options.OPTIONS.values()}
    for name in found:
        low = name.lower()
        if low in RESERVED_SOURCE_OPTIONS:
            raise ConfigError(f"source.{name} is not allowed: the pipeline chooses the columns; see decode.metadata")
        if low not in names and not low.startswith("kafka."):
            near = _nearest(low, [*names, "kafka.bootstrap.servers"])
            known = f"; the options are {', '.join(names.values())}"
            hint = f"; did you mean {names.get(near, near)}?" if near else known
            raise ConfigError(f"key source.{name} does not exist{hint}")
    if "maxoffsetspertrigger" not in {name.lower() for name in found}:
        found["maxOffsetsPerTrigger"] = str(RECORDS_PER_TRIGGER)
    try:
        options.parse(found, "stream")
    except ConfigError as error:
        raise ConfigError(f"in [source]: {error}") from None
    return found


def _session(given: Mapping[str, Any]) -> dict[str, str]:
    found = flatten("spark", given)
    return {name if name.startswith("spark.") else f"spark.{name}": value for name, value in found.items()}


def flatten(key: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of nested tables as text, with their keys joined by dots.

    So a TOML file may contain the key `a.b` with or without quotes. Raises ConfigError for a list or a date.
    """
    found: dict[str, str] = {}
    for name, value in table.items():
        match value:
            case Mapping():
                found |= {f"{name}.{rest}": text for rest, text in flatten(f"{key}.{name}", value).items()}
            case bool():
                found[name] = str(value).lower()
            case str() | int() | float():
                found[name] = str(value)
            case _:
                raise _not_allowed(f"{key}.{name}", value, "text, a number, true or false")
    return found


def _instead(name: str, words: Any) -> str:
    near = _nearest(name, list(words))
    return f"; did you mean {near}?" if near else f"; one of {', '.join(words)} is expected"


def _nearest(name: str, words: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, words, 1)), None)


def _check_together(config: PipelineConfig) -> None:
    decode, sink = config.decode, config.sink
    if decode.format == "json" and decode.schema is None:
        raise ConfigError("decode.schema is missing: decode.format = 'json' needs the fields and their types")
    if decode.format == "raw" and (decode.schema or decode.required):
        raise ConfigError("decode.schema and decode.required need decode.format = 'json'")
    if decode.format in BINARY and decode.schema is None and not decode.registry:
        raise ConfigError(f"decode.schema is missing: decode.format = {decode.format!r} needs it, or decode.registry")
    if (decode.registry or decode.message) and not decode.in_source:
        raise ConfigError("decode.registry and decode.message need decode.format = 'avro' or 'protobuf'")
    if decode.format == "json" and decode.in_source:
        _check_types(decode.schema or "")
    if decode.on_invalid == "deadletter" and config.dead_letters.path is None:
        raise ConfigError("dead_letters.path is missing: name a folder, or set decode.on_invalid to 'drop' or 'fail'")
    _check_place("sink", sink)
    if config.aggregate is not None:
        if not config.aggregate.columns:
            raise ConfigError("aggregate.columns has no columns")
        _check_place("aggregate", config.aggregate_sink)
    check_places(places(config))


def _check_types(schema: str) -> None:
    """Raise ConfigError if the schema has a type that the decoder of the source does not have."""
    try:
        parse_type(schema)
    except ConfigError as error:
        raise ConfigError(f"decode.schema cannot be used with decode.parser = 'kconsumer': {error}") from None


def _check_place(section: str, sink: Sink) -> None:
    needs = {"parquet": "path", "delta": "path", "iceberg": "table", "jdbc": "table", "console": None}[sink.format]
    for name in ("path", "table"):
        given = getattr(sink, name) is not None
        if given and name != needs:
            raise ConfigError(f"{section}.{name} has no meaning with sink.format = {sink.format!r}; omit it")
        if not given and name == needs:
            raise ConfigError(f"{section}.{name} is missing: sink.format = {sink.format!r} writes to a {name}")
    if (sink.format == "jdbc") != (sink.url is not None):
        raise ConfigError("sink.url is the URL of the database: sink.format = 'jdbc' needs it, the others must omit it")
    if (sink.mode == "upsert") != bool(sink.key):
        raise ConfigError("sink.mode = 'upsert' needs sink.key, the columns that identify a row; 'append' has none")
    if sink.mode == "upsert" and sink.format not in ("delta", "iceberg", "jdbc"):
        raise ConfigError(f"sink.mode = 'upsert' needs a table (delta, iceberg, jdbc), not {sink.format!r}")
    hidden = [name for name in sink.partition_by if name.startswith(".")]
    if sink.format == "parquet" and hidden:
        raise ConfigError(f"{section}.partition_by has {hidden[0]!r}: readers ignore folders that begin with a dot")


def places(config: PipelineConfig) -> dict[str, str]:
    """Returns the folders of a pipeline by their keys."""
    found = {
        "sink.path": config.sink.path,
        "aggregate.path": config.aggregate and config.aggregate.path,
        "dead_letters.path": config.dead_letters.path,
        "run.checkpoint": config.run.checkpoint,
    }
    return {key: place for key, place in found.items() if place}


def check_places(places: Mapping[str, str]) -> None:
    """Raise ConfigError if a folder of the pipeline is inside another one.

    The files of the inner folder would also be read as files of the outer one.
    """
    given = [(key, place.rstrip("/") + "/") for key, place in places.items()]
    given += [(f"the staging folder of {key}", f"{place[:-1]}.staging/") for key, place in given]
    for key, place in given:
        for other, inside in given:
            if key != other and inside.startswith(place):
                raise ConfigError(f"{other} = {inside[:-1]!r} is in the folder of {key}; use separate folders")
