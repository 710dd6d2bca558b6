"""The options of SASL: which ones exclude or require each other, Java's JAAS entries, references to secrets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kconsumer.config.jaas import parse
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError

KAFKA = "org.apache.kafka.common.security."
PLAIN = KAFKA + "plain.PlainLoginModule"
SCRAM = KAFKA + "scram.ScramLoginModule"
OAUTH = KAFKA + "oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
URL = "https://issuer.example/token"


def config(mechanism: str | None = None, **options: Any) -> ConsumerConfig:
    chosen = {} if mechanism is None else {"sasl_mechanism": mechanism}
    return ConsumerConfig(
        **{"bootstrap_servers": "b:9092", "security_protocol": "SASL_SSL", **chosen, **options}  # type: ignore[arg-type]
    )


def refusal(mechanism: str | None = None, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config(mechanism, **options)
    return str(caught.value)


# --- combinations of options ---


@pytest.mark.parametrize(
    ("mechanism", "options", "words"),
    [
        ("PLAIN", {}, "needs sasl_plain_username and sasl_plain_password (or sasl_jaas_config)"),
        ("PLAIN", {"sasl_plain_username": "u"}, "needs sasl_plain_password"),
        ("SCRAM-SHA-256", {"sasl_plain_password": "p"}, "needs sasl_plain_username"),
        ("OAUTHBEARER", {}, "needs one of sasl_oauth_token_provider and sasl_oauthbearer_token_endpoint_url"),
        (
            "OAUTHBEARER",
            {"sasl_oauth_token_provider": str, "sasl_oauthbearer_token_endpoint_url": URL},
            "cannot have both sasl_oauth_token_provider and sasl_oauthbearer_token_endpoint_url",
        ),
        (
            "OAUTHBEARER",
            {"sasl_oauthbearer_token_endpoint_url": URL},
            "needs sasl_oauthbearer_client_credentials_client_id and sasl_oauthbearer_client_credentials_client_secret",
        ),
        (None, {"sasl_plain_username": "u"}, "sasl_mechanism is GSSAPI unless you set it"),
        (
            "PLAIN",
            {"sasl_oauth_token_provider": str},
            "sasl_oauth_token_provider belongs to sasl_mechanism OAUTHBEARER",
        ),
        ("PLAIN", {"sasl.kerberos.service.name": "k"}, "sasl.kerberos.service.name belongs to sasl_mechanism GSSAPI"),
        ("PLAIN", {"sasl_scram_tokenauth": True}, "belongs to sasl_mechanism SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("PLAINTEXT", {}, "it takes one of GSSAPI, PLAIN"),
        ("OAUTHBEARER", {"sasl_oauthbearer_token_endpoint_url": "ftp://x/"}, "an address https://"),
        ("OAUTHBEARER", {"sasl_oauthbearer_token_endpoint_url": "https://u:p@x/"}, "must not contain credentials"),
        ("PLAIN", {"sasl_username": "u"}, "needs sasl_plain_password"),
    ],
)
def test_options_that_exclude_each_other(mechanism: str | None, options: dict[str, Any], words: str) -> None:
    """Options that exclude each other raise a ConfigError at construction, which names both."""
    assert words in refusal(mechanism, **options)


def test_gssapi_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is reported at construction, with the name of the extra; the mechanism may come from the
    default.
    """
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = "sasl_mechanism='GSSAPI' (which it is unless you set it) needs the package gssapi"
    assert words in refusal(sasl_kerberos_service_name="kafka")
    assert "pip install gssapi" in refusal("GSSAPI", sasl_kerberos_service_name="kafka")


def test_without_sasl_its_options_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """SASL options without a SASL security protocol are ignored, and a warning is logged; Java logs nothing."""
    with caplog.at_level(logging.WARNING):
        ConsumerConfig(bootstrap_servers="b:9092", sasl_mechanism="PLAIN", sasl_plain_username="u")
    assert "sasl_mechanism, sasl_plain_username: ignored, because security_protocol is PLAINTEXT" in caplog.text


