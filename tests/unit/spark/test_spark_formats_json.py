"""JSON values decoded to Arrow columns: valid ones as Spark's `from_json` does, and which ones are invalid."""

from __future__ import annotations

import datetime
import json
import random
import sys
import zoneinfo
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer.formats.column_types import parse_type
from kconsumer.formats.json_columns import JsonDecoder

FIT = b'{"v":null}'
BAD = "never a value"


def decode(ddl: str, values: list[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """Returns the rows and the invalid ones, and checks that the column is valid and has the expected type."""
    kind = parse_type(ddl)
    column, bad = JsonDecoder(kind).decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert (kind.arrow(), len(values)) == (column.type, len(column))
    rows = column.to_pylist()
    assert all(rows[row] is None for row in bad)
    return rows, bad


def value_of(ddl: str, text: str) -> Any:
    """Returns the value of a field, BAD if the document is bad; it is the same alone and next to other documents."""
    document = b'{"v":' + text.encode() + b"}"
    first: Any = None
    for values in ([document], [FIT, document], [b"{", document, FIT], [document, b'{"v":[{}]}', b'{"v":{"x":[[]]}}']):
        at = values.index(document)
        rows, bad = decode(f"v {ddl}", values)
        found = BAD if at in bad else rows[at]["v"]
        if len(values) > 1:
            assert repr(first) == repr(found), (ddl, text, values)
        first = found
    return first


@pytest.mark.parametrize("name", ['"', "\\", "a\nb", "`"])
def test_any_name_of_a_field(name: str) -> None:
    """A field may have any name, also one that msgspec does not allow, in a struct or a map of its own."""
    quoted = "`" + name.replace("`", "``") + "`"
    for ddl, value in (("int", 5), (f"struct<{quoted}:int>", {name: 5}), ("map<string,int>", [("a", 5)])):
        document = json.dumps({name: dict(value) if isinstance(value, list) else value}).encode()
        found, bad = decode(f"{quoted} {ddl}", [document, b"{", b'{"id": 1}'])
        assert ([{name: value}, None, {name: None}], {1}) == (found, bad.keys())


utc = zoneinfo.ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("ddl", "text", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", '"true"', BAD),
        ("boolean", "1", BAD),
        ("tinyint", "-128", -128),
        ("tinyint", "128", BAD),
        ("smallint", "32768", BAD),
        ("int", "2147483647", 2**31 - 1),
        ("int", "2147483648", BAD),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "9223372036854775808", BAD),
        ("long", "1" * 5000, BAD),
        ("long", "-0", 0),
        ("long", "01", BAD),
        ("long", "1.0", BAD),
        ("long", "1e3", BAD),
        ("long", '"1"', BAD),
        ("long", "NaN", BAD),
        ("long", "true", BAD),
        ("long", "null", None),
        ("double", "1", 1.0),
        ("double", "-0.0", -0.0),
        ("double", "1e999", float("inf")),
        ("double", "123456789012345678901234567890", 1.2345678901234568e29),
        ("double", "NaN", float("nan")),
        ("double", '"NaN"', float("nan")),
        ("double", "-Infinity", float("-inf")),
        ("double", '"-INF"', float("-inf")),
        ("double", "Inf", BAD),
        ("double", '"Inf"', BAD),
        ("double", '"INF"', BAD),
        ("double", '"1.5"', BAD),
        ("double", "1.", BAD),
        ("double", ".5", BAD),
        ("float", "0.1", 0.10000000149011612),
        ("float", "1e39", float("inf")),
        ("decimal(5,2)", "1.25", Decimal("1.25")),
        ("decimal(5,2)", '"1.25"', Decimal("1.25")),
        ("decimal(5,2)", "1.255", Decimal("1.26")),
        ("decimal(5,2)", "-1.255", Decimal("-1.26")),
        ("decimal(5,2)", "1e2", Decimal("100.00")),
        ("decimal(5,2)", "999.99", Decimal("999.99")),
        ("decimal(5,2)", "999.995", BAD),
        ("decimal(5,2)", "1000", BAD),
        ("decimal(5,2)", "1e999999999", BAD),
        ("decimal(5,2)", "1e-999999999", Decimal("0.00")),
        ("decimal(5,2)", '"1e-999999999"', Decimal("0.00")),
        ("decimal(5,2)", "0." + "0" * 60 + "1", Decimal("0.00")),
        ("decimal(38,18)", "9" * 20, Decimal("9" * 20 + "." + "0" * 18)),
        ("decimal(38,18)", "9" * 21, BAD),
        ("decimal(5,2)", '"1\\u0065-999999999"', Decimal("0.00")),
        ("decimal(5,2)", '"\\u0031e-999999999"', Decimal("0.00")),
        ("decimal(5,2)", '"1.\\u0032"', Decimal("1.20")),
        ("decimal(38,38)", "4", BAD),
        ("decimal(38,37)", "-9.5", Decimal("-9.5" + "0" * 36)),
        ("decimal(5,2)", '"0E+-722"', BAD),
        ("decimal(5,2)", '"1_0"', BAD),
        ("decimal(5,2)", '"x"', BAD),
        ("decimal(5,2)", "NaN", BAD),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
        ("string", '"a\\u00e9\\n\\ud83d\\ude00\\u0000"', "aé\n😀\0"),
        ("string", '""', ""),
        ("string", "1.50", "1.50"),
        ("string", "true", "true"),
        ("string", '{"b": [1.0, null, "x"], "a": {}}', '{"b":[1.0,null,"x"],"a":{}}'),
        ("string", '"\\ud800"', BAD),
        ("string", '"a\nb"', BAD),
        ("string", '"a\\qb"', BAD),
        ("binary", '"aGk="', b"hi"),
        ("binary", '""', b""),
        ("binary", '"aGk"', BAD),
        ("binary", '"é"', BAD),
        ("binary", "1", BAD),
        ("date", '"2024-02-29"', datetime.date(2024, 2, 29)),
        ("date", '"2023-02-29"', BAD),
        ("date", '"20240229"', BAD),
        ("date", '"2024-02-29T00:00:00"', BAD),
        ("date", "19000", BAD),
        ("date", '""', BAD),
        ("timestamp", '"2024-01-02T03:04:05.123456Z"', datetime.datetime(2024, 1, 2, 3, 4, 5, 123456, utc)),
        ("timestamp", '"2024-01-02T03:04:05.123456789Z"', datetime.datetime(2024, 1, 2, 3, 4, 5, 123456, utc)),
        ("timestamp", '"1969-12-31 23:59:59.9999999"', datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, utc)),
        ("timestamp", '"2024-01-02 03:04"', datetime.datetime(2024, 1, 2, 3, 4, tzinfo=utc)),
        ("timestamp", '"2024-01-02T03:04:05+02:00"', datetime.datetime(2024, 1, 2, 1, 4, 5, tzinfo=utc)),
        ("timestamp", '"2024-01-02T03:04:05-0230"', datetime.datetime(2024, 1, 2, 5, 34, 5, tzinfo=utc)),
        ("timestamp", '"2024-01-02"', datetime.datetime(2024, 1, 2, tzinfo=utc)),
        ("timestamp", '"2024-01-02\\n"', BAD),
        ("timestamp", '"2024-01-02T25:00:00Z"', BAD),
        ("timestamp", '"2024-01-02T03"', BAD),
        ("timestamp", '"yesterday"', BAD),
        ("timestamp", "1704164645", BAD),
        ("timestamp_ntz", '"2024-01-02T03:04:05"', datetime.datetime(2024, 1, 2, 3, 4, 5)),
        ("timestamp_ntz", '"2024-01-02"', datetime.datetime(2024, 1, 2)),
        ("timestamp_ntz", '"2024-01-02T03:04:05Z"', BAD),
        ("array<int>", "[1,null,3]", [1, None, 3]),
        ("array<int>", "[]", []),
        ("array<int>", "[1,[2]]", BAD),
        ("array<int>", "1", BAD),
        ("array<date>", '["2024-01-02",null]', [datetime.date(2024, 1, 2), None]),
        (
            "array<struct<d:date>>",
            '[{"d":"2024-01-02"},null,{}]',
            [{"d": datetime.date(2024, 1, 2)}, None, {"d": None}],
        ),
        ("struct<a:int,b:string>", '{"b":"x"}', {"a": None, "b": "x"}),
        ("struct<a:int>", "[1]", BAD),
        ("struct<a:int>", '"{}"', BAD),
        ("map<string,date>", '{"k":"2024-01-02","l":null}', [("k", datetime.date(2024, 1, 2)), ("l", None)]),
        ("map<string,int>", '{"k":1,"k":2}', [("k", 2)]),
        ("map<string,int>", "[1]", BAD),
    ],
)
def test_each_type(ddl: str, text: str, expected: Any) -> None:
    """Text that matches the type is its value; other text makes the whole document invalid, whatever documents are next
    to it.
    """
    assert repr(expected) == repr(value_of(ddl, text))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "is not JSON: Expecting value"),
        (b" ", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"v":1', "is not JSON"),
        (b'{"v":1}{"v":2}', "is not JSON: Extra data"),
        (b'{"v":1} {"v":', "is not JSON"),
        (b'{"v":1},', "is not JSON"),
        (b'{"v":1,}', "is not JSON"),
        (b"{'v':1}", "is not JSON"),
        (b'{"v":1}//', "is not JSON"),
        (b'{"v":1}\0', "is not JSON"),
        (b'{"v":1}\0{"v":2}', "is not JSON"),
        (b'{"x":Inf}', "is not JSON"),
        (b'\xef\xbb\xbf{"v":1}', "is not JSON"),
        (b'{"x":"\xff"}', "is not UTF-8"),
        (b"null", "is null, which is not struct<v:bigint>"),
        (b"[]", "is [], which is not struct<v:bigint>"),
        (b'[{"v":1}]', 'is [{"v":1}], which is not struct'),
        (b'"{}"', 'is "{}", which is not struct'),
        (b"1.50", "is 1.50, which is not struct"),
        (b'{"v":"' + b"x" * 100 + b'"}', 'has "' + "x" * 36 + "... at v, which is not bigint"),
    ],
)
def test_garbage(value: bytes, words: str) -> None:
    """Each kind of invalid document is found alone and among others, which stay valid; null stays null."""
    for values, at in (([value], 0), ([b'{"v":1}', value, None, b'{"v":3}', value], 1), ([value] * 200, 7)):
        rows, bad = decode("v long", values)
        assert [row for row, given in enumerate(values) if given == value] == sorted(bad)
        assert words in bad[at]
        assert [{"v": 1}, None, None, {"v": 3}, None] == rows or value in (values[0], values[-1] and None)


