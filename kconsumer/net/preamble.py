"""The first bytes that a listener sends: whether it is a Kafka broker at all."""

from __future__ import annotations

from kconsumer.errors import AuthenticationError, ProtocolError

PREAMBLE_BYTES = 16
"""The number of first bytes that an error shows."""

MAX_FIRST_FRAME_BYTES = 1 << 20
"""The first response is to ApiVersions or a step of SASL and has a few kB. No broker announces more."""

TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake


def check_first_bytes(name: str, received: bytes) -> bool:
    """Returns whether the first bytes of a connection are enough to know that they are the size of a Kafka frame.

    Raises AuthenticationError or ProtocolError if they cannot be.
    """
    if len(received) < 4:
        return False
    if received.startswith(TLS_RECORDS):
        raise AuthenticationError(
            f"the listener of {name} speaks TLS; set security_protocol to SSL or SASL_SSL, "
            "or use the port of a listener without TLS"
        )
    if not 4 <= int.from_bytes(received[:4], signed=True) <= MAX_FIRST_FRAME_BYTES:
        raise ProtocolError(f"the listener of {name} is not a Kafka broker: {_likely_cause(received)}")
    return True


def _likely_cause(received: bytes) -> str:
    """Returns what sends such first bytes."""
    if received.startswith(b"HTTP"):
        return "it speaks HTTP (a proxy, a REST interface or another web server; check host and port)"
    return f"its response starts with {received!r} (another server or a proxy in between? check host and port)"
