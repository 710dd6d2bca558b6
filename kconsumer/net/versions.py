"""Version negotiation (KIP-35): a request is sent in the highest version that broker and client support."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer._core.codec import decode
from kconsumer._core.wire import Frame
from kconsumer.errors import ProtocolError, UnsupportedVersionError
from kconsumer.schema.dsl import Api, response_plan

Ranges = Mapping[int, tuple[int, int]]
"""The versions that a broker supports: lowest and highest by API key."""


def common_version(name: str, theirs: Ranges, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
    """Returns the version of an API to use with the broker of that name. Raises UnsupportedVersionError, which names
    both ranges, if there is none."""
    low, high = max(api.min_version, min_version), min(api.max_version, max_version)
    supported = theirs.get(api.key)
    if supported is None:
        raise UnsupportedVersionError(
            f"{name} lacks {api.name} (needed: v{low} to v{high}); is it older than Kafka 2.1?"
        )
    lowest, highest = supported
    if max(lowest, low) <= min(highest, high):
        return min(highest, high)
    age = "older" if highest < low else "newer"
    raise UnsupportedVersionError(
        f"{name} supports {api.name} v{lowest} to v{highest}, needed is v{low} to v{high}; "
        f"the broker is {age} than what this client supports"
    )


def lower_version(api: Api, refused: int, frame: Frame) -> int:
    """Returns the version for the next ApiVersions request, after `frame` refused one with error 35: the broker's
    maximum, if the response (in the layout of version 0) has it (since Kafka 2.4), else 0. The result is always below
    the refused version, so the retries end."""
    try:
        message = decode(response_plan(api, 0), frame, 4, allow_trailing=True)
    except ProtocolError:
        return 0
    for row in message.api_keys:
        if row.api_key == api.key and 0 <= row.max_version < refused:
            return int(row.max_version)
    return 0