def test_halves_of_a_string_or_object_do_not_join() -> None:
    """Two values that together form one document are both invalid, also if a third value makes the number of documents
    right.
    """
    for values in (
        [b'{"v":"}', b'{"}'],
        [b'{"v":1}{"x":{}', b'{"x":{}}}'],
        [b'{"v":1}{"v":2}', b""],
        [b'{"v":1}{"v":2}', b'{"x":{"v":1}', b"}"],
    ):
        assert set(range(len(values))) == set(decode("v string", values)[1])


@pytest.mark.parametrize("depth", [5, 500, 5000, 100_000])
def test_nesting(depth: int) -> None:
    """A deeply nested value of a field that is not read gives the same row next to a bad value and next to a good
    one."""
    deep = b'{"x":' + b"[" * depth + b"]" * depth + b',"a":1}'
    found = [decode("a long", [deep, other])[0][0] for other in (b"{}", b"{", b'{"a":[]}')]
    assert [{"a": 1}] * 3 == found
    as_text = decode("x string", [deep])
    assert 100_000 > depth or {0: "is nested too deep"} == as_text[1]


def test_values_that_are_no_objects() -> None:
    """A schema may have another type than a struct; `null` is then an invalid value."""
    assert ([[1, None], None, None], {2: "is null, which is not array<int>"}) == decode(
        "array<int>", [b"[1,null]", None, b"null"]
    )
    assert ([[("k", 1.5)], None], {1: "is [], which is not map<string,double>"}) == decode(
        "map<string,double>", [b'{"k":1.5}', b"[]"]
    )
    assert ([datetime.datetime(2024, 1, 2, tzinfo=utc), None], {1: "is 1, which is not timestamp"}) == decode(
        "timestamp", [b'"2024-01-02"', b"1"]
    )


