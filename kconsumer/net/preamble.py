"""Checks the first bytes that a listener sends, to find listeners that use TLS, HTTP or another protocol."""

from __future__ import annotations

from kconsumer.errors import AuthenticationError, ProtocolError

PREAMBLE_BYTES = 16
"""An error shows at most this many of the first bytes."""

MAX_FIRST_FRAME_BYTES = 1 << 20
"""The largest size accepted for the first response. It belongs to ApiVersions or SASL, so a broker sends a few kB."""

TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake


def check_first_bytes(name: str, received: bytes) -> bool:
    """Check that a connection begins with the size of a Kafka frame. Returns False if more bytes are needed, else True.

    `name` is the broker's name for errors. Raises AuthenticationError if the listener uses TLS, and ProtocolError if it
    is not a Kafka broker.
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
    """Returns, for an error message, what kind of server may have sent these first bytes."""
    if received.startswith(b"HTTP"):
        return "it speaks HTTP (a proxy, a REST interface or another web server; check host and port)"
    return f"its response starts with {received!r} (another server or a proxy in between? check host and port)"
