"""Probes: one request that shows why a listener closes connections without an error response.

A listener without TLS closes when it is offered TLS, and a listener with SASL closes at the first request of a client
that does not authenticate. A load balancer without a healthy target closes, too, and so does the port mapping of a
container that starts. After some disconnects the next attempt is a probe: a connection with a single request, to which
only the listener responds that the configuration is wrong for. Its response is the evidence for an AuthenticationError;
without one the connection is retried as before. `disconnects.py` decides when a probe is due, and then imports this
module.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kconsumer.error_codes import Errors
from kconsumer.errors import AuthenticationError
from kconsumer.schema import API_VERSIONS, SASL_HANDSHAKE
from kconsumer.schema.dsl import Api


class Probe(NamedTuple):
    """The request of a probe."""

    api: Api
    version: int
    message: Any
    without_tls: bool  # use a plain TCP connection, whatever the configuration says
    no_response: str  # why the attempt failed, if the probe showed nothing
    timeout_ms: float = 3_000.0

    def verdict(self, name: str, security_protocol: str, message: Any) -> AuthenticationError | None:
        """Returns the error that a response proves, or None."""
        if self.api is API_VERSIONS:
            return AuthenticationError(
                f"TLS with {name} failed: it closed the connection when TLS was offered, and responds without TLS; "
                f"this is a PLAINTEXT or SASL_PLAINTEXT listener (security_protocol is {security_protocol}; check "
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
    no_response="it closes connections when TLS is offered, and does not respond without TLS either (is the broker "
    "starting, or is this a proxy without a broker?)",
)
# No listener has a mechanism of this name. One with SASL returns the names of those it has; one without SASL returns an
# error that says so.
SASL_PROBE = Probe(
    SASL_HANDSHAKE,
    1,
    SASL_HANDSHAKE.request(mechanism=""),
    without_tls=False,
    no_response="it closes connections at the first request (is the broker starting, or is this a proxy without a "
    "broker?)",
)
