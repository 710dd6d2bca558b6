"""TableContents: which entries records set and delete, the limits, and partitions that are read again."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer import ConsumerRecord
from kconsumer._client.table_contents import TableContents
from kconsumer.errors import ConfigError, TableTooLargeError


def record(key: Any, value: Any, partition: int = 0) -> ConsumerRecord[Any, Any]:
    """Returns a record; its key and value count one byte for each character."""
    sizes = [-1 if part is None else len(str(part)) for part in (key, value)]
    return ConsumerRecord("t", partition, 7, -1, -1, key, value, (), None, *sizes)


def contents(max_entries: int | None = None, max_bytes: int | None = None) -> TableContents[Any, Any]:
    """Returns the contents of a table of topic t."""
    return TableContents("t", max_entries, max_bytes)


def test_records_set_and_delete_entries() -> None:
    """The last record of a key wins; one without a value deletes the entry, and is no change if there is none."""
    table = contents()
    changes = table.apply([record("a", "1"), record("b", "22"), record("a", "333"), record("b", None)])
    assert [("a", "1"), ("b", "22"), ("a", "333"), ("b", None)] == changes
    assert ({"a": "333"}, 4) == (table.values, table.bytes)
    assert [] == table.apply([record("b", None)])


def test_records_without_a_key_are_skipped_and_counted() -> None:
    """They change nothing."""
    table = contents()
    assert ([], 2, {}) == (table.apply([record(None, "1"), record(None, None)]), table.skipped, table.values)


def test_a_value_that_a_deserializer_turns_into_none_is_an_entry() -> None:
    """Only a record without a value is a deletion: JSON's null is a value."""
    table = contents()
    table.apply([ConsumerRecord("t", 0, 0, -1, -1, "a", None, (), None, 1, 4)])
    assert ({"a": None}, 5) == (table.values, table.bytes)


@pytest.mark.parametrize("limits", [{"max_entries": 2}, {"max_bytes": 4}])
def test_a_limit_is_never_exceeded(limits: dict[str, int]) -> None:
    """The record that would exceed it is not applied. Changes of an entry, and deletions, make room."""
    table = contents(**limits)
    table.apply([record("a", "1"), record("b", "1"), record("a", "2"), record("b", None), record("c", "1")])
    with pytest.raises(TableTooLargeError, match=f"table of t needs more than .*increase {next(iter(limits))}"):
        table.apply([record("d", "1")])
    assert {"a": "2", "c": "1"} == table.values


@pytest.mark.parametrize("key", [{"id": 1}, [1], ([],)])
def test_a_key_that_is_not_hashable_names_the_option(key: object) -> None:
    """The error says which record it is, and what to change."""
    with pytest.raises(ConfigError, match=r"a key of t-0, at offset 7, is a .*: choose a key_deserializer that"):
        contents().apply([record(key, "1")])


def test_a_partition_that_is_read_again_loses_what_it_no_longer_has() -> None:
    """Entries stay until its end is reached; those of other partitions stay for ever."""
    table = contents()
    table.apply([record("a", "1"), record("b", "1"), record("c", "1"), record("x", "1", partition=1)])
    table.restart(0)
    assert [("a", "2")] == table.apply([record("a", "2")])
    table.apply([record("c", "9", partition=1)])
    assert {"a": "2", "b": "1", "c": "9", "x": "1"} == table.values
    assert [("b", None)] == table.finish(0)
    assert ({"a": "2", "c": "9", "x": "1"}, 6) == (table.values, table.bytes)
    assert [] == table.finish(0)
