"""The compiled codec compared with the slow one, for every API at every version, and on arbitrary bytes."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kconsumer._core.codec import decode, decode_request, decode_response, encode
from kconsumer.coordinator.classic_protocol.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kconsumer.errors import ProtocolError
from kconsumer.schema import APIS, Api
from kconsumer.schema.dsl import plan
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from support.oracles.wire_reference import reference_decode, reference_encode
from support.oracles.wire_strategies import CASE_IDS, CASES, message_class, messages

quick = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
every_message = pytest.mark.parametrize(("api", "version", "direction"), CASES, ids=CASE_IDS)

messages = functools.cache(messages)


def plan_of(api: Api, version: int, direction: str) -> Any:
    """Returns the plan of a request or response."""
    return plan(message_class(api, direction), version, api.is_flexible(version))


@every_message
@quick
@given(data=st.data())
def test_agrees_with_the_slow_codec(api: Api, version: int, direction: str, data: st.DataObject) -> None:
    """Both codecs write the same bytes, and both read back the message that was written."""
    cls = message_class(api, direction)
    flexible = api.is_flexible(version)
    message = data.draw(messages(cls, version))
    wire = reference_encode(message, version, flexible)
    assert wire == encode(plan_of(api, version, direction), message)
    assert message == decode(plan_of(api, version, direction), wire)
    assert message == reference_decode(cls, version, flexible, wire)


@every_message
@quick
@given(data=st.data())
def test_hostile_bytes_end_in_protocol_error(api: Api, version: int, direction: str, data: st.DataObject) -> None:
    """Changed, cut and random bytes give ProtocolError or a message, and such a message can be written."""
    wire = bytearray(
        encode(plan_of(api, version, direction), data.draw(messages(message_class(api, direction), version)))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(wire)))
        wire[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    try:
        message = decode(plan_of(api, version, direction), wire)
    except ProtocolError:
        return
    again = encode(plan_of(api, version, direction), message)
    assert message == decode(plan_of(api, version, direction), again)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(CASES), st.binary(max_size=80))
def test_noise_is_no_response(case: tuple[Api, int, str], noise: bytes) -> None:
    """A frame of random bytes gives a response or ProtocolError."""
    api, version, _ = case
    with contextlib.suppress(ProtocolError):
        decode_response(api, version, noise)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(CASES), st.binary(max_size=80))
def test_noise_is_no_request(case: tuple[Api, int, str], noise: bytes) -> None:
    """Random bytes, with or without a known key and version before them, give a request or ProtocolError."""
    api, version, _ = case
    for frame in (noise, api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + noise):
        with contextlib.suppress(ProtocolError):
            decode_request(APIS, frame)


@quick
@given(data=st.data(), version=st.integers(0, 3))
def test_embedded_subscription_round_trip(data: st.DataObject, version: int) -> None:
    """A subscription is read as it was written, apart from the order of its lists."""
    message = data.draw(messages(ConsumerProtocolSubscription, version))
    found = decode_subscription(encode_subscription(message, version))
    assert sorted(message.topics) == found.topics
    assert message.user_data == found.user_data
    assert max(message.generation_id, -1) == found.generation_id
    assert (message.rack_id or None) == found.rack_id
    assert sorted((o.topic, sorted(o.partitions)) for o in message.owned_partitions) == sorted(
        (o.topic, o.partitions) for o in found.owned_partitions
    )


@quick
@given(data=st.data(), version=st.integers(0, 3))
def test_embedded_assignment_round_trip(data: st.DataObject, version: int) -> None:
    """An assignment is read as it was written."""
    message = data.draw(messages(ConsumerProtocolAssignment, version))
    assert message == decode_assignment(encode_assignment(message, version))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60))
def test_noise_is_no_subscription(noise: bytes) -> None:
    """The data of another member may be any bytes: they give a message or ProtocolError."""
    for read in (decode_subscription, decode_assignment):
        for data in (noise, b"\x00\x01" + noise):
            with contextlib.suppress(ProtocolError):
                read(data)
