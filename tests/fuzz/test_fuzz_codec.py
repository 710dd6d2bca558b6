"""The memory that hostile responses use is limited by their size, whatever lengths they contain.

That they are parsed or rejected is tested with all other targets in test_fuzz_decode.
"""

from __future__ import annotations

import tracemalloc
from random import Random

from kconsumer._core.codec import decode_response
from kconsumer.errors import ProtocolError
from support.oracles.hostile_inputs import RESPONSES, damage, pick

# An array's elements take at least a byte each in the frame; the smallest structs take four bytes there and a hundred
# in memory.
MEMORY_PER_BYTE = 400
MEMORY_BASE = 100_000


def test_memory_is_bounded_by_the_input() -> None:
    """A response with wrong lengths takes no more memory than its bytes can fill."""
    rng = Random(0)
    for _ in range(2000):
        api, version, frame = pick(rng, RESPONSES)
        data = bytes(damage(frame, rng))
        tracemalloc.start()
        try:
            decode_response(api, version, data)
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MEMORY_BASE + MEMORY_PER_BYTE * len(data)
