"""Columns of a pipeline that change between two starts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer.errors import ConfigError
from kconsumer.spark.pipeline import parse, schema_changes, sinks
from kconsumer.spark.pipeline.schema_changes import Change, changes_between, find_changes, is_wider

STORED = '{"rows": {}}'


def test_what_has_changed() -> None:
    """New columns and other types are changes, columns that are gone or only moved are not."""
    before = {"id": "int", "gone": "string", "name": "string"}
    after = {"name": "string", "id": "bigint", "more": "double"}
    assert [Change("id", "int", "bigint"), Change("more", None, "double")] == list(changes_between(before, after))


@pytest.mark.parametrize(
    ("before", "after", "wider"),
    [
        ("int", "bigint", True), ("tinyint", "int", True), ("float", "double", True),
        ("decimal(5,2)", "decimal(9,2)", True), ("bigint", "int", False), ("double", "float", False),
        ("int", "double", False), ("int", "string", False), ("decimal(5,2)", "decimal(9,3)", False),
        ("decimal(9,2)", "decimal(5,2)", False), ("array<int>", "array<bigint>", False), ("date", "timestamp", False),
    ],
)  # fmt: skip
def test_wider_types(before: str, after: str, wider: bool) -> None:
    """A type is wider if every value of the other one is a value of it, in every format."""
    assert wider == is_wider(before, after)


@pytest.mark.parametrize(
    ("note", "copy", "found"),
    [
        (None, None, {}), (STORED, None, {"rows": []}), ('{"rows', STORED, {"rows": []}), ("", STORED, {"rows": []}),
        (Exception("org.apache.hadoop.fs.ChecksumException: x"), STORED, {"rows": []}),
        (Exception("org.apache.hadoop.fs.ChecksumException: x"), None, ConfigError), ('{"rows', None, ConfigError),
        ("[]", "", ConfigError),
        (OSError("connection reset"), STORED, OSError), ('{"rows', OSError("connection reset"), OSError),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, note: Any, copy: Any, found: Any) -> None:
    """The copy replaces a damaged file. Without it, and if the file cannot be read now, the start fails: to compare
    with no columns would hide what has changed.
    """
    checkpoint(monkeypatch, {schema_changes.NOTE: note, schema_changes.COPY: copy})
    if isinstance(found, dict):
        assert found == changes(sink={"path": "/p"})
    else:
        with pytest.raises(found):
            changes(sink={"path": "/p"})


DELTA = {"format": "delta", "path": "/p", "mode": "upsert", "key": ["id", "x"]}
WINDOWS = {"window": "1 minute", "watermark": "1 minute", "columns": {"n": "count(*)"}, "path": "/w"}
FILES: dict[str, Any] = {"sink": {"path": "/p"}, "dead_letters": {"path": "/d"}, "aggregate": WINDOWS}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (FILES, {"sink": {"path": "/q"}}, r"sink\.path was '/p' and would be '/q', but .* keep it, or use"),
        (FILES, {"sink": {"path": "/p", "format": "delta"}}, r"sink\.format was 'parquet' and would be 'delta'"),
        (FILES, {"sink": {"format": "iceberg", "table": "t"}, "aggregate": WINDOWS | {"path": None, "table": "t"}},
         r"sink\.format was 'parquet' and would be 'iceberg'"),
        (FILES, {"sink": {"path": "/p", "partition_by": ["date"]}}, r"sink\.partition_by was \['date', 'hour'\] and"),
        (FILES, {"sink": {"path": "//p/", "files": 3}}, None),
        (FILES, {"dead_letters": {"path": "/e"}}, r"dead_letters\.path was '/d' and .* micro-batch 1 was interrupted"),
        (FILES, {"dead_letters": {}, "decode": {"schema": "id int", "on_invalid": "drop"}},
         r"dead_letters\.path was '/d' and would be None"),
        (FILES, {"aggregate": WINDOWS | {"path": "/x"}}, r"aggregate\.path was '/w' and would be '/x'"),
        (FILES, {"aggregate": WINDOWS | {"window": "2 minutes"}}, r"aggregate\.window was '1 minute' and would be"),
        (FILES, {"aggregate": WINDOWS | {"columns": {"n": "max(id)"}}}, r"aggregate\.columns was {'n': 'count\(\*\)'}"),
        (FILES, {"aggregate": WINDOWS | {"watermark": "1 hour"}}, None),
        ({"sink": DELTA}, {"sink": DELTA | {"key": ["id"]}}, r"sink\.key was \['id', 'x'\] and would be \['id'\]"),
        ({"sink": DELTA}, {"sink": DELTA | {"key": ["x", "id"], "partition_by": []}}, None),
        ({"sink": DELTA}, {"sink": {"format": "delta", "path": "/p"}}, r"sink\.mode was 'upsert' and would be 'app"),
        ({"sink": {"format": "iceberg", "table": "a.t"}}, {"sink": {"format": "iceberg", "table": "a.u"}},
         r"sink\.table was 'a\.t' and would be 'a\.u'"),
    ],
)  # fmt: skip
def test_settings_that_must_stay(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], after: dict[str, Any], words: str | None
) -> None:
    """A setting with which the rows of earlier micro-batches were written may not change, unless there are none. A
    start without windows does not forget theirs.
    """
    files: dict[str, str] = {}
    checkpoint(monkeypatch, files)
    changes(**before, store=True)
    changes(**before | {"aggregate": None}, store=True)
    assert {} != changes(**before | after), "there is no micro-batch yet"
    checkpoint(monkeypatch, files, planned=1)
    if words is None:
        changes(**before | after)
        return
    with pytest.raises(ConfigError, match=words):
        changes(**before | after)
    checkpoint(monkeypatch, files, planned=0)
    if "dead_letters" in words:
        changes(**before | after)


@pytest.mark.parametrize(
    ("places", "after", "words"),
    [
        ({"rows": ["/p/", "parquet"]}, {"sink": {"path": "/p", "partition_by": ["a"]}}, None),
        ({"rows": ["/p", "parquet"]}, {"sink": {"path": "/p", "partition_by": ["b"]}}, r"n_by was \['a'\] and would"),
        ({"rows": ["/p", "parquet"]}, {"sink": {"path": "/p", "format": "delta"}}, "format was 'parquet' and would be"),
        ({"rows": ["/o", "delta"]}, {"sink": {"path": "/p", "format": "delta"}}, "path was '/o' and would be '/p'"),
        ({"rows": ["a.t", "iceberg"]}, {"sink": {"format": "iceberg", "table": "a.u"}}, r"table was 'a\.t' and"),
        ({}, {"sink": {"path": "/p", "partition_by": ["a"]}}, None),
        ({}, {"sink": {"path": "/p", "partition_by": ["b"]}}, r"n_by was \['a'\] and would"),
    ],
)  # fmt: skip
def test_settings_of_an_older_version(
    monkeypatch: pytest.MonkeyPatch, places: Any, after: dict[str, Any], words: str | None
) -> None:
    """What an older version has stored of the outputs may not change. The next start stores it as settings, also of a
    query that does not run.
    """
    queries = {"partition_by": {"rows": ["a"], "windows": ["w"]}, "places": places}
    files = {schema_changes.NOTE: json.dumps({"rows": {}, "windows": {}, **queries})}
    checkpoint(monkeypatch, files, planned=0)
    if words is not None:
        with pytest.raises(ConfigError, match=words):
            changes(**after)
        return
    changes(**after, store=True)
    stored = json.loads(files[schema_changes.NOTE])
    assert {"rows", "windows", "settings"} == stored.keys()
    assert ["w"] == stored["settings"]["windows"]["aggregate.partition_by"]


def checkpoint(monkeypatch: pytest.MonkeyPatch, files: dict[str, Any], planned: int = -1) -> None:
    """Replace Hadoop's file system by files, or errors, with these names. The micro-batch 0 has finished, if any."""

    def text(name: str) -> str | None:
        result: str | Exception | None = files.get(name)
        if isinstance(result, Exception):
            raise result
        return result

    def times(folder: str) -> dict[str, int]:
        return {str(number): 0 for number in range(min(planned, 0 if folder.endswith("commits") else planned) + 1)}

    def folder(spark: object, path: str) -> Any:
        root = "/" + path.strip("/")
        return SimpleNamespace(text=text, times=times, write_text=files.__setitem__, root=root)

    monkeypatch.setattr(sinks, "Folder", folder)


def changes(store: bool = False, **sections: Any) -> dict[str, list[Change]] | None:
    """Compare a start with the last one, and store its settings if `store`."""
    given: dict[str, Any] = {
        "source": {"kafka.bootstrap.servers": "h:1", "subscribe": "t"},
        "decode": {"schema": "id int"},
    }
    given |= {"run": {"checkpoint": "/c"}, "dead_letters": {"path": "/d"}} | sections
    if aggregate := given.pop("aggregate", None):
        given["aggregate"] = {name: value for name, value in aggregate.items() if value is not None}
    config, spark = parse(given), SimpleNamespace(conf={"spark.sql.caseSensitive": "false"})
    frame = SimpleNamespace(schema=SimpleNamespace(fields=[]))
    written = dict.fromkeys(["rows", "windows"] if aggregate else ["rows"], frame)
    if store:
        schema_changes.adapt(spark, config, written)
        return None
    return find_changes(spark, config, written)
