"""JSON schemas mean what they mean for Confluent's deserializer in Java."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from jsonschema import ValidationError

from kconsumer.deserializers import SerializationContext
from kconsumer.errors import ConfigError
from kconsumer.registry import JsonSchemaDeserializer

CONTEXT = SerializationContext("orders", "value", [])
ORDER = {"type": "object", "required": ["number"]}
LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
NEWER, OLDER = "json-schema.org/draft/2020-12/schema", "json-schema.org/draft-07/schema#"


class Registry:
    """A client whose schemas are given. Referred schemas are found by their subjects, also if they are deleted."""

    def __init__(self, schema: Any, referred: dict[str, Any]) -> None:
        self._schemas = {name: Schema(json.dumps(part), "JSON") for name, part in referred.items()}
        references = [SchemaReference(name, name, 1) for name in referred]
        self._schema_of_id = Schema(json.dumps(schema), "JSON", references)

    def get_schema(self, schema_id: int) -> Schema:
        return self._schema_of_id

    def get_version(self, subject: str, version: int, deleted: bool = False) -> Any:
        assert deleted
        return SimpleNamespace(schema=self._schemas[subject])


def accepted(schema: Any, data: bytes, referred: dict[str, Any] | None = None) -> bool:
    """Returns True if a value matches a schema."""
    try:
        JsonSchemaDeserializer(Registry(schema, referred or {}))(b"\0\0\0\0\1" + data, CONTEXT)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("./order.json", "order.json"),
        ("my%20order.json", "my order.json"),
        ("my%20order.json", "my%20order.json"),
        ("my order.json#/$defs/order", "my order.json"),
        ("my%20order.json#/definitions/order", "my order.json"),
        ("Auftr%C3%A4ge/order.json", "Aufträge/order.json"),
        ("com.acme.Order", "com.acme.Order"),
    ],
)
@pytest.mark.parametrize("base", [{}, {"$id": "http://example.com/schemas/orders.json"}])
def test_names_of_references(reference: str, name: str, base: dict[str, str]) -> None:
    """A name is found with or without escapes, and relative to the schema that has the reference."""
    part = ORDER if "#" not in reference else {"definitions": {"order": ORDER}}
    schema = {**base, "items": {"$ref": reference}}
    assert [True, False] == [accepted(schema, data, {name: part}) for data in (b'[{"number": 1}]', b"[{}]")]


OLDEST = "http://json-schema.org/draft-04/schema#"
ORDERS, PLACE = {"$id": "http://example.com/orders.json"}, "http://other.com/x/"
REFERENCE = {"$ref": "order.json"}
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "referred", "older", "newer"),
    [
        ({"$ref": "order.json"}, {"order.json": NUMBER}, NUMBER, NUMBER),
        ({"$ref": "v2/order.json"}, {"order.json": NUMBER}, None, None),
        ({"$ref": "/order.json"}, {"order.json": NUMBER}, None, NUMBER),
        ({**ORDERS, "not": REFERENCE}, {"http://example.com/order.json": NUMBER}, TEXT, TEXT),
        ({**ORDERS, "not": {"$ref": f"{PLACE}order.json"}}, {"order.json": NUMBER}, None, None),
        ({**ORDERS, "not": {"$ref": "v2/order.json"}}, {"order.json": NUMBER, "v2/order.json": TEXT}, NUMBER, NUMBER),
        ({"$ref": "a/b.json"}, {"a/b.json": REFERENCE, "order.json": NUMBER, "a/order.json": TEXT}, TEXT, NUMBER),
        ({"$ref": "a#/parts/b"}, {"a": {"parts": {"b": REFERENCE}}, "order.json": NUMBER}, NUMBER, NUMBER),
        ({"$ref": "b"}, {"b": {"$id": f"{PLACE}b", "not": REFERENCE}, f"{PLACE}order.json": NUMBER}, TEXT, TEXT),
        ({"not": {"$id": f"{PLACE}b", "not": REFERENCE}}, {f"{PLACE}order.json": TEXT}, TEXT, TEXT),
        ({"$schema": OLDEST, "id": f"{PLACE}b", "not": REFERENCE}, {f"{PLACE}order.json": TEXT}, NUMBER, NUMBER),
        ({**LATEST, "$ref": "a#n"}, {"a": {"not": {**TEXT, "$anchor": "n"}}}, TEXT, TEXT),
    ],
)
def test_references_as_java_finds_them(schema: Any, referred: dict[str, Any], older: Any, newer: Any) -> None:
    """A `$ref` finds a name, as it is or relative to the id around it: never another name with which it ends."""
    for draft, expected in ((OLDER, older), (NEWER, newer)):
        given = {"$schema": f"https://{draft}", **schema}
        if not expected:
            with pytest.raises(Exception, match="Unresolvable"):
                accepted(given, b"1", referred)
        else:
            found = accepted(given, b"1", referred), accepted(given, b'"a"', referred)
            assert (expected == NUMBER, expected == TEXT) == found


@pytest.mark.parametrize("draft", [OLDER, NEWER])
def test_both_names_of_definitions(draft: str) -> None:
    """`$defs` finds what is in `definitions`, unless it has the name itself."""
    schema = {"$schema": f"https://{draft}", "$ref": "#/$defs/a", "definitions": {"a": {"type": "string"}}}
    assert [True, False] == [accepted(schema, data) for data in (b'"x"', b"1")]
    assert accepted({**schema, "$defs": {"a": {"type": "integer"}}}, b"1")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_drafts_with_either_scheme(scheme: str) -> None:
    """A schema names its draft, and refers to the schema of a draft, with http or https."""
    assert not accepted({"$schema": f"{scheme}://{NEWER}", "prefixItems": [{"type": "string"}]}, b"[1]")
    old = {"$schema": f"{scheme}://json-schema.org/draft-04/schema", "minimum": 1, "exclusiveMinimum": True}
    assert [True, False] == [accepted(old, data) for data in (b"2", b"1")]
    for draft in (OLDER, NEWER):
        assert not accepted({"$ref": f"{scheme}://{draft}"}, b'{"type": "strin"}')


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\p{L}+$", "añb", "a1"),
        (r"^\pL[\p{Nd}_-]*$", "é1_-", "éa"),
        (r"^[^\p{Lu}\P{L}]$", "a", "1"),
        (r"^\p{IsL}\P{Alpha}\p{^Lu}$", "é1a", "é1A"),
        (r"^\p{Letter}\p{gc=Lu}$", "aB", "ab"),
        (r"^\d\w\s$", "1a ", "٣a "),
        (r"^[\d\w]$", "a", "é"),
        (r"^[\D]\W\S$", "é a", "1 a"),
        (r"^(?<year>\d{4})-\k<year>$", "2020-2020", "2020-2021"),
        (r"(?<=a)b\z", "ab", "cb"),
        (r"^\u{1f600}\x{e9}\ud83d\ude01\cJ$", "\U0001f600é\U0001f601\n", "u"),
        (r"^\Qa.b\E[a[\]]$", "a.b[", "axb["),
        (r"^a\/b\-\.$", "a/b-.", "a/b-x"),
        (r"^\h\R\Z", "\t\r\n", "a\n"),
    ],
)
def test_patterns_of_java(pattern: str, good: str, bad: str) -> None:
    """Patterns have the syntax of ECMAScript and Java, in which digits and letters are those of ASCII."""
    assert [True, False] == [accepted({"pattern": pattern}, json.dumps(data).encode()) for data in (good, bad)]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"patternProperties": {r"^\p{Lu}": {}}, "additionalProperties": False}, '{"A": 1}', '{"a": 1}'),
        ({"properties": {"pattern": {"pattern": r"^\p{Lu}$"}}}, '{"pattern": "A"}', '{"pattern": "a"}'),
        ({"const": {"pattern": r"\p{L}"}}, r'{"pattern": "\\p{L}"}', "{}"),
        ({"propertyNames": {"pattern": r"^\d$"}}, '{"1": 2}', r'{"\u0663": 2}'),
        ({**LATEST, "patternProperties": {r"^\p{L}": {}}, "unevaluatedProperties": False}, '{"é": 1}', '{"1": 1}'),
        ({"x-files": {"pattern": "*.csv"}, "pattern": r"^[+-\d]+$"}, '"+5-"', '"/"'),
        ({"pattern": r"^[(?<a]$"}, '"?"', '"P"'),
        ({"patternProperties": {r"^\d$": {"type": "string"}, "^[0-9]$": {"maxLength": 1}}}, '{"1": "a"}', '{"1": 2}'),
    ],
)
def test_places_of_patterns(schema: Any, good: str, bad: str) -> None:
    """Each keyword with patterns understands them, and values that look like such a keyword stay as they are."""
    assert [True, False] == [accepted(schema, data.encode()) for data in (good, bad)]


@pytest.mark.parametrize("pattern", [r"(?<=a|bc)d", r"\p{IsLatin}", "[", "[a-z&&[^b]]"])
def test_patterns_that_python_cannot_have(pattern: str) -> None:
    """The error shows the pattern as it is in the schema."""
    with pytest.raises(ConfigError, match=r"for the pattern .* of a schema"):
        accepted({"pattern": pattern}, b'"a"')


@pytest.mark.parametrize("number", [b"4.35", b"19.99", b"0.3", b"1e20", b"7"])
def test_multiples_by_their_digits(number: bytes) -> None:
    """A number is a multiple of 0.01 if its digits are, also in a schema that another one refers to."""
    cents = {"$schema": f"http://{OLDER}", "multipleOf": 0.01}
    assert accepted({"$ref": "cents"}, number, {"cents": cents})
    for other in (b"4.355", b"1e400"):
        assert not accepted({"$ref": "cents"}, other, {"cents": cents})


@pytest.mark.parametrize("data", [b'{"a": NaN}', b"[-Infinity]", b"", b"{} {}"])
def test_values_that_are_no_json(data: bytes) -> None:
    """NaN and infinity are not JSON."""
    with pytest.raises(ValueError, match="after the schema id 1 are no JSON"):
        accepted({}, data)
