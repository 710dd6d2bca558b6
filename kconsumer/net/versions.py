"""Version negotiation (KIP-35): chooses the highest version of an API that the broker and this client support."""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer._core.codec import decode
from kconsumer._core.wire import Frame
from kconsumer.errors import ProtocolError, UnsupportedVersionError
from kconsumer.schema.dsl import Api

LAST_KEY_OF_2_1 = 42
"""Kafka 2.1 has all APIs up to this key. It is the oldest version that this client supports."""

Ranges = Mapping[int, tuple[int, int]]
"""The versions that a broker supports: lowest and highest by API key."""


def common_version(name: str, theirs: Ranges, api: Api, min_version: int = 0, max_version: int = 32767) -> int:
    """Returns the highest common version of an API within `min_version` and `max_version`.

    `name` is the broker's name for errors, and `theirs` contains the versions that it supports. Raises
    UnsupportedVersionError if there is no common version. Its message contains the versions of both sides.
    """
    low, high = max(api.min_version, min_version), min(api.max_version, max_version)
    supported = theirs.get(api.key)
    if supported is None:
        why = "it is older than Kafka 2.1" if api.key <= LAST_KEY_OF_2_1 else "it is too old, or the feature is off"
        raise UnsupportedVersionError(f"{name} does not support {api.name} (v{low} to v{high} are needed): {why}")
    lowest, highest = supported
    if max(lowest, low) <= min(highest, high):
        return min(highest, high)
    age = "newer" if lowest > high else "older than Kafka 2.1" if highest < api.min_version else "too old"
    raise UnsupportedVersionError(
        f"{name} supports {api.name} v{lowest} to v{highest}, needed is v{low} to v{high}; the broker is {age}"
    )


def lower_version(api: Api, refused: int, frame: Frame) -> int:
    """Returns the version for the next ApiVersions request, after the broker refused version `refused` with error 35.

    Since Kafka 2.4 the error response, which has the layout of version 0, contains the broker's maximum version.
    Returns this maximum, or 0 if the response does not contain it. The result is lower than `refused`, so that the
    retries end.
    """
    try:
        message = decode(api.response_plan(0), frame, 4, allow_trailing=True)
    except ProtocolError:
        return 0
    for row in message.api_keys:
        if row.api_key == api.key and 0 <= row.max_version < refused:
            return int(row.max_version)
    return 0
