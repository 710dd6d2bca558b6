"""The SSLContext built from the options: trust, identity, versions and ciphers, and refused options."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError
from kconsumer.net.tls.ciphers import TLS13, openssl_name, set_ciphers
from kconsumer.net.tls.context import make_context
from support.brokers.certificates import Authority

AUTHORITY = Authority()
IDENTITY = AUTHORITY.issue("client")
OTHER = AUTHORITY.issue("other")
JKS, PKCS12 = b"\xfe\xed\xfe\xed\x00\x00\x00\x02", b"\x30\x82\x01\x01\x02\x01\x03"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return the paths of the files that options refer to."""
    contents = {
        "ca": AUTHORITY.certificate,
        "cas": "a comment ü\n" + AUTHORITY.certificate + Authority("another").certificate,
        "both": IDENTITY.both,
        "chain": IDENTITY.chain + AUTHORITY.certificate,
        "key": IDENTITY.key,
        "other_key": OTHER.key,
        "encrypted": IDENTITY.encrypted("sesame"),
        "nothing": "nothing\n",
        "broken": IDENTITY.key + IDENTITY.chain.replace("\nM", "\nN", 1),
        "damaged": AUTHORITY.certificate.replace("\nM", "\nN", 1),
        "secret": "sesame\n",
    }
    paths = {name: tmp_path / name for name in contents}
    for name, text in contents.items():
        paths[name].write_text(text)
    for name, data in (("jks", JKS), ("p12", PKCS12)):
        paths[name] = tmp_path / name
        paths[name].write_bytes(data)
    return {name: str(path) for name, path in paths.items()} | {"missing": str(tmp_path / "missing")}


def context(**options: Any) -> ssl.SSLContext:
    return make_context(ConsumerConfig(bootstrap_servers="k:1", security_protocol="SSL", **options))


def refusal(**options: Any) -> str:
    """Return the error of a consumer with these options."""
    with pytest.raises(ConfigError) as caught:
        Consumer(bootstrap_servers="k:1", security_protocol="SSL", **options)
    return str(caught.value)


