"""The first bytes of an answer: whether what answers is a Kafka broker at all."""

from __future__ import annotations

from kconsumer.errors import AuthenticationError, ProtocolError

PREAMBLE_BYTES = 16
"""How many are worth showing to people."""

MAX_FIRST_FRAME_BYTES = 1 << 20
"""The first answer is to ApiVersions (or a login step): a few kB. What announces more is not Kafka."""

TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # an alert, a handshake


def check_first_bytes(name: str, greeting: bytes) -> bool:
    """Whether these, the first bytes ever received of a connection, are enough to believe that they are a frame's size.

    Raises AuthenticationError or ProtocolError if they cannot be.
    """
    if len(greeting) < 4:
        return False
    if greeting.startswith(TLS_RECORDS):
        raise AuthenticationError(
            f"what answers for {name} speaks TLS; set security_protocol to SSL or SASL_SSL, "
            "or use the port of a listener without TLS"
        )
    if not 4 <= int.from_bytes(greeting[:4], signed=True) <= MAX_FIRST_FRAME_BYTES:
        raise ProtocolError(f"what answers for {name} is not a Kafka broker: {_likely_cause(greeting)}")
    return True


def _likely_cause(greeting: bytes) -> str:
    """What the first bytes of an answer look like."""
    if greeting.startswith(b"HTTP"):
        return "it speaks HTTP (a proxy, a REST interface or another web server; check host and port)"
    return f"its answer starts with {greeting!r} (another server or a proxy in between? check host and port)"
