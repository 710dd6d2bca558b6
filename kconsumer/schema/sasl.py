"""Authentication: SaslHandshake selects a SASL mechanism. SaslAuthenticate carries the mechanism's tokens (KIP-152).

SaslHandshake has no flexible version. SaslAuthenticate v1 adds the lifetime of the session (KIP-368).
"""

from __future__ import annotations

from kconsumer.schema.dsl import BYTES, INT16, INT64, STRING, F, api, array, struct

SaslHandshakeRequest = struct("SaslHandshakeRequest", F("mechanism", STRING))

SaslHandshakeResponse = struct(
    "SaslHandshakeResponse",
    F("error_code", INT16),
    F("mechanisms", array(STRING)),
)

SASL_HANDSHAKE = api(
    "SaslHandshake",
    key=17,
    versions="0-1",
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)

SaslAuthenticateRequest = struct("SaslAuthenticateRequest", F("auth_bytes", BYTES, secret=True))

SaslAuthenticateResponse = struct(
    "SaslAuthenticateResponse",
    F("error_code", INT16),
    F("error_message", STRING, null="0+"),
    F("auth_bytes", BYTES, secret=True),
    F("session_lifetime_ms", INT64, "1+"),
)

SASL_AUTHENTICATE = api(
    "SaslAuthenticate",
    key=36,
    versions="0-2",
    flexible=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
