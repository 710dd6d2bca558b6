"""The settings file of a pipeline: how it is read, and which errors are raised."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline.settings import KEYS, Aggregate, Decode, Run, Sink, load, parse

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline" / "orders.toml"
LEAST: dict[str, Any] = {
    "source": {"kafka": {"bootstrap": {"servers": "h:1"}}, "subscribe": "t"},
    "decode": {"schema": {"id": "long", "at": "timestamp"}},
    "dead_letters": {"path": "/out/dead"},
    "sink": {"path": "/out/rows"},
    "run": {"checkpoint": "/out/checkpoint"},
}


def document(**changes: Any) -> dict[str, Any]:
    """Returns a minimal file, with keys `section__key` set, or omitted if None."""
    made = copy.deepcopy(LEAST)
    for name, value in changes.items():
        section, _, key = name.partition("__")
        at = made.setdefault(section, {})
        if value is None:
            at.pop(key)
        else:
            at[key] = value
    return made


def test_defaults() -> None:
    """Omitted keys have the defaults of the table."""
    config = parse(document())
    assert Sink("parquet", "/out/rows", None, ("date", "hour"), 1_000_000, None, {}) == config.sink
    assert Run("pipeline", "/out/checkpoint", "available_now", None, 30) == config.run
    assert "`id` long, `at` timestamp" == config.decode.schema
    assert (None, None) == (config.aggregate, config.run.interval)
    wanted = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "maxOffsetsPerTrigger": "1000000"}
    assert wanted == config.source


def test_the_table_has_the_fields_of_the_classes() -> None:
    """Each section of the table has exactly the fields of its class."""
    for section, made in (("decode", Decode), ("sink", Sink), ("aggregate", Aggregate), ("run", Run)):
        names = {row.name for row in KEYS if row.section == section}
        assert set(made.__dataclass_fields__) == names


def test_the_example_is_read() -> None:
    """The example file is valid; dotted names are the same with and without quotes."""
    config = load(EXAMPLE, ["source.kafka.bootstrap.servers=other:9", "run.trigger=5 seconds", "sink.files=3"])
    assert "other:9" == config.source["kafka.bootstrap.servers"]
    assert ("5 seconds", 3) == (config.run.interval, config.sink.files)
    assert {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    } == config.spark
    assert config.aggregate is not None
    assert {"orders": "count(*)", "cents": "sum(cents)"} == config.aggregate.columns


def test_overrides_reach_tables_in_tables(tmp_path: Path) -> None:
    """`--set` accepts a key of a nested table; a value that is not TOML is text."""
    file = tmp_path / "p.toml"
    file.write_text(EXAMPLE.read_text())
    config = load(file, ["decode.rules.price=cents > 5", "decode.on_invalid=drop"])
    assert ({"price": "cents > 5"}, "drop") == (config.decode.rules, config.decode.on_invalid)


# fmt: off
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sinc__path": "x"}, r"section \[sinc\] does not exist; did you mean sink\?"),
    ({"sink__pathh": "x"}, r"key sink\.pathh does not exist; did you mean path\?"),
    ({"sink__zzz": "x"}, r"key sink\.zzz does not exist; one of format, path"),
    ({"source__startingOffset": "earliest"}, r"key source\.startingOffset does not exist; did you mean startingOff"),
    ({"source__zzzzz": "1"}, r"key source\.zzzzz does not exist; the options are subscribe, subscribePattern, "),
    ({"source__columns": "key"}, r"source\.columns is not allowed"),
    ({"source__endingOffsets": "latest"}, r"in \[source\]: ending offset not valid in streaming"),
    ({"source__subscribe": None}, r"in \[source\]: One of the following options must be specified"),
    ({"run__checkpoint": None}, r"run\.checkpoint is missing"),
    ({"run__trigger": "often"}, r"run\.trigger = 'often' is not allowed: it takes 'available_now', or a time"),
    ({"run__stop_timeout": -1}, r"run\.stop_timeout = -1 is not allowed: it takes a whole number"),
    ({"run__stop_timeout": True}, r"run\.stop_timeout = True is not allowed"),
    ({"decode__schema": None}, r"decode\.schema is missing"),
    ({"decode__schema": {}}, r"decode\.schema has no fields"),
    ({"decode__format": "jsno"}, r"decode\.format = 'jsno' is not allowed; did you mean json\?"),
    ({"decode__parser": "arrow"}, r"decode\.parser = 'arrow' is not allowed"),
    ({"decode__parser": "kconsumer", "decode__schema": "id interval"},
     r"decode\.schema cannot be used with decode\.parser = 'kconsumer': values cannot be decoded to 'interval'"),
    ({"decode__format": "raw"}, r"decode\.schema and decode\.required need"),
    ({"decode__metadata": ["kafka_ofset"]}, r"decode\.metadata has 'kafka_ofset'; did you mean kafka_offset\?"),
    ({"decode__required": ["id", "id"]}, r"decode\.required = \['id', 'id'\] contains a name twice"),
    ({"decode__rules": {"x": [1]}}, r"decode\.rules\.x = \[1\] is not allowed"),
    ({"dead_letters__path": None}, r"dead_letters\.path is missing"),
    ({"sink__path": None}, r"sink\.path is missing: sink\.format = 'parquet' writes to a path"),
    ({"sink__format": "iceberg"}, r"sink\.path has no meaning with sink\.format = 'iceberg'"),
    ({"sink__format": "jdbc", "sink__path": None, "sink__table": "t"}, r"sink\.url is the URL of the database"),
    ({"sink__url": "jdbc:postgresql://h/d"}, r"the others must omit it"),
    ({"sink__format": "jdbc", "sink__path": None, "sink__table": "t", "sink__url": "u", "sink__partition_by": ["id"]},
     r"sink\.partition_by has no meaning with sink\.format = 'jdbc'"),
    ({"sink__max_records_per_file": 0}, r"sink\.max_records_per_file = 0 is not allowed"),
    ({"sink__path": "/out/checkpoint/rows"}, r"sink\.path = '/out/checkpoint/rows' is in the folder of run"),
    ({"aggregate__window": "1 minute"}, r"aggregate\.columns is missing"),
    ({"sink__mode": "upsert"}, r"sink\.mode = 'upsert' needs sink\.key"),
    ({"sink__key": ["id"]}, r"'append' has none"),
    ({"sink__mode": "upsert", "sink__key": ["id"]}, r"needs a table \(delta, iceberg, jdbc\), not 'parquet'"),
    ({"sink__partition_by": [".r"]}, r"sink\.partition_by has '\.r': readers ignore folders"),
    ({"dead_letters__path": "/out/rows.staging"}, r"the staging folder of sink\.path = .* is in the folder of"),
    ({"decode__format": "avro", "decode__schema": None}, r"decode\.schema is missing: decode\.format = 'avro'"),
    ({"decode__registry": "http://r"}, r"decode\.registry and decode\.message need decode\.format = 'avro'"),
    ({"decode__headers": ["a"]}, r"decode\.headers = \['a'\] is not allowed"),
    ({"aggregate": None}, r"aggregate = None is not allowed: write a section"),
]
# fmt: on


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words[:40] for _, words in REFUSED])
def test_refused(changes: dict[str, Any], words: str) -> None:
    """The error for an invalid file has the key and suggests the nearest valid one."""
    made = {**document(), "aggregate": None} if changes == {"aggregate": None} else document(**changes)
    with pytest.raises(ConfigError, match=words):
        parse(made)


def test_options_of_decoders_in_the_source() -> None:
    """A registry is an address, or a table of options, which become options of the source; headers become columns."""
    registry = {"url": "http://r", "basic": {"auth": {"user": {"info": "env:LOGIN"}}}}
    given = {"decode__format": "avro", "decode__schema": None, "decode__registry": registry, "decode__headers": True}
    decode = parse(document(**given)).decode
    login = {"valueRegistry": "http://r", "valueRegistry.basic.auth.user.info": "env:LOGIN"}
    assert {"valueFormat": "avro", **login} == decode.source_options
    assert {"kafka_headers": ""} == decode.headers
    assert {"url": "http://r"} == parse(document(**given | {"decode__registry": "http://r"})).decode.registry


@pytest.mark.parametrize(("text", "words"), [("a = [", "is not TOML"), (None, "cannot read")])
def test_files_that_cannot_be_read(tmp_path: Path, text: str | None, words: str) -> None:
    """A missing file or one that is not TOML gives an error without a traceback."""
    file = tmp_path / "p.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load(file)


@pytest.mark.parametrize("line", ["run", "run=1", "trigger=now"])
def test_overrides_without_a_section(line: str) -> None:
    """The error for `--set` without a section shows the right form."""
    with pytest.raises(ConfigError, match=r"is not of the form section\.key=value"):
        load(EXAMPLE, [line])
