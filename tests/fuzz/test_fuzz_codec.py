"""Hostile bytes against the codec: every response parses or raises ProtocolError, and costs little either way.

Inputs are responses of real brokers with bytes changed, cut, put in and taken out, with lengths that lie, sometimes
read at another version than they were written at. Seeds are fixed; `KCONSUMER_FUZZ_SECONDS` makes a run longer.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from pathlib import Path

import pytest

from kconsumer._core.codec import decode_response, encode_response
from kconsumer._core.wire import FrameBuffer
from kconsumer.errors import ProtocolError
from kconsumer.schema import APIS, Api

VECTORS = Path(__file__).parent.parent / "protocol" / "vectors"
ROUNDS = 20_000
MOST_SECONDS = 20.0  # on slow builds
FUZZ_SECONDS = float(os.environ.get("KCONSUMER_FUZZ_SECONDS", 0))
NASTY = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
LIES = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\x7f\xff")
# An array's elements take at least a byte each; the smallest structs are about four bytes and a hundred in memory.
MEMORY_PER_BYTE = 400
MEMORY_BASE = 100_000

Seed = tuple[Api, int, bytes]


def seeds() -> list[Seed]:
    """What brokers sent."""
    by_name = {api.name: api for api in APIS.values()}
    rows = [line.split() for file in sorted(VECTORS.glob("*.txt")) for line in file.read_text().splitlines()]
    return [(by_name[name], int(version), bytes.fromhex(frame)) for name, version, frame in rows]


SEEDS = seeds()


def damaged(seed: int) -> Seed:
    """One input."""
    rng = random.Random(seed)
    api, version, frame = rng.choice(SEEDS)
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        change = rng.randrange(6)
        if change == 0:
            data[at : at + 1] = bytes([rng.choice(NASTY)])
        elif change == 1:
            data[at : at + 1] = rng.randbytes(1)
        elif change == 2:
            del data[at : at + rng.randint(1, 9)]
        elif change == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 9))
        elif change == 4:
            lie = rng.choice(LIES)
            data[at : at + len(lie)] = lie
        else:
            del data[at:]
    if rng.random() < 0.1:
        version = rng.randint(api.min_version, api.max_version)
    return api, version, bytes(data)


def run(seed: int) -> bool:
    """Whether the input of this seed parsed; if so it must be possible to write and to show what came of it."""
    api, version, data = damaged(seed)
    try:
        correlation_id, message = decode_response(api, version, data)
    except ProtocolError:
        return False
    encode_response(api, version, correlation_id, message)
    repr(message)
    return True


@pytest.mark.timeout(120 + FUZZ_SECONDS)
def test_responses_parse_or_are_refused() -> None:
    """Nothing but ProtocolError comes out of damaged responses; some still parse, most do not."""
    end = time.monotonic() + (FUZZ_SECONDS or MOST_SECONDS)
    parsed = seed = 0
    while time.monotonic() < end and (FUZZ_SECONDS or seed < ROUNDS):
        parsed += run(seed)
        seed += 1
    assert 0 < parsed < seed / 2


def test_memory_is_bounded_by_the_input() -> None:
    """However the lengths in it lie, a response takes no more memory than its bytes can fill."""
    for seed in range(2000):
        api, version, data = damaged(seed)
        tracemalloc.start()
        try:
            decode_response(api, version, data)
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MEMORY_BASE + MEMORY_PER_BYTE * len(data)


@pytest.mark.timeout(120 + FUZZ_SECONDS)
def test_streams_are_cut_or_refused() -> None:
    """A stream of noise gives frames whose sizes are what the stream said, or ProtocolError."""
    for seed in range(2000):
        rng = random.Random(seed)
        buffer = FrameBuffer(300)
        sent = bytearray()
        received = bytearray()
        try:
            for _ in range(20):
                view = buffer.recv_view()
                count = min(len(view), rng.choice((1, 2, 3, 50, 400)))
                noise = b"".join(
                    bytes([0, 0, rng.choice((0, 0, 1)), rng.randrange(256)]) for _ in range(count // 4 + 1)
                )
                view[:count] = noise[:count]
                sent += noise[:count]
                for frame in buffer.received(count):
                    received += len(frame).to_bytes(4, "big") + bytes(frame)
        except ProtocolError:
            continue
        assert sent.startswith(received)
        assert len(sent) - len(received) == buffer.pending
