"""Columns of a pipeline that change between two starts."""

from __future__ import annotations

import pytest

from kconsumer.spark.pipeline.schema_changes import Change, changes_between, is_wider


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
