"""Columns of a pipeline that change between two starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer.spark.pipeline import schema_changes, sinks
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
        (Exception("org.apache.hadoop.fs.ChecksumException: x"), None, Exception), ('{"rows', None, ValueError),
        (OSError("connection reset"), STORED, OSError), ('{"rows', OSError("connection reset"), OSError),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, note: Any, copy: Any, found: Any) -> None:
    """The copy replaces a damaged file. Without it, and if the file cannot be read now, the start fails: to compare
    with no columns would hide what has changed.
    """

    def text(name: str) -> str | None:
        result: str | Exception | None = {schema_changes.NOTE: note, schema_changes.COPY: copy}[name]
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(sinks, "Folder", lambda spark, path: SimpleNamespace(text=text))
    written = {"rows": SimpleNamespace(schema=SimpleNamespace(fields=[]))}
    sink = SimpleNamespace(place="p", format="delta")
    config: Any = SimpleNamespace(run=SimpleNamespace(checkpoint="c"), sink=sink)
    spark = SimpleNamespace(conf={"spark.sql.caseSensitive": "false"})
    if isinstance(found, dict):
        assert found == find_changes(spark, config, written)
    else:
        with pytest.raises(found):
            find_changes(spark, config, written)
