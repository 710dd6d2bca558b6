"""Restricts an `ssl.SSLContext` to the suites in `ssl_cipher_suites`, which may have Java's (IANA's) or OpenSSL's
names.

Before Python 3.15, `ssl` cannot enable a part of the suites of TLS 1.3: either all are enabled, or TLS 1.3 is disabled.
With such a Python, a list that contains only some suites of TLS 1.3 raises ConfigError.
"""

from __future__ import annotations

import re
import ssl

from kconsumer.errors import ConfigError

TLS13 = {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
_JAVA = re.compile(r"TLS_(?P<exchange>[A-Z_]+)_WITH_(?P<cipher>[A-Z0-9_]+)_(?P<digest>SHA\d*)")


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name for the Java name of a TLS 1.2 suite. Returns other names unchanged."""
    match = _JAVA.fullmatch(name)
    if match is None:
        return name
    exchange = match["exchange"].replace("_", "-")
    cipher = re.sub(r"^AES_(\d+)", r"AES\1", match["cipher"]).replace("_CBC", "").replace("_", "-")
    parts = [] if exchange == "RSA" else [exchange]  # OpenSSL's names leave out the RSA key exchange
    parts.append(cipher)
    if cipher != "CHACHA20-POLY1305":
        parts.append(match["digest"])
    return "-".join(parts)


def set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Allow only the suites `names`. If `names` is empty, keep OpenSSL's default.

    If no suite of TLS 1.2 is named, also disables TLS 1.2. If no suite of TLS 1.3 is named, also disables TLS 1.3.
    Raises ConfigError for unknown names, and if no version is left.
    """
    if not names:
        return
    new = [name for name in names if name in TLS13]
    old = [openssl_name(name) for name in names if name not in TLS13]
    if old:
        _set_old(context, old, dict(zip(old, (name for name in names if name not in TLS13), strict=True)))
    if new:
        _set_new(context, new)
    if not new:
        _limit(context, "maximum_version", ssl.TLSVersion.TLSv1_2, "none of TLS 1.3")
    if not old:
        _limit(context, "minimum_version", ssl.TLSVersion.TLSv1_3, "only suites of TLS 1.3")


def _set_old(context: ssl.SSLContext, old: list[str], given: dict[str, str]) -> None:
    try:
        context.set_ciphers(":".join(old))
        known = {cipher["name"] for cipher in context.get_ciphers()}
    except ssl.SSLError:
        known = set()
    unknown = [given[name] for name in old if name not in known]
    if unknown:
        raise ConfigError(
            f"ssl_cipher_suites: OpenSSL ({ssl.OPENSSL_VERSION}) has no suite {', '.join(unknown)}; "
            "`openssl ciphers -stdname` lists what it has"
        )


def _set_new(context: ssl.SSLContext, new: list[str]) -> None:
    if hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(":".join(new))
    elif set(new) != TLS13:
        missing = ", ".join(sorted(TLS13 - set(new)))
        raise ConfigError(
            f"ssl_cipher_suites: this Python cannot choose among the suites of TLS 1.3, all of which are enabled; name "
            f"{missing}, too, or use TLS 1.2 only (ssl_protocol='TLSv1.2') and name its suites"
        )


def _limit(context: ssl.SSLContext, bound: str, version: ssl.TLSVersion, named: str) -> None:
    other = context.minimum_version if bound == "maximum_version" else context.maximum_version
    if (other > version) if bound == "maximum_version" else (other < version):
        raise ConfigError(f"ssl_cipher_suites names {named}, and ssl_enabled_protocols allows no other version")
    setattr(context, bound, version)
