"""Hostile bytes for the decoders: a corpus of good batches, and ways to damage them that get past the outer checks.

Every function takes a `random.Random` and is a pure function of its state. Damage is done to one batch, message or
body at a time, and what holds it is repaired around it (size, checksum, compression), so that the inside is reached.
Decides nothing about reading; that is `hostile_targets`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import zstandard

from kconsumer._core.codec import decode_response
from kconsumer._core.decode import crc32c
from kconsumer.schema import APIS
from kconsumer.schema.dsl import Api
from kconsumer.schema.fetch import FETCH
from kconsumer.testing.batches import (
    CODECS,
    Rec,
    abort_marker,
    build_batch,
    build_message,
    build_message_set,
    commit_marker,
    compress,
    control_batch,
    empty_batch,
    encode_record,
    encode_varint,
    frame_batch,
)

T = TypeVar("T")
VECTORS = Path(__file__).with_name("vectors")  # of responses: API, version and frame in hexadecimal digits
OLD_CODECS = tuple(name for name in CODECS if name != "zstd")
BOMB_LIMIT = 1 << 16  # what a batch may decompress to while bombs are tried, so that they are quick to make and read

NASTY = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
# Counts, sizes and offsets that lie, as fixed-size integers and as varints: overlong, endless, of the wrong sign.
LIES = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x10\x00\x00",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xfe\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x00",
    b"\x80\x80\x80\x80\x80\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
)
# Where the header of a v2 batch has which integer.
FIELDS = ((0, 8), (8, 4), (12, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (57, 4))

RECORDS = [
    Rec(b"value", b"key", [("h", b"x"), ("n", None), ("e", b"")], 7),
    Rec(None, None),
    Rec(b"", b""),
    Rec(b"v" * 200, b"k" * 70, [(f"name{i}", b"y" * i) for i in range(6)], 1 << 40, offset=30),
]
MINIMAL = b"\x0c\x00\x00\x00\x01\x01\x00"


def pick(rng: Random, choices: Sequence[T]) -> T:
    """Returns an element of a sequence, in a third of the time of `rng.choice`."""
    return choices[int(rng.random() * len(choices))]


# --- the corpus


def good_batches() -> list[bytes]:
    """Returns single v2 batches of every kind."""
    batches = [build_batch(RECORDS, base_offset=5, codec=codec, leader_epoch=3) for codec in CODECS]
    batches += [build_batch([(b"k%d" % i, b"v") for i in range(9)], base_offset=36, codec=codec) for codec in CODECS]
    batches.append(build_batch(RECORDS, base_offset=40, codec="snappy", snappy_framing="raw"))
    batches.append(build_batch(RECORDS, base_offset=1 << 40, log_append_time=True, max_timestamp=99))
    batches += [empty_batch(9, 20), control_batch("abort", 8, producer_id=1), control_batch("leader_change", 3)]
    batches.append(frame_batch(MINIMAL * 50, record_count=50, last_offset_delta=49))
    many = compress("zstd", MINIMAL * 5000)  # more than are checked with the GIL held
    batches.append(frame_batch(many, attributes=CODECS["zstd"], record_count=5000, last_offset_delta=4999))
    return batches


def good_messages() -> list[bytes]:
    """Returns message sets of format 0 and 1, with and without a wrapper."""
    sets = [build_message_set(RECORDS, magic=magic, codec=codec) for magic in (0, 1) for codec in OLD_CODECS]
    sets += [build_message_set(RECORDS, magic=magic, codec="snappy", snappy_framing="raw") for magic in (0, 1)]
    sets += [build_message_set([b"a"] * 40, magic=magic) for magic in (0, 1)]
    sets.append(build_message_set(RECORDS, magic=1, codec="gzip", log_append_time=True, wrapper_timestamp=5))
    sets.append(build_message_set(RECORDS, magic=0, codec="lz4", lz4_header="historical"))
    return sets


def good_transactions() -> list[list[bytes]]:
    """Returns logs of interleaved batches of three producers, some aborted."""

    def of(producer_id: int, offset: int, **fields: Any) -> bytes:
        return build_batch([b"x", b"y"], base_offset=offset, producer_id=producer_id, transactional=True, **fields)

    first = [of(1, 0), of(2, 2, codec="gzip"), abort_marker(4, 1), of(3, 5), of(1, 7), commit_marker(9, 2)]
    second = [abort_marker(10, 3), of(2, 11, codec="zstd"), commit_marker(13, 1), of(3, 14), abort_marker(16, 2)]
    return [first + second, first, second, [of(1, 0), build_batch([b"n"], base_offset=2), commit_marker(3, 1)]]


def recorded_responses() -> list[tuple[Api, int, bytes]]:
    """Returns responses of real brokers."""
    by_name = {api.name: api for api in APIS.values()}
    rows = [line.split() for file in sorted(VECTORS.glob("*.txt")) for line in file.read_text().splitlines()]
    return [(by_name[name], int(version), bytes.fromhex(frame)) for name, version, frame in rows]


def recorded_batches() -> list[bytes]:
    """Returns the records in the recorded Fetch responses."""
    found = []
    for api, version, frame in RESPONSES:
        if api is FETCH:
            _, message = decode_response(api, version, frame)
            found += [bytes(p.records) for topic in message.responses for p in topic.partitions if p.records]
    return found


RESPONSES = recorded_responses()
RECORDED = recorded_batches()
BATCHES = good_batches() + RECORDED
PACKED = [batch for batch in BATCHES if batch[22] & 7]
MESSAGES = good_messages()
TRANSACTIONS = good_transactions()
BODIES = [
    b"".join(encode_record(record, offset_delta=i) for i, record in enumerate(RECORDS)),
    b"".join(encode_record(Rec(b"v" * i, None), offset_delta=i, timestamp_delta=-i) for i in range(12)),
    MINIMAL * 30,
]
OLD_BODIES = [
    [build_message_set(records, magic=magic) for records in (RECORDS, [b"a", b"b", b"c"], [b"x"])] for magic in (0, 1)
]


# --- damage


def change_byte(data: bytearray, rng: Random) -> None:
    data[int(rng.random() * len(data))] = pick(rng, NASTY)


def flip_bit(data: bytearray, rng: Random) -> None:
    data[int(rng.random() * len(data))] ^= 1 << int(rng.random() * 8)


def change_header(data: bytearray, rng: Random) -> None:
    data[int(rng.random() * min(len(data), 61))] = pick(rng, NASTY)


def lie_in_header(data: bytearray, rng: Random) -> None:
    at, size = pick(rng, FIELDS)
    if at + size <= len(data):
        data[at : at + size] = (pick(rng, LIES) * 2)[:size]


def lie(data: bytearray, rng: Random) -> None:
    at, lie = int(rng.random() * len(data)), pick(rng, LIES)
    data[at : at + (len(lie) if rng.random() < 0.5 else 1)] = lie


def drop(data: bytearray, rng: Random) -> None:
    at = int(rng.random() * len(data))
    del data[at : at + 1 + int(rng.random() * 9)]


def insert(data: bytearray, rng: Random) -> None:
    at = int(rng.random() * len(data))
    data[at:at] = rng.randbytes(1 + int(rng.random() * 9))


def repeat(data: bytearray, rng: Random) -> None:
    at = int(rng.random() * len(data))
    data[at:at] = data[at : at + 1 + int(rng.random() * 40)]


def cut(data: bytearray, rng: Random) -> None:
    del data[int(rng.random() * len(data)) :]


def splice(data: bytearray, rng: Random) -> None:
    other = pick(rng, BATCHES if rng.random() < 0.7 else MESSAGES)
    data[int(rng.random() * len(data)) :] = other[int(rng.random() * len(other)) :]


CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    change_byte,
    flip_bit,
    change_header,
    lie_in_header,
    lie,
    drop,
    insert,
    repeat,
    cut,
    splice,
)


def damage(data: bytes, rng: Random) -> bytearray:
    """Returns the bytes with a few changes."""
    out = bytearray(data)
    for _ in range(pick(rng, (1, 1, 2, 4))):
        if out:
            pick(rng, CHANGES)(out, rng)
    return out


def overwrite(data: bytearray, rng: Random) -> None:
    """Change bytes where they are; the length stays."""
    for _ in range(pick(rng, (1, 3, 10)) if data else 0):
        at, bytes_ = int(rng.random() * len(data)), pick(rng, LIES)
        data[at : at + len(bytes_)] = bytes_[: len(data) - at]


def repair(data: bytearray) -> None:
    """Make the size and checksum of a batch or message fit its bytes again."""
    if len(data) < 34:
        return
    struct.pack_into(">i", data, 8, len(data) - 12)
    if data[16] in (0, 1):
        struct.pack_into(">I", data, 12, zlib.crc32(memoryview(data)[16:]))
    elif len(data) > 61:
        data[16] = 2
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))


def damaged_one(batch: bytes, rng: Random) -> bytes:
    """Returns one damaged batch or message, mostly with size and checksum repaired."""
    data = damage(batch, rng)
    if rng.random() < 0.85:
        repair(data)
    return bytes(data)


def among_others(damaged: bytes, rng: Random, others: list[bytes]) -> bytes:
    """Returns it alone or between good batches; sometimes the end is cut off."""
    chance = rng.random()
    if chance < 0.5:
        return damaged
    data = damaged + pick(rng, others) if chance < 0.7 else pick(rng, others) + damaged + pick(rng, others)
    return data[: int(rng.random() * len(data))] if chance > 0.97 else data


# --- inputs


def whole(rng: Random) -> bytes:
    """Returns a few good batches or message sets."""
    return b"".join(pick(rng, BATCHES if rng.random() < 0.7 else MESSAGES) for _ in range(pick(rng, (1, 1, 2, 3))))


def batches(rng: Random) -> bytes:
    """Returns v2 batches, one of them damaged."""
    return among_others(damaged_one(pick(rng, BATCHES), rng), rng, BATCHES)


def messages(rng: Random) -> bytes:
    """Returns message sets, one of them damaged, next to others or to v2 batches."""
    others = MESSAGES if rng.random() < 0.7 else BATCHES
    return among_others(damaged_one(pick(rng, MESSAGES), rng), rng, others)


def inside(rng: Random) -> bytes:
    """Returns records or messages damaged before compression; header, size and checksum are right."""
    codec = pick(rng, tuple(CODECS))
    magic = int(rng.random() * 3)
    if magic == 2 or codec == "zstd":
        packed = compress(codec, bytes(damage(pick(rng, BODIES), rng)))
        count = pick(rng, (4, 4, 4, 12, 30, 3, 0, 1 << 30))
        data = frame_batch(packed, attributes=CODECS[codec], record_count=count, last_offset_delta=30)
        return among_others(data, rng, BATCHES)
    body = bytes(damage(pick(rng, OLD_BODIES[magic]), rng))
    return among_others(wrapped(body, codec, magic, rng), rng, MESSAGES)


def packed(rng: Random) -> bytes:
    """Returns a batch or message whose compressed bytes are damaged and the rest is right."""
    if rng.random() < 0.7:
        batch = pick(rng, PACKED)
        return frame_batch(
            bytes(damage(batch[61:], rng)),
            attributes=batch[22] & 7,
            record_count=int.from_bytes(batch[57:61]),
            last_offset_delta=60,
        )
    codec, magic = pick(rng, OLD_CODECS[1:]), int(rng.random() * 2)
    body = damage(compress(codec, pick(rng, OLD_BODIES[magic])), rng)
    return build_message(bytes(body), magic=magic, offset=4, attributes=CODECS[codec])


def wrapped(body: bytes, codec: str, magic: int, rng: Random) -> bytes:
    """Returns a wrapper around messages."""
    value = None if rng.random() < 0.01 else compress(codec, body)
    return build_message(value, magic=magic, offset=pick(rng, (0, 2, 9, 40)), attributes=CODECS[codec])


def nested(rng: Random) -> bytes:
    """Returns wrappers in wrappers, up to fifty deep, or batches in batches, whole or damaged at any depth."""
    magic = int(rng.random() * 2)
    data = pick(rng, OLD_BODIES[magic])
    for _ in range(pick(rng, (1, 2, 2, 3, 4, 50 if rng.random() < 0.05 else 5))):
        data = wrapped(data, pick(rng, OLD_CODECS), magic if rng.random() < 0.9 else 1 - magic, rng)
        if rng.random() < 0.2:
            data = damaged_one(data, rng)
        if rng.random() < 0.2:
            data += pick(rng, OLD_BODIES[magic])
    if rng.random() < 0.2:
        codec = pick(rng, tuple(CODECS))
        data = frame_batch(compress(codec, data), attributes=CODECS[codec], record_count=1)
    return data


def transactions(rng: Random) -> bytes:
    """Returns logs of transactions with batches damaged, repeated, omitted or exchanged."""
    log = list(pick(rng, TRANSACTIONS))
    for _ in range(pick(rng, (0, 1, 1, 2))):
        at, chance = int(rng.random() * len(log)), rng.random()
        if chance < 0.6:
            log[at] = damaged_one(log[at], rng)
        elif chance < 0.75:
            log.insert(at, pick(rng, log))
        elif chance < 0.9 and len(log) > 1:
            del log[at]
        else:
            log[at], log[0] = log[0], log[at]
    return b"".join(log)


def anything(rng: Random) -> bytes:
    """Returns an input of any of the kinds above."""
    chance = rng.random()
    for share, make in ((0.35, batches), (0.55, messages), (0.7, inside), (0.8, transactions), (0.9, nested)):
        if chance < share:
            return make(rng)
    return packed(rng) if chance < 0.98 else rng.randbytes(int(rng.random() * 200))


def without_codecs(data: bytes) -> bytes:
    """Codec bits cleared: how libraries see damaged streams is not what the reference can say."""
    out, at = bytearray(data), 0
    while len(out) - at >= 26:
        (size,) = struct.unpack_from(">i", out, at + 8)
        if size < 14:
            break
        where = at + (22 if out[at + 16] == 2 else 17)
        if where < len(out):
            out[where] &= 0xF8
        at += 12 + size
    return bytes(out)


def _bombs() -> list[tuple[int, bytes]]:
    """Returns compressed records with one huge value, by codec."""
    found = []
    for size in (0, BOMB_LIMIT - 40, BOMB_LIMIT, 2 * BOMB_LIMIT, 40 * BOMB_LIMIT):
        body = encode_record(Rec(bytes(size)))
        found += [(CODECS[codec], compress(codec, body)) for codec in CODECS if codec != "none"]
        writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
        found.append((CODECS["zstd"], writer.compress(body) + writer.flush()))
    return found


BOMBS = _bombs()


def bombs(rng: Random) -> bytes:
    """Returns batches or wrappers that decompress to more than the limit; some have several streams or damage."""
    codec, data = pick(rng, BOMBS)
    data *= pick(rng, (1, 1, 2, 40))
    chance = rng.random()
    if chance < 0.2 and len(data) < 5000:
        data = bytes(damage(data, rng))
    if codec == CODECS["snappy"] and chance > 0.7:
        data = encode_varint(pick(rng, (1 << 20, -(1 << 31), (1 << 31) - 1))) + data[20:60]  # announces what it likes
    if codec != CODECS["zstd"] and rng.random() < 0.3:
        return build_message(data, magic=int(rng.random() * 2), offset=9, attributes=codec)
    return frame_batch(data, attributes=codec, record_count=1) * pick(rng, (1, 1, 3))
