"""Authentication: SaslHandshake selects a SASL mechanism. SaslAuthenticate carries the mechanism's tokens (KIP-152).

SaslHandshake has no flexible version. SaslAuthenticate v1 adds the lifetime of the session (KIP-368).
"""

from __future__ import annotations

from kconsumer.schema.dsl import BYTES, INT16, INT64, STRING, Api, F, Message, array


class SaslHandshakeRequest(Message):
    mechanism: str = F(STRING)


class SaslHandshakeResponse(Message):
    error_code: int = F(INT16)
    mechanisms: list[str] = F(array(STRING))


SASL_HANDSHAKE = Api(SaslHandshakeRequest, SaslHandshakeResponse, key=17, versions="0-1")


class SaslAuthenticateRequest(Message):
    auth_bytes: bytes = F(BYTES, secret=True)


class SaslAuthenticateResponse(Message):
    error_code: int = F(INT16)
    error_message: str | None = F(STRING, null="0+")
    auth_bytes: bytes = F(BYTES, secret=True)
    session_lifetime_ms: int = F(INT64, "1+")


SASL_AUTHENTICATE = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, key=36, versions="0-2", flexible=2)