def test_a_provider_may_be_an_object() -> None:
    """An object with a method token(), as in kafka-python, is accepted as a provider."""

    class Provider:
        def token(self) -> str:
            return "t"

    chosen = config("OAUTHBEARER", sasl_oauth_token_provider=Provider()).sasl_oauth_token_provider
    assert chosen is not None
    assert "t" == chosen()


@pytest.mark.parametrize("given", [{"a": "1", "b": "x=y"}, "a=1, b=x=y"])
def test_extensions(given: Any) -> None:
    """Extensions may be a mapping or text."""
    found = config("OAUTHBEARER", sasl_oauth_token_provider=str, sasl_oauth_extensions=given).sasl_oauth_extensions
    assert {"a": "1", "b": "x=y"} == found


# --- references ---


def test_a_secret_may_be_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, an environment variable or a callable is read each time the secret is needed, so changes take effect."""
    file = tmp_path / "password"
    monkeypatch.setenv("KCONSUMER_TEST_USER", "alice")
    one = config("PLAIN", sasl_plain_username="env:KCONSUMER_TEST_USER", sasl_plain_password=f"file:{file}")
    for text in ("first", "second"):
        file.write_text(text + "\n")
        assert text == one.secret("sasl_plain_password")
    assert "alice" == one.secret("sasl_plain_username")
    assert one.refers("sasl_plain_password")
    assert not config("PLAIN", sasl_plain_username="u", sasl_plain_password="p").refers("sasl_plain_password")
    file.unlink()
    with pytest.raises(ConfigError, match=r"sasl_plain_password: file .*password cannot be read: No such file"):
        one.secret("sasl_plain_password")


# --- JAAS ---


def test_a_jaas_entry() -> None:
    """Quotes of both kinds, escapes, comments and line ends are parsed."""
    entry = parse("""
        /* who we are */ org.x.Module required // the flag
          a="x \\"quoted\\" \\\\ y;=z"
          b='single' c=bare
          ;
    """)
    assert ("org.x.Module", {"a": 'x "quoted" \\ y;=z', "b": "single", "c": "bare"}) == entry


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it begins with"),
        ("x.PlainLoginModule", "it begins with"),
        ('x.PlainLoginModule username="hunter2";', "one of required, requisite, sufficient, optional"),
        ('x.PlainLoginModule required username="hunter2"', "ends with a semicolon"),
        ('x.PlainLoginModule required username="hunter2;', "no closing quotation mark"),
        ("x.PlainLoginModule required username hunter2;", 'name="value"'),
        ("x.PlainLoginModule required username=;", 'name="value"'),
        ("x.PlainLoginModule required username= = hunter2;", 'name="value"'),
        ("x.PlainLoginModule required a=hunter2 a=hunter2;", "gives a twice"),
        ("x.PlainLoginModule required a=hunter2; y.Other required;", "exactly one entry"),
        ("KafkaClient { x.PlainLoginModule required; };", "it begins with"),
    ],
)
def test_a_jaas_entry_that_cannot_be_read(text: str, why: str) -> None:
    """The error shows the expected form, and nothing of the entry itself."""
    message = refusal("PLAIN", sasl_jaas_config=text)
    assert why in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("mechanism", "text", "expected"),
    [
        ("PLAIN", f'{PLAIN} required username="u" password="p;=";', {"sasl_plain_username": "u"}),
        (
            "SCRAM-SHA-512",
            f'{SCRAM} required username="u" password="p;=" tokenauth="true";',
            {"sasl_plain_username": "u", "sasl_scram_tokenauth": True},
        ),
        ("PLAIN", 'shaded.kafka.PlainLoginModule REQUIRED username=u password="p;=";', {"sasl_plain_username": "u"}),
    ],
)
def test_a_jaas_entry_becomes_options(mechanism: str, text: str, expected: dict[str, Any]) -> None:
    """Java's JAAS entry sets the same options as their own names do."""
    found = ConsumerConfig.from_mapping(
        {
            "bootstrap.servers": "b:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": text,
        }
    )
    assert expected == {name: getattr(found, name) for name in expected}
    assert "p;=" == found.secret("sasl_plain_password")
    assert "p;=" not in repr(found)


