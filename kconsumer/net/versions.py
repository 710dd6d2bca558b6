"""Which version of a request is spoken: the highest that broker and client know (KIP-35)."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer._core.codec import decode
from kconsumer._core.wire import Frame
from kconsumer.errors import ProtocolError, UnsupportedVersionError
from kconsumer.schema.dsl import Api, response_plan

Ranges = Mapping[int, tuple[int, int]]
"""What a broker speaks: lowest and highest version by API key."""


def common_version(name: str, theirs: Ranges, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
    """The version to speak with the broker of that name. Raises UnsupportedVersionError, naming both ranges, if there
    is none."""
    low, high = max(api.min_version, min_version), min(api.max_version, max_version)
    spoken = theirs.get(api.key)
    if spoken is None:
        raise UnsupportedVersionError(
            f"{name} lacks {api.name} (needed: v{low} to v{high}); is it older than Kafka 2.1?"
        )
    lowest, highest = spoken
    if max(lowest, low) <= min(highest, high):
        return min(highest, high)
    age = "older" if highest < low else "newer"
    raise UnsupportedVersionError(
        f"{name} supports {api.name} v{lowest} to v{highest}, needed is v{low} to v{high}; "
        f"the broker is {age} than what this client supports"
    )


def lower_version(api: Api, refused: int, frame: Frame) -> int:
    """What to ask for versions with, after `frame` refused a version by error 35: the broker's own maximum if its
    answer, in the layout of version 0, says so (Kafka 2.4 and later), else 0. Always below the one refused, so asking
    ends."""
    try:
        message = decode(response_plan(api, 0), frame, 4, allow_trailing=True)
    except ProtocolError:
        return 0
    for row in message.api_keys:
        if row.api_key == api.key and 0 <= row.max_version < refused:
            return int(row.max_version)
    return 0
