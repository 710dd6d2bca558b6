"""Certificates for tests: a certificate authority and the certificates that it issues, as PEM text and files.

Keys are of elliptic curves, which are quick to make. Brokers read the same PEM files as clients.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS = ("localhost", "127.0.0.1", "::1")
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM text. `chain` is sent to the peer: the certificate first, then its issuers."""

    chain: str
    key: str

    @property
    def both(self) -> str:
        """Returns key and chain in one text, in the form that brokers and `ssl_certfile` take."""
        return self.key + self.chain

    def write(self, path: Path) -> str:
        """Write key and chain into one file. Returns its path as text."""
        path.write_text(self.both)
        return str(path)

    def encrypted(self, password: str) -> str:
        """Returns the key encrypted with a password."""
        key = serialization.load_pem_private_key(self.key.encode(), None)
        return _key_text(key, serialization.BestAvailableEncryption(password.encode()))


# From Python 3.13 on, ssl.create_default_context() verifies certificates strictly, as RFC 5280 demands: the authority's
# certificate says what its key is for, and others name its key.
_AUTHORITY_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Issues certificates; `certificate` is its own, which peers trust."""

    def __init__(self, name: str = "kconsumer tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = _builder(self._name, self._name, self._key, -DAY, DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(_AUTHORITY_USAGE, critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self._own = made.sign(self._key, hashes.SHA256())
        self.certificate = _text(self._own)

    def issue(
        self,
        name: str = "someone",
        hosts: tuple[str, ...] = HOSTS,
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = DAY,
        names_key: bool = True,
    ) -> Certificate:
        """Returns a certificate for these hosts, valid between these times relative to now, for servers and clients.

        Without `names_key`, it does not say which key of the authority has signed it.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(_name(name), self._name, key, begins, ends)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names_key:
            identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            made = made.add_extension(identifier, critical=False)
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        return Certificate(_text(made.sign(self._key, hashes.SHA256())), _key_text(key, serialization.NoEncryption()))

    def write(self, path: Path) -> str:
        """Write the authority's certificate into a file. Returns its path as text."""
        path.write_text(self.certificate)
        return str(path)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.timedelta,
    ends: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: object, encryption: serialization.KeySerializationEncryption) -> str:
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def broker_properties(
    folder: Path,
    authority: Authority,
    certificate: Certificate,
    listeners: tuple[str, ...],
    asking: tuple[str, ...] = (),
) -> dict[str, str]:
    """Returns properties of a broker whose TLS listeners use this certificate. Listeners in `asking` require a client
    certificate, too.

    The store's file is `broker.pem` in the folder; a test may replace it.
    """
    store, trusted = certificate.write(folder / "broker.pem"), authority.write(folder / "trusted.pem")
    properties = {}
    for name in listeners:
        prefix = f"listener.name.{name.lower()}.ssl"
        properties[f"{prefix}.keystore.type"] = properties[f"{prefix}.truststore.type"] = "PEM"
        properties[f"{prefix}.keystore.location"] = store
        properties[f"{prefix}.truststore.location"] = trusted
        properties[f"{prefix}.client.auth"] = "required" if name in asking else "none"
    return properties