def named(files: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with <name> replaced by the path of a file."""
    return {
        key: re.sub(r"<(\w+)>", lambda match: files[match[1]], value) if isinstance(value, str) else value
        for key, value in options.items()
    }


def test_defaults() -> None:
    """Certificates and host names are verified, TLS 1.2 or later is spoken, the system's authorities are trusted."""
    made = context()
    assert (ssl.CERT_REQUIRED, True) == (made.verify_mode, made.check_hostname)
    assert (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3) == (made.minimum_version, made.maximum_version)
    assert made.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"ssl_cafile": "<ca>"}, 1),
        ({"ssl_cafile": "<cas>"}, 2),
        ({"ssl_truststore_location": "<ca>"}, 1),
        ({"ssl_truststore_location": "<ca>", "ssl_truststore_type": "PEM"}, 1),
        ({"ssl_truststore_certificates": AUTHORITY.certificate, "ssl_truststore_type": "pem"}, 1),
        ({"ssl_truststore_certificates": AUTHORITY.certificate.replace("\n", " ")}, 1),
        ({"ssl_truststore_certificates": AUTHORITY.certificate.replace("\n", "\\n")}, 1),
    ],
)
def test_trust(files: dict[str, str], options: dict[str, Any], count: int) -> None:
    """CAs are read under either option name, from files or text with any line breaks, and replace the system's
    authorities.
    """
    assert count == context(**named(files, options)).cert_store_stats()["x509_ca"]


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_certfile": "<both>"},
        {"ssl_certfile": "<chain>", "ssl_keyfile": "<key>"},
        {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "sesame"},
        {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "file:<secret>"},
        {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "env:KCONSUMER_TEST_SECRET"},
        {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": lambda: "sesame"},
        {"ssl_certfile": "<both>", "ssl_password": "not needed"},
        {"ssl_keystore_location": "<both>", "ssl_keystore_type": "PEM"},
        {"ssl_keystore_location": "<both>"},
        {"ssl_keystore_certificate_chain": IDENTITY.chain, "ssl_keystore_key": IDENTITY.key},
        {"ssl_keystore_certificate_chain": IDENTITY.chain, "ssl_keystore_key": "file:<key>"},
        {
            "ssl_keystore_certificate_chain": IDENTITY.chain.replace("\n", " "),
            "ssl_keystore_key": IDENTITY.encrypted("sesame").replace("\n", " "),
            "ssl_key_password": "sesame",
        },
    ],
)
def test_identity(files: dict[str, str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A client certificate is read under kafka-python's names or Java's, from files or text, with an encrypted key and
    any form of its password.
    """
    monkeypatch.setenv("KCONSUMER_TEST_SECRET", "sesame")
    context(**named(files, options))


def test_keys_given_as_text_leave_no_file_and_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's ssl reads keys only from files; the temporary file and its descriptor are gone afterwards."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        context(ssl_keystore_certificate_chain=IDENTITY.chain, ssl_keystore_key=IDENTITY.key)
    monkeypatch.delattr("os.memfd_create")
    context(ssl_keystore_certificate_chain=IDENTITY.chain, ssl_keystore_key=IDENTITY.key)
    assert ([], before) == (list(tmp_path.iterdir()), len(os.listdir("/proc/self/fd")))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ssl_cafile": "<missing>"}, "^ssl_cafile='<missing>' cannot be read: No such file"),
        ({"ssl_truststore_location": "<nothing>"}, "^ssl_truststore_location='<nothing>' holds no certificate in PEM"),
        ({"ssl_cafile": "<key>"}, "^ssl_cafile='<key>' holds no certificate in PEM"),
        ({"ssl_cafile": "<damaged>"}, "^ssl_cafile='<damaged>': certificate 1 is damaged"),
        ({"ssl_truststore_certificates": "x"}, "^ssl_truststore_certificates holds no certificate in PEM"),
        ({"ssl_cafile": "<ca>", "ssl_truststore_location": "<ca>"}, "ssl_cafile and ssl_truststore_location"),
        ({"ssl_truststore_location": "<ca>", "ssl_truststore_password": "x"}, "^ssl_truststore_password is for JKS"),
        ({"ssl_keystore_location": "<both>", "ssl_keystore_password": "x"}, "^ssl_keystore_password is for JKS"),
        ({"ssl_certfile": "<missing>"}, "^ssl_certfile='<missing>' cannot be read: No such file"),
        ({"ssl_certfile": "<chain>"}, "^ssl_certfile='<chain>' holds no private key.*set ssl_keyfile"),
        ({"ssl_certfile": "<key>"}, "^ssl_certfile='<key>' holds no certificate"),
        ({"ssl_certfile": "<chain>", "ssl_keyfile": "<ca>"}, "^ssl_keyfile='<ca>' holds no private key"),
        (
            {"ssl_certfile": "<chain>", "ssl_keyfile": "<other_key>"},
            "^the key in ssl_keyfile='<other_key>' is not that of the certificate in ssl_certfile='<chain>'",
        ),
        (
            {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>"},
            "^the key in ssl_keyfile='<encrypted>' is encrypted; set ssl_password",
        ),
        (
            {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "hunter2"},
            "^ssl_password does not open the key in ssl_keyfile='<encrypted>'",
        ),
        (
            {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "env:KCONSUMER_NO_SUCH"},
            "^ssl_password: the environment has no variable KCONSUMER_NO_SUCH",
        ),
        (
            {"ssl_certfile": "<chain>", "ssl_keyfile": "<encrypted>", "ssl_password": "file:<missing>"},
            "^ssl_password: file <missing> cannot be read: No such file",
        ),
        ({"ssl_certfile": "<both>", "ssl_password": lambda: None}, "^ssl_password: .* returned a NoneType"),
        ({"ssl_certfile": "<broken>"}, "^ssl_certfile='<broken>': the certificate or its key is damaged"),
        ({"ssl_keyfile": "<key>"}, "^ssl_keyfile is a key without a certificate; set ssl_certfile"),
        ({"ssl_keystore_key": IDENTITY.key}, "^ssl_keystore_key is a key without.*set ssl_keystore_certificate_chain"),
        ({"ssl_keystore_certificate_chain": IDENTITY.chain}, "without a key; set ssl_keystore_key"),
        (
            {"ssl_keystore_certificate_chain": IDENTITY.chain, "ssl_keystore_key": OTHER.key},
            "^the key in ssl_keystore_key is not that of the certificate in ssl_keystore_certificate_chain",
        ),
        (
            {"ssl_truststore_certificates": AUTHORITY.certificate, "ssl_truststore_type": "JKS"},
            "^ssl_truststore_certificates is PEM text, and ssl_truststore_type is 'JKS'",
        ),
        ({"ssl_protocol": "TLSv1.2", "ssl_enabled_protocols": "TLSv1.3"}, "ssl_protocol='TLSv1.2' and .*leave no"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "ssl_enabled_protocols='TLSv1.1' is not allowed"),
        ({"ssl_protocol": "SSLv3"}, "ssl_protocol='SSLv3' is not allowed"),
        ({"ssl_context": "yes"}, "ssl_context='yes' is not allowed: it takes an ssl.SSLContext"),
        ({"ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}, "ssl_context is one for servers"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_cafile": "<ca>", "ssl_check_hostname": False},
            "ssl_context replaces ssl_cafile, ssl_check_hostname; give one",
        ),
        ({"ssl_cipher_suites": "TLS_ECDHE_RSA_WITH_ROT_13_SHA256"}, "has no suite TLS_ECDHE_RSA_WITH_ROT_13_SHA256;"),
        (
            {"ssl_cipher_suites": "ECDHE-RSA-AES256-GCM-SHA384", "ssl_enabled_protocols": "TLSv1.3"},
            "names none of TLS 1.3, and ssl_enabled_protocols",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_at_construction(
    files: dict[str, str], options: dict[str, Any], reason: str
) -> None:
    """The error has the option, its file and advice, and no secret."""
    pattern = re.sub(r"<(\w+)>", lambda match: re.escape(files[match[1]]), reason)
    message = refusal(**named(files, options))
    assert re.search(pattern, message), message
    assert not re.search("hunter2|PRIVATE KEY-|BEGIN CERTIFICATE-----\n", message)


@pytest.mark.parametrize(
    ("options", "command", "instead"),
    [
        ({"ssl_truststore_location": "<jks>"}, "keytool -list -rfc -keystore <jks> >", "ssl_cafile='truststore.pem'"),
        (
            {"ssl_truststore_location": "<jks>", "ssl_truststore_password": "x"},
            "keytool -list -rfc -keystore <jks> >",
            "ssl_cafile='truststore.pem'",
        ),
        (
            {"ssl_keystore_location": "<jks>", "ssl_keystore_password": "x", "ssl_key_password": "x"},
            "keytool -importkeystore -srckeystore <jks>",
            "ssl_certfile='keystore.pem'",
        ),
        ({"ssl_truststore_location": "<p12>"}, "keytool -list -rfc -keystore <p12> >", "ssl_cafile='truststore.pem'"),
        (
            {"ssl_truststore_location": "<ca>", "ssl_truststore_type": "JKS"},
            "keytool -list -rfc -keystore <ca> >",
            "ssl_cafile='truststore.pem'",
        ),
        (
            {"ssl_truststore_location": "<jks>", "ssl_truststore_type": "PEM"},
            "keytool -list -rfc -keystore <jks> >",
            "ssl_cafile='truststore.pem'",
        ),
        ({"ssl_cafile": "<jks>"}, "keytool -list -rfc -keystore <jks> >", "ssl_cafile='truststore.pem'"),
        ({"ssl_keystore_location": "<jks>"}, "keytool -importkeystore -srckeystore <jks>", "ssl_certfile='keystore"),
        ({"ssl_keystore_location": "<p12>"}, "openssl pkcs12 -in <p12> -out", "ssl_certfile='keystore.pem'"),
        (
            {"ssl_keystore_location": "<p12>", "ssl_keystore_type": "PKCS12"},
            "openssl pkcs12 -in <p12> -out",
            "ssl_certfile='keystore.pem'",
        ),
    ],
)
def test_stores_of_java(files: dict[str, str], options: dict[str, Any], command: str, instead: str) -> None:
    """For JKS and PKCS12 the error has the command that converts them to PEM files, and the option for these."""
    message = refusal(**named(files, options))
    assert re.sub(r"<(\w+)>", lambda match: files[match[1]], command) in message
    assert instead in message


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_ciphers(java: str, openssl: str) -> None:
    """Java's names of cipher suites are converted to OpenSSL's."""
    assert openssl == openssl_name(java)


def test_ciphers_decide_the_version() -> None:
    """Suites of only one TLS version allow only that version, as in Java; suites of TLS 1.3 are enabled together."""
    old = context(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-AES128-GCM-SHA256")
    assert ssl.TLSVersion.TLSv1_2 == old.maximum_version
    names = {cipher["name"] for cipher in old.get_ciphers()}
    assert {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"} == names - TLS13
    new = context(ssl_cipher_suites=sorted(TLS13))
    assert ssl.TLSVersion.TLSv1_3 == new.minimum_version


def test_ciphers_that_python_cannot_choose() -> None:
    """A warning is logged that single suites of TLS 1.3 cannot be disabled (before Python 3.15)."""
    older: Any = SimpleNamespace(minimum_version=ssl.TLSVersion.TLSv1_2, maximum_version=ssl.TLSVersion.TLSv1_3)
    with pytest.raises(
        ConfigError, match=r"cannot choose among .*TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"
    ):
        set_ciphers(older, ("TLS_AES_256_GCM_SHA384",))


def test_versions() -> None:
    """The highest version is the lower maximum of both options."""
    found = [
        context(ssl_protocol="TLSv1.2"),
        context(ssl_protocol="TLS", ssl_enabled_protocols=["TLSv1.3"]),
        context(ssl_enabled_protocols="TLSv1.2"),
    ]
    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert [(old, old), (new, new), (old, old)] == [(made.minimum_version, made.maximum_version) for made in found]


def test_a_context_of_the_users_own() -> None:
    """An SSLContext of the user is used unchanged."""
    own = ssl.create_default_context()
    assert own is context(ssl_context=own)


def test_options_without_tls_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A warning is logged for TLS options without TLS: a CA alone does not encrypt the connection."""
    ConsumerConfig.from_mapping({"bootstrap.servers": "k:1", "ssl.cafile": "ca.pem", "ssl_password": "hunter2"})
    assert "ssl.cafile, ssl_password: ignored, because security_protocol is PLAINTEXT" in caplog.text
    assert "hunter2" not in caplog.text
