"""Scenarios of SASL requests to a listener without SASL."""

from __future__ import annotations

from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from support.scenarios.produce import batch, produce
from support.scenarios.scenario import Run, scenarios


@scenarios(SASL_HANDSHAKE, cases=["PLAIN", "NONSENSE", ""])
def handshake(run: Run, version: int, mechanism: str) -> None:
    """A handshake is refused; the connection remains usable."""
    topic = run.topic()
    run.call(SASL_HANDSHAKE, version, mechanism=mechanism)
    produce(run, 9, topic, batch(b"a"))


@scenarios(SASL_AUTHENTICATE, cases={"empty": b"", "plain": b"\0user\0password"})
def authenticate(run: Run, version: int, data: bytes) -> None:
    """Authentication is refused; the connection remains usable."""
    topic = run.topic()
    run.call(SASL_AUTHENTICATE, version, auth_bytes=data)
    produce(run, 9, topic, batch(b"a"))
