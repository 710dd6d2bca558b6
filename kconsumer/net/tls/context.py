"""Makes an `ssl.SSLContext` from the options: trusted certificates, the client's own certificate, versions and ciphers.

Implements the TLS options, both those with kafka-python's names and those with Java's. Raises a ConfigError that names
the option if a file is missing or has the wrong contents, if a key does not belong to the certificate, or if a password
is wrong. Reads files, but opens no connection.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from kconsumer.errors import ConfigError
from kconsumer.net.tls.ciphers import set_ciphers

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.+?)-----END \1-----", re.DOTALL)
_JKS_MAGIC = b"\xfe\xed\xfe\xed"

# Commands that convert a Java keystore or truststore to PEM. They ask for the store's password.
_TRUSTED_BY_KEYTOOL = "keytool -list -rfc -keystore {path} > truststore.pem"
_KEY_BY_KEYTOOL = (
    "keytool -importkeystore -srckeystore {path} -destkeystore keystore.p12 -deststoretype PKCS12 && "
    "openssl pkcs12 -in keystore.p12 -out keystore.pem"
)
CONVERSIONS = {
    ("truststore", "JKS"): _TRUSTED_BY_KEYTOOL,
    ("truststore", "PKCS12"): _TRUSTED_BY_KEYTOOL,
    ("keystore", "JKS"): _KEY_BY_KEYTOOL,
    ("keystore", "PKCS12"): "openssl pkcs12 -in {path} -out keystore.pem",
}


def make_context(config: ConsumerConfig) -> ssl.SSLContext:
    """Returns the context for all connections. Raises ConfigError if an option, or a file that it names, is
    unusable."""
    if config.ssl_context is not None:
        return _own(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and host names
    context.options |= ssl.OP_NO_RENEGOTIATION  # refuse renegotiation, as Java's clients do
    context.check_hostname = config.ssl_check_hostname and config.ssl_endpoint_identification_algorithm == "https"
    _set_versions(context, config)
    set_ciphers(context, config.ssl_cipher_suites)
    set_trust(context, config)
    _set_identity(context, config)
    return context


def watched_files(config: ConsumerConfig) -> list[str]:
    """Returns the paths of the files that `make_context` reads."""
    paths = (
        config.ssl_cafile,
        config.ssl_truststore_location,
        config.ssl_certfile,
        config.ssl_keyfile,
        config.ssl_keystore_location,
    )
    return [path for path in paths if path is not None]


def _own(config: ConsumerConfig) -> ssl.SSLContext:
    context = config.ssl_context
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context={context!r} is not allowed: it takes an ssl.SSLContext")
    if context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ConfigError("ssl_context is one for servers; make it with ssl.create_default_context()")
    others = sorted(name for name in config.explicit if name.startswith("ssl_") and name != "ssl_context")
    if others:
        raise ConfigError(f"ssl_context replaces {', '.join(others)}; give one or the other")
    return context


def _set_versions(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    enabled = config.ssl_enabled_protocols
    unknown = [name for name in enabled if name not in VERSIONS]
    if unknown or not enabled:
        raise ConfigError(f"ssl_enabled_protocols={','.join(enabled)!r} is not allowed: it takes TLSv1.2 and TLSv1.3")
    versions = sorted(VERSIONS[name] for name in enabled)
    highest = min(versions[-1], VERSIONS.get(config.ssl_protocol, versions[-1]))
    if highest < versions[0]:
        raise ConfigError(
            f"ssl_protocol={config.ssl_protocol!r} and ssl_enabled_protocols={','.join(enabled)!r} leave no version"
        )
    context.minimum_version, context.maximum_version = versions[0], highest


# --- trust ---


def set_trust(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    """Make a context trust the configured certificates, or the system's if none are configured. Raises ConfigError if
    they cannot be read."""
    source = _one_of(
        ssl_cafile=config.ssl_cafile,
        ssl_truststore_location=config.ssl_truststore_location,
        ssl_truststore_certificates=config.ssl_truststore_certificates,
    )
    certificates = [] if source is None else _certificates(source, _Store.of_trust(config))  # checks the store's type
    _check_no_password("ssl_truststore_password", config.ssl_truststore_password)
    if source is None:
        context.load_default_certs()
        return
    for number, certificate in enumerate(certificates, start=1):
        try:
            context.load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{source}: certificate {number} is damaged ({_why(error)})") from None
    # As in Java, trust every certificate in the truststore, even if its issuer is not there.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


# --- identity ---


def _set_identity(context: ssl.SSLContext, config: ConsumerConfig) -> None:
    chain = _one_of(
        ssl_certfile=config.ssl_certfile,
        ssl_keystore_location=config.ssl_keystore_location,
        ssl_keystore_certificate_chain=config.ssl_keystore_certificate_chain,
    )
    key = _one_of(ssl_keyfile=config.ssl_keyfile, ssl_keystore_key=config.secret("ssl_keystore_key"))
    store = _Store.of_key(config)
    certificates = [] if chain is None else _certificates(chain, store)
    _check_no_password("ssl_keystore_password", config.ssl_keystore_password)
    if chain is None:
        if key is not None:
            needed = "ssl_certfile" if key.is_path else "ssl_keystore_certificate_chain"
            raise ConfigError(f"{key.option} is a key without a certificate; set {needed}, too")
        return
    if key is None and not chain.is_path:
        raise ConfigError("ssl_keystore_certificate_chain is a certificate without a key; set ssl_keystore_key, too")
    key = key or chain
    keys = [text for label, text in _blocks(key, store) if label.endswith("PRIVATE KEY")]
    if not keys:
        hint = "; set ssl_keyfile to the file that does" if key is chain else ""
        raise ConfigError(f"{key} holds no private key in PEM form{hint}")
    _load(context, config, "".join(certificates), keys[0], chain, key)


def _load(
    context: ssl.SSLContext, config: ConsumerConfig, certificates: str, key: str, chain_from: _Source, key_from: _Source
) -> None:
    password = _one_of(ssl_password=config.secret("ssl_password"), ssl_key_password=config.secret("ssl_key_password"))
    asked = False

    def read_password() -> str:
        # OpenSSL calls this for an encrypted key. Without a callback it would prompt on the terminal.
        nonlocal asked
        asked = True
        if password is None:
            raise ConfigError(f"the key in {key_from} is encrypted; set ssl_password")
        return password.value

    try:
        with _as_file(certificates) as chain_path, _as_file(key) as key_path:
            context.load_cert_chain(chain_path, key_path, read_password)
    except ConfigError:
        raise
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"the key in {key_from} is not that of the certificate in {chain_from}") from None
        if asked and password is not None:
            raise ConfigError(f"{password.option} does not open the key in {key_from}") from None
        raise ConfigError(f"{chain_from}: the certificate or its key is damaged ({_why(error)})") from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yields a path from which `text` can be read, because Python's ssl loads certificates and keys only from files.

    On Linux the file is in memory, so no key is written to a disk. Elsewhere it is a temporary file.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kconsumer")
        try:
            with open(fd, "w", closefd=False) as file:
                file.write(text)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as copy:
            copy.write(text)
        try:
            yield copy.name  # closed, because Windows does not open an open file again
        finally:
            os.unlink(copy.name)


# --- reading options ---


class _Source(NamedTuple):
    """An option that is set: either to a path, or to PEM text. Its `str`, for errors, shows a path, but no PEM text."""

    option: str
    value: str

    @property
    def is_path(self) -> bool:
        return self.option.endswith(("file", "location"))

    def __str__(self) -> str:
        return f"{self.option}={self.value!r}" if self.is_path else self.option


class _Store(NamedTuple):
    """The kind of store that an option names, which is Java's truststore or keystore, and the configured type of the
    store."""

    name: str  # `truststore` or `keystore`
    configured_type: str | None  # None: not configured

    @classmethod
    def of_trust(cls, config: ConsumerConfig) -> _Store:
        configured = config.ssl_truststore_type if "ssl_truststore_type" in config.explicit else None
        return cls("truststore", configured)

    @classmethod
    def of_key(cls, config: ConsumerConfig) -> _Store:
        return cls("keystore", config.ssl_keystore_type if "ssl_keystore_type" in config.explicit else None)

    def check(self, source: _Source, data: bytes) -> None:
        """Check that a store is PEM. Raises ConfigError for JKS and PKCS12, with the command to convert a file.

        The type of the store is the configured one. If none is configured, it is recognized by the first bytes of
        `data`. JKS or PKCS12 data is refused even if the configured type is PEM.
        """
        found = "JKS" if data.startswith(_JKS_MAGIC) else "PKCS12" if data.startswith(b"\x30") else "PEM"
        kind = found
        if self.configured_type is not None and source.option.startswith("ssl_" + self.name):
            kind = self.configured_type
        if kind == "PEM" and found != "PEM":
            kind = found
        if kind != "PEM" and source.is_path:
            self._refuse(source, kind)
        if kind != "PEM":
            raise ConfigError(f"{source} is PEM text, and ssl_{self.name}_type is {kind!r}; leave that out")

    def _refuse(self, source: _Source, kind: str) -> NoReturn:
        command = CONVERSIONS[self.name, kind].format(path=source.value)
        instead = "ssl_cafile='truststore.pem'" if self.name == "truststore" else "ssl_certfile='keystore.pem'"
        raise ConfigError(
            f"{source} is a {kind} store, and kconsumer reads PEM only; make a PEM file of it with\n"
            f"    {command}\nand set {instead}"
        )


def _one_of(**options: str | None) -> _Source | None:
    """Returns the option that is set, or None if none is set.

    All of these options have the same meaning, so raises ConfigError if more than one is set.
    """
    given = [_Source(name, value) for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0].option} and {given[1].option} mean the same; give one of them")
    return given[0] if given else None


def _check_no_password(option: str, value: str | None) -> None:
    if value is not None:
        raise ConfigError(
            f"{option} is for JKS and PKCS12 stores; in PEM files only keys have one, which is ssl_password"
        )


def _certificates(source: _Source, store: _Store) -> list[str]:
    found = [text for label, text in _blocks(source, store) if label.endswith("CERTIFICATE")]
    if not found:
        raise ConfigError(f"{source} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    return found


def _blocks(source: _Source, store: _Store) -> list[tuple[str, str]]:
    """Returns the label and the text of each PEM block in an option's value, or in the file that it names. Raises
    ConfigError if the file cannot be read or is not PEM."""
    if source.is_path:
        try:
            with open(source.value, "rb") as file:
                data = file.read()
        except OSError as error:
            raise ConfigError(f"{source} cannot be read: {error.strerror}") from None
        store.check(source, data)
        text = data.decode("latin-1")
    else:
        store.check(source, b"")
        text = source.value.replace("\\n", "\n")  # line breaks that a shell or JSON has escaped
    return [(label, _wrapped(label, body)) for label, body in _PEM.findall(text)]


def _wrapped(label: str, body: str) -> str:
    """Returns a PEM block with the line breaks that OpenSSL requires. PEM text in options often has spaces
    instead."""
    if ":" not in body:  # headers of the old encrypted format need their line breaks, so the body is not changed
        packed = "".join(body.split())
        body = "\n".join(packed[start : start + 64] for start in range(0, len(packed), 64))
    return f"-----BEGIN {label}-----\n{body.strip()}\n-----END {label}-----\n"


def _why(error: Exception) -> str:
    reason: str | None = getattr(error, "reason", None)
    return (reason or str(error)).lower().replace("_", " ")