@pytest.mark.parametrize("msgspec", [True, False])
def test_many_bad_values_among_good_ones(msgspec: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each invalid value is found at its row, however many there are, with msgspec or without it."""
    if not msgspec:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    chance = random.Random(4)
    for share in (0.0, 0.0005, 0.01, 0.5, 1.0):
        wrong = {row for row in range(3000) if chance.random() < share}
        values = [b'{"a":' if row in wrong else None if row % 7 == 3 else b'{"a":%d}' % row for row in range(3000)]
        rows, bad = decode("a long", values)
        assert wrong == set(bad)
        good = [row for row in range(3000) if row not in wrong and row % 7 != 3]
        assert [{"a": row} for row in good] == [rows[row] for row in good]


@pytest.mark.parametrize("wrong", [b'{"a":"1"}', b'{"a":', b'{"a":1},{"a":2}', b'{"a":1', b'"b":2}', b""])
def test_batches_after_one_with_a_bad_value(wrong: bytes) -> None:
    """After a batch with a value that does not match, the same decoder finds those of the next batches."""
    decoder, good = JsonDecoder(parse_type("a long")), [b'{"a":%d}' % row for row in range(1500)]
    for at in ({700}, {5, 700, 701, 1499}, set[int](), {0}, set[int]()):
        values = [wrong if row in at else value for row, value in enumerate(good)]
        column, bad = decoder.decode(pa.array(values, pa.binary()))
        assert at == set(bad)
        assert [None if row in at else {"a": row} for row in range(1500)] == column.to_pylist()


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
fields = st.fixed_dictionaries(
    {},
    optional={
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "double": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)),
        "part": st.none() | st.fixed_dictionaries({}, optional={"long": st.none() | st.integers(0, 9)}),
        "other": anything,
    },
)
SCHEMA = "long long, double double, text string, flag boolean, list array<int>, part struct<long: long>"


@settings(deadline=None)  # the first one imports
@given(st.lists(st.tuples(fields, st.sampled_from([None, 1, "\t"]), st.booleans())), st.booleans())
def test_valid_documents_as_json_loads_has_them(
    written: list[tuple[dict[str, Any], Any, bool]], with_bad: bool
) -> None:
    """Every valid document gives the result of json.loads, decoded together or one by one."""
    values = [json.dumps(item, indent=indent, ensure_ascii=ascii).encode() for item, indent, ascii in written]
    rows, bad = decode(SCHEMA, [*values, *([b"}"] if with_bad else [])])
    assert with_bad == bool(bad)
    for row, value in zip(rows, values, strict=False):
        loaded = json.loads(value)
        expected = {name: loaded.get(name) for name in ("long", "double", "text", "flag", "list", "part")}
        if expected["part"] is not None:
            expected["part"] = {"long": expected["part"].get("long")}
        assert expected == row


@settings(deadline=None)  # the first one imports
@given(st.lists(st.binary(max_size=8) | anything.map(lambda item: json.dumps(item).encode()), min_size=1))
def test_a_value_does_not_depend_on_others_in_the_batch(values: list[bytes]) -> None:
    """Documents give the same rows and reasons, decoded together or one by one."""
    together = decode("a long, b double", values)
    alone = [decode("a long, b double", [value]) for value in values]
    assert [rows[0] for rows, _ in alone] == together[0]
    assert {row: bad[0] for row, (_, bad) in enumerate(alone) if bad} == together[1]


TEXTS = [
    *("0", "-0", "1", "127", "128", "2147483648", "9223372036854775808", "01", "1.5", "1.505", "1.", "1e2", "1E-7"),
    *("1e-60", "1e60", "1e-999999999", "99999999.99", "999999999.99", "0." + "0" * 45 + "1", "9" * 40, "-1", "+1"),
    *("NaN", "Infinity", "-Infinity", "Inf", "-Inf", '"NaN"', '"Infinity"', '"1.5"', '" 1"', '"1e-60"', '"1_0"', '""'),
    *("true", "false", "null", "nul", "[]", "[1,null]", '["a"]', "[[1]]", "{}", '{"x":"2024-01-02"}', '{"x":1,"x":2}'),
    *('"2024-01-02"', '"2024-02-30"', '"0000-01-01"', '"2024-01-02T03:04:05.123456789Z"', '"2024-01-02 03:04"'),
    *('"2024-01-02T24:00:00Z"', '"2024-01-02T03:04:60"', '"2024-01-02T03:04:05+25:00"', '"9999-12-31T23:59:59-12"'),
    *('"a\tb"', '"\\u00e9\\ud83d"', '"\\ude00"', '"\\u0000"', '"é"', "\0", " 1 ", "\n1\n", "1,", "1}", '1,"a":2'),
]
MIXED = (
    "a bigint, b tinyint, c double, d float, e decimal(10,2), f decimal(38,20), g string, h boolean, i array<int>,"
    " j struct<x: date>, k date, l timestamp, m timestamp_ntz, n array<struct<x: timestamp>>"
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("abcdefghijklmno"), st.sampled_from(TEXTS)), min_size=1, max_size=3))
def test_at_once_and_one_by_one_are_the_same(fields: list[tuple[str, str]]) -> None:
    """A document gives the same row when Arrow decodes it alone and when Python decodes it next to an invalid one."""
    document = b"{" + b",".join(f'"{name}":{text}'.encode() for name, text in fields) + b"}"
    alone, mixed = (
        JsonDecoder(parse_type(MIXED)).decode(pa.array(values)) for values in ([document], [document, b"{"])
    )
    alone.column.validate(full=True)
    assert alone.column.to_string() == mixed.column[:1].to_string()
    assert alone.bad.get(0) == mixed.bad.get(0)


def test_in_a_large_batch_and_one_by_one_are_the_same() -> None:
    """Documents give the same rows and reasons in a batch in which msgspec finds those that do not match."""
    documents = [f'{{"{name}":{text}}}'.encode() for name in "abcdefghijklmno" for text in TEXTS] + [b"\xff", b"{} {}"]
    together = JsonDecoder(parse_type(MIXED)).decode(pa.array(documents, pa.binary()))
    together.column.validate(full=True)
    for row, document in enumerate(documents):
        alone = JsonDecoder(parse_type(MIXED)).decode(pa.array([document], pa.binary()))
        assert alone.column.to_string() == together.column[row : row + 1].to_string()
        assert alone.bad.get(0) == together.bad.get(row)
