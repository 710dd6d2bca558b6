"""The programs of docs/guides/security-recipes.md, on clusters that require what the recipe has.

FakeCluster knows passwords and certificates. For tokens, there are stand-ins for the libraries of the clouds, and the
token that the client would send is checked.
"""

from __future__ import annotations

import base64
import datetime
import json
import random
import ssl
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kconsumer import Consumer
from kconsumer._core.lock import Clock
from kconsumer.config.options import ConsumerConfig
from kconsumer.net.sasl.tokens import Tokens
from kconsumer.testing import FakeCluster
from support.brokers.certificates import Authority
from support.harnesses.doc_blocks import BLOCKS, Block, run_python
from support.harnesses.inside import config_of

PAGE = "docs/guides/security-recipes.md"
PROGRAMS = [block for block in BLOCKS if block.page == PAGE and block.language == "python" and block.runs]
WITH_TOKENS = [block for block in PROGRAMS if "OAUTHBEARER" in block.text]
CONNECTION_STRING = "Endpoint=sb://demo.servicebus.windows.net/;SharedAccessKeyName=listen;SharedAccessKey=abc="
EXPIRES_AT = 4_000_000_000  # s since 1970


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The CA of brokers and clients, which the system trusts. Its files have the names of the page."""
    authority = Authority()
    client = authority.issue("client")
    authority.write(tmp_path / "ca.pem")
    (tmp_path / "client.pem").write_text(client.chain)
    (tmp_path / "client.key").write_text(client.key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.setenv("API_SECRET", "secret")
    monkeypatch.setenv("EVENT_HUBS_CONNECTION_STRING", CONNECTION_STRING)
    monkeypatch.setenv("CLIENT_SECRET", "secret")
    return authority


def server_context(authority: Authority, folder: Path, *, asks_for_certificates: bool) -> ssl.SSLContext:
    """Returns the TLS context of brokers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker").write(folder / "broker.pem"))
    if asks_for_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.pem")
    return context


def logins(block: Block) -> dict[str, Any] | None:
    """Returns the users that the cluster of a recipe has."""
    users = {"billing": "secret", "API_KEY": "secret", "$ConnectionString": CONNECTION_STRING}
    return {"mechanism": ["PLAIN", "SCRAM-SHA-512"], "users": users} if "SASL" in block.text else None


@pytest.mark.parametrize(
    "block", [block for block in PROGRAMS if block not in WITH_TOKENS], ids=lambda block: block.name
)
def test_passwords_and_certificates(
    block: Block, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program is let in, and prints the topics."""
    [address] = [line.split('"')[1] for line in block.text.splitlines() if "bootstrap_servers=" in line]
    context = server_context(authority, tmp_path, asks_for_certificates='"SSL"' in block.text)
    with FakeCluster(tls=context, sasl=logins(block)) as cluster:
        cluster.create_topic("orders")
        run_python(block, {address: cluster.bootstrap_servers})
    assert "['orders']\n" == capsys.readouterr().out


class _Credential:
    """Stands for a credential of azure-identity."""

    def get_token(self, scope: str) -> Any:
        assert scope == "https://demo.servicebus.windows.net/.default"
        return type("AccessToken", (), {"token": "azure", "expires_on": EXPIRES_AT})()


class _Google:
    """Stands for credentials of google-auth."""

    token: str | None = None
    expiry: datetime.datetime | None = None
    service_account_email = "billing@demo"

    def refresh(self, request: object) -> None:
        self.token, self.expiry = (
            "ya29.google",
            datetime.datetime.fromtimestamp(EXPIRES_AT, datetime.UTC).replace(tzinfo=None),
        )


def stand_ins() -> dict[str, ModuleType]:
    """Returns modules with the functions of the clouds' libraries that the page uses."""
    modules = {
        name: ModuleType(name)
        for name in (
            "aws_msk_iam_sasl_signer", "azure", "azure.identity", "google", "google.auth", "google.auth.transport",
            "google.auth.transport.requests",
        )
    }  # fmt: skip
    signer = type(
        "MSKAuthTokenProvider", (), {"generate_auth_token": staticmethod(lambda region: (region, EXPIRES_AT * 1000))}
    )
    vars(modules["aws_msk_iam_sasl_signer"])["MSKAuthTokenProvider"] = signer
    vars(modules["azure.identity"])["DefaultAzureCredential"] = _Credential
    vars(modules["google.auth"])["default"] = lambda scopes: (_Google(), "demo")
    vars(modules["google.auth.transport.requests"])["Request"] = object
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            vars(modules[parent])[last] = module
    return modules


@pytest.mark.parametrize("block", WITH_TOKENS, ids=lambda block: block.name)
@pytest.mark.usefixtures("authority")
def test_tokens(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are accepted, and the provider issues a token that is used until it expires."""
    made: list[ConsumerConfig] = []
    monkeypatch.setattr(Consumer, "list_topics", lambda consumer: made.append(config_of(consumer)) or {})
    with monkeypatch.context() as patched:
        for name, module in stand_ins().items():
            patched.setitem(sys.modules, name, module)
        run_python(block, {})
    [config] = made
    assert "SASL_SSL" == config.security_protocol
    if config.sasl_oauth_token_provider is None:
        assert "https://idp.example/oauth2/token" == config.sasl_oauthbearer_token_endpoint_url
        assert {"logicalCluster": "lkc-123456", "identityPoolId": "pool-a1b2"} == config.sasl_oauth_extensions
        return
    tokens = Tokens(config, Clock(), sleep=lambda _: None, rng=random.Random(0))
    text = tokens.token()
    assert tokens._token is not None
    assert EXPIRES_AT * 1000 == tokens._token.expires_at
    if "GOOG" in block.text:
        header, claims, access = (base64.urlsafe_b64decode(part + "==") for part in text.split("."))
        assert {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"} == json.loads(header)
        assert ("billing@demo", EXPIRES_AT, b"ya29.google") == (
            json.loads(claims)["sub"],
            json.loads(claims)["exp"],
            access,
        )
    else:
        assert text in ("eu-west-1", "azure")


def test_no_recipe_is_left_out() -> None:
    """Four programs have tokens, and as many have passwords or certificates."""
    assert (4, 4) == (len(PROGRAMS) - len(WITH_TOKENS), len(WITH_TOKENS))
