"""Probes: connections with a single request, to find out why a listener closes connections without an error response.

There may be two kinds of cause. The configuration may be wrong:

- A listener without TLS closes a connection that starts a TLS handshake.
- A listener with SASL closes a connection at the first request, if the client does not authenticate.

Or the broker is temporarily not available: a load balancer without a healthy target closes connections, too, and so
does the port mapping of a container that is starting.

So after some disconnects the next attempt is a probe. The response to its request shows whether the configuration is
wrong. If it is, an AuthenticationError is raised. Otherwise, or without a response, the client continues to connect as
before. `node.py` and `attempts.py` decide when a probe is due, and import this module only then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kconsumer._common.error_codes import Errors
from kconsumer.errors import AuthenticationError
from kconsumer.schema.dsl import Api
from kconsumer.schema.metadata import API_VERSIONS
from kconsumer.schema.sasl import SASL_HANDSHAKE


class Probe(NamedTuple):
    """One kind of probe: the request, and how to interpret the response."""

    api: Api
    version: int
    message: Any
    without_tls: bool  # use a plain TCP connection even if TLS is configured
    no_response: str  # the reason of the failed attempt, for users, if there was no such response
    timeout_ms: float = 3_000.0

    def verdict(self, name: str, security_protocol: str, message: Any) -> AuthenticationError | None:
        """Returns an error if the response shows that `security_protocol` is wrong, else None. `name` is the broker's
        name."""
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
# No listener has a SASL mechanism with an empty name. So a listener with SASL returns UNSUPPORTED_SASL_MECHANISM and
# the names of its mechanisms. A listener without SASL returns ILLEGAL_SASL_STATE.
SASL_PROBE = Probe(
    SASL_HANDSHAKE,
    1,
    SASL_HANDSHAKE.request(mechanism=""),
    without_tls=False,
    no_response="it closes connections at the first request (is the broker starting, or is this a proxy without a "
    "broker?)",
)