def test_a_jaas_entry_for_oauth() -> None:
    """Client id, secret, scope and extensions are read; the token endpoint is a separate option, as in Java."""
    text = f'{OAUTH} required clientId="id" clientSecret="s" scope="read write" extension_cluster="lkc-1";'
    found = config("OAUTHBEARER", sasl_jaas_config=text, sasl_oauthbearer_token_endpoint_url=URL)
    assert "id" == found.sasl_oauthbearer_client_credentials_client_id
    assert "s" == found.secret("sasl_oauthbearer_client_credentials_client_secret")
    assert ("read write", {"cluster": "lkc-1"}) == (found.sasl_oauthbearer_scope, found.sasl_oauth_extensions)


def test_a_jaas_entry_for_oauth_in_a_file(tmp_path: Path) -> None:
    """A reference to a JAAS entry is read when the consumer is created. If it cannot be read, the error names it."""
    file = tmp_path / "jaas"
    file.write_text(f'{OAUTH} required clientId="id" clientSecret="s";\n')
    options = {"sasl_oauthbearer_token_endpoint_url": URL}
    found = config("OAUTHBEARER", sasl_jaas_config=f"file:{file}", **options)
    assert "id" == found.sasl_oauthbearer_client_credentials_client_id
    with pytest.raises(ConfigError, match=r"sasl_jaas_config: file .*/missing cannot be read"):
        config("OAUTHBEARER", sasl_jaas_config=f"file:{tmp_path}/missing", **options)


def test_a_jaas_entry_for_kerberos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that only concern a JVM are ignored."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    text = f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/k" principal="p@R" serviceName="kafka";'
    found = config("GSSAPI", sasl_jaas_config=text)
    assert ("/k", "p@R", "kafka") == (
        found.sasl_kerberos_keytab,
        found.sasl_kerberos_principal,
        found.sasl_kerberos_service_name,
    )


@pytest.mark.parametrize(
    ("mechanism", "text", "why"),
    [
        ("PLAIN", "com.example.Other required;", "names the module com.example.Other; supported are PlainLoginModule"),
        (
            "PLAIN",
            f"{SCRAM} required username=hunter2;",
            "is for sasl_mechanism=SCRAM-SHA-256 or SCRAM-SHA-512, not PLAIN",
        ),
        ("PLAIN", f"{PLAIN} required user=hunter2;", "has no option user; supported are username, password"),
        ("PLAIN", f"{PLAIN} required username=hunter2;", "needs sasl_plain_password"),
        ("SCRAM-SHA-256", f"{SCRAM} required username=u password=hunter2 tokenauth=maybe;", "True or False"),
    ],
)
def test_a_jaas_entry_that_does_not_fit(mechanism: str, text: str, why: str) -> None:
    """Each error names the problem and contains no value."""
    message = refusal(mechanism, sasl_jaas_config=text)
    assert why in message
    assert "hunter2" not in message


def test_a_jaas_entry_and_the_option_for_the_same() -> None:
    """A JAAS entry together with an option that it sets is refused."""
    text = f'{PLAIN} required username="u" password="p";'
    message = refusal("PLAIN", sasl_jaas_config=text, sasl_plain_username="v")
    assert "sasl_jaas_config and sasl_plain_username set the same option" in message


def test_a_jaas_entry_by_reference() -> None:
    """A JAAS entry that is a reference is not read at construction, because it may differ at each login."""
    chosen = config("PLAIN", sasl_jaas_config="env:KCONSUMER_NOT_SET")
    assert None is chosen.sasl_plain_username
