"""The recipes for clouds, with the libraries of the clouds and an issuer on loopback: tox -e cloud.

tests/brokerless/test_docs_security_recipes.py runs the same programs with stand-ins for these libraries.
"""

from __future__ import annotations

import base64
import datetime
import json
import random
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kconsumer import Consumer
from kconsumer._core.lock import Clock
from kconsumer.config.options import ConsumerConfig
from kconsumer.net.sasl.tokens import Token, Tokens
from support.harnesses.doc_blocks import BLOCKS, run_python
from support.harnesses.inside import config_of

PAGE = "docs/guides/security-recipes.md"
LIFETIME_S = 1800


class Issuer(BaseHTTPRequestHandler):
    """Issues what each library requests, and counts the requests."""

    requests: list[str]

    def _respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.requests.append(f"{self.command} {self.path}")
        content = json.dumps(RESPONSES[urllib.parse.urlsplit(self.path).path](self, body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Write nothing to stderr."""


def aws(handler: Issuer, body: str) -> dict[str, Any]:
    """Credentials as AWS gives them to containers."""
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    return {
        "AccessKeyId": "AKID",
        "SecretAccessKey": "hidden",
        "Token": "session",
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def azure(handler: Issuer, body: str) -> dict[str, Any]:
    """A token as Azure gives it to managed identities of App Service."""
    assert "resource=https://demo.servicebus.windows.net" in urllib.parse.unquote(handler.path)
    assert "header" == handler.headers["X-IDENTITY-HEADER"]
    expires = str(int(time.time()) + LIFETIME_S)
    return {"access_token": "azure", "expires_on": expires, "resource": "r", "token_type": "Bearer"}


def google(handler: Issuer, body: str) -> dict[str, Any]:
    """A token as Google gives it to service accounts, for a signed assertion."""
    assert "assertion=" in body
    return {"access_token": "ya29.google", "expires_in": LIFETIME_S, "token_type": "Bearer"}


RESPONSES = {"/aws": aws, "/azure": azure, "/google": google}


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the issuer. Yields its address."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    handler = type("Handler", (Issuer,), {"requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def token_of(recipe: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Tokens, Token]:
    """Run the program of the page that contains `recipe`, and request a token as its consumer would."""
    [block] = [block for block in BLOCKS if block.page == PAGE and recipe in block.text]
    made: list[ConsumerConfig] = []
    monkeypatch.setattr(Consumer, "list_topics", lambda consumer: made.append(config_of(consumer)) or {})
    run_python(block, {})
    tokens = Tokens(made[0], Clock(), sleep=lambda _: None, rng=random.Random(0))
    tokens.token()
    assert tokens._token is not None
    return tokens, tokens._token


def test_aws(issuer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Amazon's signer signs with credentials of the issuer. Its expiry in ms becomes that of the token."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{issuer}/aws")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    tokens, token = token_of("aws_msk_iam_sasl_signer", monkeypatch)
    signed = base64.urlsafe_b64decode(token.text + "==").decode()
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(signed).query)
    assert "kafka.eu-west-1.amazonaws.com" == urllib.parse.urlsplit(signed).netloc
    assert (["kafka-cluster:Connect"], ["session"]) == (query["Action"], query["X-Amz-Security-Token"])
    assert query["X-Amz-Credential"][0].startswith("AKID/")
    remaining_s = token.expires_at / 1000 - time.time()
    assert 0 < remaining_s <= int(query["X-Amz-Expires"][0])
    assert token.refresh_at < token.expires_at
    assert token.text == tokens.token()  # from the cache


def test_azure(issuer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DefaultAzureCredential requests a token for the name space from the managed identity."""
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{issuer}/azure")
    monkeypatch.setenv("IDENTITY_HEADER", "header")
    _, token = token_of("DefaultAzureCredential", monkeypatch)
    assert "azure" == token.text
    assert LIFETIME_S - 60 < token.expires_at / 1000 - time.time() <= LIFETIME_S + 1


def test_google(issuer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """google-auth exchanges the key of a service account; the token is in the form that Google's brokers take."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {"type": "service_account", "client_email": "billing@demo", "private_key": pem, "private_key_id": "1"}
    file = tmp_path / "account.json"
    file.write_text(json.dumps({**account, "token_uri": f"{issuer}/google", "project_id": "demo"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    _, token = token_of("GOOG_OAUTH2_TOKEN", monkeypatch)
    header, claims, access = (base64.urlsafe_b64decode(part + "==") for part in token.text.split("."))
    assert "GOOG_OAUTH2_TOKEN" == json.loads(header)["alg"]
    assert ("billing@demo", b"ya29.google") == (json.loads(claims)["sub"], access)
    assert LIFETIME_S - 60 < token.expires_at / 1000 - time.time() <= LIFETIME_S + 1
