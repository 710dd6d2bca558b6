"""Our wire format compared with Kafka's: the tables with its definitions, and the bytes with those of its Java
classes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kconsumer._core.codec import decode, encode, encode_request
from kconsumer.coordinator.classic_protocol.embedded import encode_assignment, encode_subscription
from kconsumer.schema import APIS, all_apis
from kconsumer.schema.dsl import NEWEST, Api, Array, Field, Kind, Message, Scalar, Versions, plan
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from support.oracles.java_wire import CASES, Java, as_json, message_class, message_definitions, random_message

MESSAGES = [
    (message_class(api, direction), f"{api.name}{direction.capitalize()}")
    for api in all_apis().values()
    for direction in ("request", "response")
]
MESSAGES += [(cls, cls.__name__) for cls in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)]

# A consumer's defaults where Kafka's are for followers and debugging.
OWN_DEFAULTS = {"ListOffsetsRequest.replica_id": -1, "OffsetForLeaderEpochRequest.replica_id": -1}


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    """A Java process with Kafka's wire code."""
    with Java() as process:
        yield process


@pytest.fixture(scope="module")
def definitions() -> dict[str, Any]:
    """Kafka's definitions of its messages."""
    return message_definitions()


def test_apis_are_kafkas(java: Java) -> None:
    """Keys, version ranges, header versions and client-side throttling are those of Kafka's newest client."""
    rows = [row.split(" ") for row in java.ask("facts").split(";")]
    theirs = {int(row[1]): row for row in rows}
    for api in all_apis().values():
        versions = range(api.min_version, api.max_version + 1)
        ours = [api.name, str(api.key), str(api.min_version), str(api.max_version)]
        for version in versions:
            throttled = api.throttle_from is not None and version >= api.throttle_from
            headers = f"{api.request_header_version(version)}/{api.response_header_version(version)}"
            ours.append(f"{headers}/{str(throttled).lower()}")
        assert theirs[api.key] == ours


@pytest.mark.parametrize(("cls", "name"), MESSAGES, ids=[name for _, name in MESSAGES])
def test_tables_are_kafkas(definitions: dict[str, Any], cls: type[Message], name: str) -> None:
    """Each struct has Kafka's fields in Kafka's order, with its kinds, versions, nulls, tags and defaults."""
    definition = definitions[name]
    commons = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    compare_struct(cls, definition["fields"], commons, Versions.parse(definition["validVersions"]))


def compare_struct(cls: type[Message], theirs: list[Any], commons: dict[str, Any], valid: Versions) -> None:
    """Compare the table of one struct, and of the structs inside it, with its definition."""
    assert [snake_case(field["name"]) for field in theirs] == [field.name for field in cls.FIELDS]
    for ours, field in zip(cls.FIELDS, theirs, strict=True):
        kind = field["type"].removeprefix("[]")
        where = f"{cls.__name__}.{ours.name}"
        assert (where, within(field["versions"], valid)) == (where, clipped(ours.versions, valid))
        assert (where, within(field.get("nullableVersions", ""), valid)) == (where, clipped(ours.null, valid))
        assert (where, field.get("tag")) == (where, ours.tag)
        assert (where, kind_of(field)) == (where, kind_name(ours.kind))
        default = OWN_DEFAULTS.get(where, default_of(field, ours))
        assert (where, default) == (where, ours.fresh() if ours.fresh is list else ours.default)
        inner = ours.kind.element if isinstance(ours.kind, Array) else ours.kind
        if isinstance(inner, type):
            carried = clipped(ours.versions, valid)
            narrowed = Versions(carried.start, carried.stop - 1)
            compare_struct(inner, field.get("fields") or commons[kind], commons, narrowed)


def within(text: str, valid: Versions) -> range:
    """Returns the versions of a definition's range that are valid for us."""
    return clipped(Versions.parse("" if text == "none" else text), valid)


def clipped(versions: Versions, valid: Versions) -> range:
    """Returns the valid versions in a range."""
    return range(max(versions.first, valid.first), min(versions.last, valid.last, NEWEST) + 1)


def kind_of(field: dict[str, Any]) -> str:
    """Returns the type of a definition; all structs have the type struct."""
    array, kind = field["type"].startswith("[]"), field["type"].removeprefix("[]")
    return ("[]" if array else "") + ("struct" if kind[0].isupper() else kind)


def kind_name(kind: Kind) -> str:
    """Returns the name of our kind as Kafka spells it."""
    if isinstance(kind, Array):
        return "[]" + kind_name(kind.element)
    return kind.name if isinstance(kind, Scalar) else "struct"


def default_of(field: dict[str, Any], ours: Field) -> Any:
    """Returns a definition's default; defaults of structs cannot be compared."""
    kind, given = field["type"], field.get("default")
    if given == "null" or kind[0].isupper():
        return None
    if kind.startswith("[]"):
        return []
    if given is None:
        return ours.kind.default if isinstance(ours.kind, Scalar) else None
    return {"string": str, "bool": lambda text: text == "true"}.get(kind, lambda text: int(str(text), 0))(given)


def snake_case(name: str) -> str:
    """Returns a Java name in our spelling."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_bytes_are_kafkas(java: Java, api: Api) -> None:
    """Java writes the same bytes for the same message, and writes our bytes again unchanged after reading them."""
    for version, direction in (case[1:] for case in CASES if case[0] is api):
        cls = message_class(api, direction)
        name = f"{api.name}{direction.capitalize()}Data"
        plan_here = plan(cls, version, api.is_flexible(version))
        rng = random.Random(f"{name} {version}")
        for _ in range(8):
            message = random_message(cls, version, rng)
            ours = encode(plan_here, message)
            assert java.ask("write", name, version, json.dumps(as_json(message, version))) == ours.hex()
            assert java.ask("read", name, version, ours.hex()) == ours.hex()
            assert message == decode(plan_here, ours)


@pytest.mark.parametrize("client_id", ["kconsumer-1", None])
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_whole_requests_are_kafkas(java: Java, api: Api, client_id: str | None) -> None:
    """A request with its headers has the bytes that Java would send."""
    for version in range(api.min_version, api.max_version + 1):
        message = random_message(api.request, version, random.Random(version))
        body = json.dumps(as_json(message, version))
        theirs = bytes.fromhex(java.ask("request", api.name, version, 2**31 - 1, client_id or "-", body))
        size = len(theirs).to_bytes(4, "big")
        assert size + theirs == encode_request(api, version, 2**31 - 1, client_id, message)


@pytest.mark.parametrize("version", range(4))
def test_embedded_protocol_is_kafkas(java: Java, version: int) -> None:
    """Subscriptions and assignments of the classic protocol have Java's bytes, after the version they start with."""
    rng = random.Random(version)
    for _ in range(8):
        subscription = random_message(ConsumerProtocolSubscription, version, rng)
        ordered = decode(plan(type(subscription), version, False), encode_subscription(subscription, version), 2)
        assignment = random_message(ConsumerProtocolAssignment, version, rng)
        written = [(ordered, encode_subscription(subscription, version))]
        written += [(assignment, encode_assignment(assignment, version))]
        for message, ours in written:
            body = json.dumps(as_json(message, version))
            theirs = java.ask("write", type(message).__name__, version, body)
            assert version.to_bytes(2, "big").hex() + theirs == ours.hex()
