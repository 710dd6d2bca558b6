"""Probes: one request that shows why a listener closes connections without a word.

A listener without TLS closes when it is offered TLS, and a listener with SASL closes at the first request of a client
that does not log in. So does a load balancer without a healthy target, or the port mapping of a container that starts.
After some closes the next attempt is a probe: a connection whose only request is answered by the listener that the
configuration is wrong for, and by no other. Its response is the evidence for an AuthenticationError; without one the
connection is retried as before. When a probe is due is decided by `hangups.py`, which loads this module then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kconsumer.error_codes import Errors
from kconsumer.errors import AuthenticationError
from kconsumer.schema import API_VERSIONS, SASL_HANDSHAKE
from kconsumer.schema.dsl import Api


class Probe(NamedTuple):
    """What is asked. `without_tls`: over a plain TCP connection, whatever the configuration says. `unanswered`: why the
    attempt failed, if the probe showed nothing."""

    api: Api
    version: int
    message: Any
    without_tls: bool
    unanswered: str
    timeout_ms: float = 3_000.0

    def verdict(self, name: str, security_protocol: str, message: Any) -> AuthenticationError | None:
        """Returns the error that a response proves, if any."""
        if self.api is API_VERSIONS:
            return AuthenticationError(
                f"TLS with {name} failed: it closed the connection when TLS was offered, and answers without TLS; this "
                f"is a PLAINTEXT or SASL_PLAINTEXT listener (security_protocol is {security_protocol}; check "
                "security_protocol and the port)"
            )
        if message.error_code != Errors.UNSUPPORTED_SASL_MECHANISM:
            return None
        mechanisms = ", ".join(sorted(message.mechanisms)) or "no mechanism"
        return AuthenticationError(
            f"{name} closes connections at the first request: a listener with SASL does so to a client that does not "
            f"log in, and this one takes logins by {mechanisms} (security_protocol is {security_protocol}; check it "
            "and the port)"
        )


PLAINTEXT_PROBE = Probe(
    API_VERSIONS,
    0,
    API_VERSIONS.request(),
    without_tls=True,
    unanswered="it closes connections when TLS is offered, and does not answer without TLS either (is the broker "
    "starting, or is this a proxy without a broker?)",
)
# No listener has a mechanism of this name. One with SASL names those it has; one without says that it wants no login.
SASL_PROBE = Probe(
    SASL_HANDSHAKE,
    1,
    SASL_HANDSHAKE.request(mechanism=""),
    without_tls=False,
    unanswered="it closes connections at the first request (is the broker starting, or is this a proxy without a "
    "broker?)",
)
