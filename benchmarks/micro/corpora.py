"""Creates bytes for the micro benchmarks: the same records in every run, as batches in every format and codec."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from kconsumer.testing.batches import Rec, abort_marker, build_batch, build_message_set, commit_marker

BATCH = 160
START_MS = 1_700_000_000_000
HEADERS = (("trace", b"0123456789abcdef"), ("source", b"bench"))


def records(count: int, size: int = 100, headers: Iterable[tuple[str, bytes]] = ()) -> Iterator[list[Rec]]:
    """Yield lists of `BATCH` records, each with an 8-byte key and a value of words."""
    rng = random.Random(1)
    words = [rng.randbytes(3).hex() for _ in range(2000)]
    own = tuple(headers)
    for base in range(0, count, BATCH):
        values = [" ".join(rng.choices(words, k=size // 7 + 1))[:size].encode() for _ in range(BATCH)]
        yield [Rec(value, b"%08d" % (base + i), own, START_MS + i, base + i) for i, value in enumerate(values)]


def batches(
    count: int, codec: str = "none", *, size: int = 100, headers: Iterable[tuple[str, bytes]] = (), magic: int = 2
) -> bytes:
    """Return batches of `BATCH` records, or message sets."""
    out = []
    for recs in records(count, size, headers):
        base = recs[0].offset or 0
        if magic == 2:
            out.append(build_batch(recs, base_offset=base, timestamp=START_MS, codec=codec))
        else:
            out.append(build_message_set(recs, magic=magic, base_offset=base, codec=codec))
    return b"".join(out)


def transactions(
    count: int, *, batch: int = BATCH, aborted_share: float = 0.0, codec: str = "none"
) -> tuple[bytes, list[tuple[int, int]]]:
    """Return interleaved transactions of ten batches by ten producers, and the list of aborted ones."""
    rng = random.Random(2)
    out, aborted, offset = [], [], 0
    first: dict[int, int] = {}
    sizes: dict[int, int] = {}
    remaining = [record for recs in records(count) for record in recs]
    for start in range(0, len(remaining), batch):
        producer = rng.randrange(10)
        recs = [record._replace(offset=offset + i) for i, record in enumerate(remaining[start : start + batch])]
        first.setdefault(producer, offset)
        sizes[producer] = sizes.get(producer, 0) + 1
        fields = {"producer_id": producer, "transactional": True, "base_offset": offset, "timestamp": START_MS}
        out.append(build_batch(recs, codec=codec, **fields))  # type: ignore[arg-type]  # a mapping of keywords
        offset += len(recs)
        if sizes[producer] == 10:
            abort = rng.random() < aborted_share
            if abort:
                aborted.append((producer, first[producer]))
            out.append((abort_marker if abort else commit_marker)(offset, producer))
            offset += 1
            del first[producer], sizes[producer]
    return b"".join(out), aborted
