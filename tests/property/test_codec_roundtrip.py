"""The compiled codec reads what it wrote, for every API at every version, and refuses arbitrary bytes.

`integration/test_java_wire.py` compares the bytes with those of Kafka's own classes.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kconsumer._core.codec import decode, decode_request, decode_response, encode
from kconsumer.coordinator.classic_protocol.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kconsumer.errors import ProtocolError
from kconsumer.schema import APIS
from kconsumer.schema.dsl import Api, plan
from kconsumer.schema.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from support.oracles.java_wire import CASES, message_class, random_message


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_hostile_bytes_end_in_protocol_error(api: Api) -> None:
    """Messages of each version are read as they were written. Changed, cut and random bytes give ProtocolError or a
    message, and such a message can be written.
    """
    rng = random.Random(api.name)
    for case in (case for case in CASES if case[0] is api):
        _, version, direction = case
        cls = message_class(api, direction)
        layout = plan(cls, version, api.is_flexible(version))
        for _ in range(15):
            message = random_message(cls, version, rng)
            wire = bytearray(encode(layout, message))
            assert message == decode(layout, wire), case
            for _ in range(rng.randint(1, 3)):
                at = rng.randint(0, len(wire))
                wire[at : at + rng.randint(0, 4)] = rng.randbytes(rng.randint(0, 4))
            try:
                changed = decode(layout, wire)
            except ProtocolError:
                continue
            assert changed == decode(layout, encode(layout, changed)), case


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


@pytest.mark.parametrize("version", range(4))
def test_embedded_messages_are_read_as_written(version: int) -> None:
    """A subscription is read as it was written, apart from the order of its lists, and so is an assignment."""
    rng = random.Random(version)
    for _ in range(15):
        sent: Any = random_message(ConsumerProtocolSubscription, version, rng)
        found = decode_subscription(encode_subscription(sent, version))
        assert sorted(sent.topics) == found.topics
        assert sent.user_data == found.user_data
        assert max(sent.generation_id, -1) == found.generation_id
        assert (sent.rack_id or None) == found.rack_id
        owned = sorted((row.topic, sorted(row.partitions)) for row in sent.owned_partitions)
        assert owned == sorted((row.topic, row.partitions) for row in found.owned_partitions)
        assignment: Any = random_message(ConsumerProtocolAssignment, version, rng)
        assert assignment == decode_assignment(encode_assignment(assignment, version))


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60))
def test_noise_is_no_subscription(noise: bytes) -> None:
    """The data of another member may be any bytes: they give a message or ProtocolError."""
    for read in (decode_subscription, decode_assignment):
        for data in (noise, b"\x00\x01" + noise):
            with contextlib.suppress(ProtocolError):
                read(data)
