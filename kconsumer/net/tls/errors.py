"""The texts of TLS errors, with hints about what to change.

The texts are chosen by OpenSSL's error codes and reasons, not by its messages. `tls/transport.py` decides whether an
error is raised.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from kconsumer.net.transport import Address

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

_TRUST = "no trusted certificate vouches for the broker's{how}; {trust}"
_HOST = (
    "the broker's certificate is not for the host {host!r}; use a name that it has in bootstrap_servers (and in the "
    "broker's advertised.listeners), or set ssl_check_hostname=False"
)

# The texts for a refused certificate of the broker, by OpenSSL's X509_V_ERR_ codes.
VERIFICATIONS: dict[int, str] = {
    7: _TRUST.replace("{how}", " (a trusted one has its issuer's name, and another key)"),
    9: "the broker's certificate is not valid yet; is a clock wrong?",
    10: "the broker's certificate has expired; renew it (or is the clock of this machine wrong?)",
    18: _TRUST.replace("{how}", ", which vouches for itself"),
    19: _TRUST.replace("{how}", ", whose CA vouches for itself"),
    20: _TRUST.replace("{how}", ""),
    21: _TRUST.replace("{how}", ""),
    23: "the broker's certificate has been revoked",
    62: _HOST,
    64: _HOST,
}

NOT_TLS = "the listener does not speak TLS; check security_protocol and the port"
NO_VERSION = "the broker speaks none of the TLS versions that ssl_enabled_protocols and ssl_protocol allow"

# The texts for handshakes that this client's OpenSSL has ended, by its reason.
REASONS: dict[str, str] = {
    "WRONG_VERSION_NUMBER": NOT_TLS,
    "HTTP_REQUEST": NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": NOT_TLS,
    "RECORD_LAYER_FAILURE": NOT_TLS,
    "UNSUPPORTED_PROTOCOL": NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": NO_VERSION,
    "VERSION_TOO_LOW": NO_VERSION,
    "WRONG_SSL_VERSION": NO_VERSION,
    "DH_KEY_TOO_SMALL": "the broker's Diffie-Hellman key is too small for OpenSSL's security level",
    "EE_KEY_TOO_SMALL": "the key of the broker's certificate is too small for OpenSSL's security level",
    "CA_MD_TOO_WEAK": "the broker's certificate is signed with a digest that is too weak for OpenSSL's security level",
}

_MISSING = (
    "the broker asks for a client certificate; set ssl_certfile and ssl_keyfile "
    "(or ssl_keystore_location, or ssl_keystore_certificate_chain and ssl_keystore_key)"
)
_UNTRUSTED = "the broker does not accept the client's certificate{named}: {why}"

# The texts for alerts that the broker has sent, by the end of OpenSSL's reason: TLSV1_ALERT_UNKNOWN_CA, for example.
ALERTS: dict[str, str] = {
    "CERTIFICATE_REQUIRED": _MISSING,
    "BAD_CERTIFICATE": _UNTRUSTED.replace("{why}", "it takes it for damaged, or for one of no use"),
    "UNSUPPORTED_CERTIFICATE": _UNTRUSTED.replace("{why}", "it is not of a kind that it supports"),
    "CERTIFICATE_REVOKED": _UNTRUSTED.replace("{why}", "it has been revoked"),
    "CERTIFICATE_EXPIRED": _UNTRUSTED.replace("{why}", "it has expired; renew it"),
    "CERTIFICATE_UNKNOWN": _UNTRUSTED.replace(
        "{why}", "it has expired, or the broker's truststore does not have the CA that issued it"
    ),
    "UNKNOWN_CA": _UNTRUSTED.replace("{why}", "the broker's truststore does not have the CA that issued it"),
    "ACCESS_DENIED": _UNTRUSTED.replace("{why}", "it may not connect"),
    "DECRYPT_ERROR": _UNTRUSTED.replace("{why}", "a signature made with its key does not fit"),
    "HANDSHAKE_FAILURE": "the broker and this client have no cipher in common (see ssl_cipher_suites), or the broker "
    "asks for a client certificate (see ssl_certfile)",
    "INSUFFICIENT_SECURITY": "the broker takes none of the ciphers of this client; see ssl_cipher_suites",
    "PROTOCOL_VERSION": NO_VERSION,
    "UNRECOGNIZED_NAME": "the broker does not know itself under the name that was used to reach it",
}
_OF_CERTIFICATES = ("BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")


def peer_name(host: str, address: Address) -> str:
    """Returns the name of the broker for errors: its host, port and address."""
    port = address.sockaddr[1] if len(address.sockaddr) > 1 else "?"
    return f"{f'[{host}]' if ':' in host else host}:{port} ({address})"


def handshake_hint(error: ssl.SSLError, config: ConsumerConfig, host: str) -> str:
    """Returns the text for a failed handshake, with a hint about what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = VERIFICATIONS.get(error.verify_code)
        given = _given(config, "ssl_cafile", "ssl_truststore_location", "ssl_truststore_certificates", "ssl_context")
        trust = f"is the cluster's CA in {given}?" if given else "set ssl_cafile to the certificate of the cluster's CA"
        if known is not None:
            return known.format(host=host, trust=trust)
        return f"the broker's certificate is not accepted: {error.verify_message}"
    return alert_hint(error, config) or REASONS.get(_reason(error)) or f"the handshake ended with {words(error)}"


def alert_hint(error: ssl.SSLError, config: ConsumerConfig) -> str | None:
    """Returns the text for an alert of the broker, with a hint. Returns None for an error that is no known alert."""
    reason = (_reason(error) or str(error)).upper().replace(" ", "_")
    # OpenSSL's reasons for some of the alerts do not contain ALERT: TLSV1_UNRECOGNIZED_NAME, for example.
    prefix = "ALERT_" if "ALERT_" in reason else "TLSV1_"
    _, alert, name = reason.partition(prefix)
    known = next((text for ending, text in ALERTS.items() if alert and name.startswith(ending)), None)
    if known is None:
        return None
    ours = _given(config, "ssl_certfile", "ssl_keystore_location", "ssl_keystore_certificate_chain", "ssl_context")
    if not ours and name.startswith(_OF_CERTIFICATES):
        return _MISSING  # Java's TLS sends these alerts also if the client has sent no certificate
    return known.format(named=f" ({ours})" if ours else "")


def _given(config: ConsumerConfig, *names: str) -> str:
    """Returns the name of the first of these options that is set, with its value if that is a path. Empty if none is
    set."""
    for name in names:
        value = getattr(config, name)
        if value is not None:
            return f"{name}={value!r}" if name.endswith(("file", "location")) else name
    return ""


def words(error: ssl.SSLError) -> str:
    """Returns OpenSSL's reason as lower-case words, for errors that are in no table here."""
    return (_reason(error) or error.strerror or str(error)).lower().replace("_", " ")


def _reason(error: ssl.SSLError) -> str:
    """Returns OpenSSL's reason, such as "WRONG_VERSION_NUMBER". Empty for errors that Python raises itself."""
    return getattr(error, "reason", None) or ""
