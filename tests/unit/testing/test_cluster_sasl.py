"""SASL in the cluster model, in virtual time: the order of requests, mechanisms, failures, and sessions that end."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer._common.error_codes import Errors
from kconsumer._core.codec import encode_request
from kconsumer.net.sasl.mechanism import Credentials, Mechanism, MechanismError
from kconsumer.net.sasl.plain import Plain
from kconsumer.net.sasl.scram import ScramSha256, ScramSha512
from kconsumer.schema.metadata import API_VERSIONS, METADATA, ApiVersionsRequest, MetadataRequest
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE, SaslAuthenticateRequest, SaslHandshakeRequest
from kconsumer.testing.clock import VirtualClock
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.sasl import SaslSettings
from kconsumer.testing.cluster.sasl_mechanisms import MECHANISMS
from support.fakes.cluster_client import ClusterClient, advance

USERS = {"alice": "secret", "a,b=c": "other"}
CLIENTS: dict[str, type[Mechanism]] = {"PLAIN": Plain, "SCRAM-SHA-256": ScramSha256, "SCRAM-SHA-512": ScramSha512}
DELAY_MS = 100


class SaslClient(ClusterClient):
    """A client that can authenticate."""

    def __init__(self, *mechanisms: str, lifetime_ms: int = 0) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(sasl=SaslSettings(mechanisms or tuple(MECHANISMS), USERS, lifetime_ms))
        super().__init__(self.cluster, self.clock)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        """Returns the response to SaslHandshake."""
        message = SaslHandshakeRequest(mechanism=mechanism)
        return self.call(SASL_HANDSHAKE, version, message, wait_ms=DELAY_MS)

    def token(self, token: bytes, version: int = 2) -> Any:
        """Returns the response to SaslAuthenticate."""
        message = SaslAuthenticateRequest(auth_bytes=token)
        return self.call(SASL_AUTHENTICATE, version, message, wait_ms=DELAY_MS)

    def authenticate(self, mechanism: str = "PLAIN", user: str = "alice", password: str = "secret") -> Any:
        """Returns the last response of an authentication."""
        assert not self.handshake(mechanism).error_code
        exchange = CLIENTS[mechanism](Credentials(user, password))
        token = exchange.step(None)
        response = None
        while token is not None:
            response = self.token(token)
            token = None if response.error_code else exchange.step(response.auth_bytes)
        return response

    def closed_after(self, ms: float) -> bool:
        """Returns whether the connection is closed after some time, and not before."""
        advance(self.cluster, self.clock, ms - 1)
        before = self.connection.closed
        advance(self.cluster, self.clock, 1)
        self.connection.take_output()
        return self.connection.closed and not before


@pytest.mark.parametrize("user", list(USERS))
@pytest.mark.parametrize("mechanism", list(MECHANISMS))
def test_authentication(mechanism: str, user: str) -> None:
    """A client authenticates, and may then send all requests; its principal is the user."""
    client = SaslClient()
    client.call(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    response = client.authenticate(mechanism, user, USERS[user])
    assert (0, 0) == (response.error_code, response.session_lifetime_ms)
    assert f"User:{user}" == client.connection.principal
    assert client.call(METADATA, 9, MetadataRequest()).brokers


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("stranger", "secret")])
@pytest.mark.parametrize("mechanism", list(MECHANISMS))
def test_wrong_credentials(mechanism: str, user: str, password: str) -> None:
    """A wrong user or password gets SASL_AUTHENTICATION_FAILED after a delay, and the connection is closed."""
    client = SaslClient()
    response = client.authenticate(mechanism, user, password)
    assert Errors.SASL_AUTHENTICATION_FAILED == response.error_code
    assert {
        "PLAIN": "Authentication failed: Invalid username or password",
    }.get(mechanism, f"due to invalid credentials with SASL mechanism {mechanism}") in response.error_message
    assert (DELAY_MS, True) == (client.clock.now(), client.connection.closed)


def test_the_broker_proves_that_it_has_the_password() -> None:
    """A client that expects another password rejects the broker's signature."""
    client = SaslClient()
    client.handshake("SCRAM-SHA-256")
    right, other = ScramSha256(Credentials("alice", "secret"), "n"), ScramSha256(Credentials("alice", "no"), "n")
    first = right.step(None)
    assert first == other.step(None)
    assert first is not None
    challenge = client.token(first).auth_bytes
    final = right.step(bytes(challenge))
    other.step(bytes(challenge))
    assert final is not None
    signature = bytes(client.token(final).auth_bytes)
    right.step(signature)
    with pytest.raises(MechanismError, match="signature is wrong"):
        other.step(signature)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "different from username"),
    ],
)
def test_malformed_tokens_of_plain(token: bytes, text: str) -> None:
    """The error of a malformed token says what is wrong."""
    client = SaslClient()
    client.handshake()
    response = client.token(token)
    assert Errors.SASL_AUTHENTICATION_FAILED == response.error_code
    assert text in response.error_message


@pytest.mark.parametrize("token", [b"", b"\xff", b"n,,", b"n,,n=alice", b"y,,n=alice,r=x", b"n,a=bob,n=alice,r=x"])
def test_malformed_tokens_of_scram(token: bytes) -> None:
    """A malformed client-first message is an authentication failure, and no failure of the model."""
    client = SaslClient()
    client.handshake("SCRAM-SHA-256")
    assert Errors.SASL_AUTHENTICATION_FAILED == client.token(token).error_code


def test_an_unknown_mechanism() -> None:
    """An unknown mechanism gets UNSUPPORTED_SASL_MECHANISM and the mechanisms there are; the connection is closed."""
    client = SaslClient("SCRAM-SHA-512")
    response = client.handshake("PLAIN")
    assert (Errors.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"]) == (response.error_code, response.mechanisms)
    assert client.connection.closed


def test_requests_in_place_of_a_token() -> None:
    """A request other than SaslAuthenticate after SaslHandshake gets ILLEGAL_SASL_STATE, and closes the connection."""
    client = SaslClient()
    client.cluster.create_topic("t")
    client.handshake()
    response = client.call(METADATA, 9, MetadataRequest(topics=None), wait_ms=DELAY_MS)
    assert [Errors.ILLEGAL_SASL_STATE] == [row.error_code for row in response.topics]
    assert client.connection.closed


def test_tokens_without_header() -> None:
    """After SaslHandshake v0, tokens have no request header."""
    client = SaslClient()
    client.handshake(version=0)
    token = b"\0alice\0secret"
    client.connection.receive(len(token).to_bytes(4) + token, client.clock.now())
    assert bytes(4) == client.connection.take_output()
    assert client.call(METADATA, 9, MetadataRequest()).brokers


def test_a_wrong_token_without_header() -> None:
    """A wrong token without a header closes the connection after the delay."""
    client = SaslClient()
    client.handshake(version=0)
    client.connection.receive(b"\0\0\0\3abc", client.clock.now())
    assert client.closed_after(DELAY_MS)


def test_the_end_of_a_session() -> None:
    """A session has the announced lifetime. The first request after it closes the connection."""
    client = SaslClient(lifetime_ms=5000)
    assert 5000 == client.authenticate().session_lifetime_ms
    advance(client.cluster, client.clock, 5000)
    assert client.call(METADATA, 9, MetadataRequest())
    advance(client.cluster, client.clock, 1)
    client.send(METADATA, 9, MetadataRequest())
    assert client.connection.closed


def test_authentication_as_another_user() -> None:
    """A client cannot become another user."""
    client = SaslClient(lifetime_ms=5000)
    client.authenticate()
    response = client.authenticate("PLAIN", "a,b=c", "other")
    assert Errors.SASL_AUTHENTICATION_FAILED == response.error_code
    assert "Cannot change principals during re-authentication" in response.error_message


def test_authentication_by_another_mechanism() -> None:
    """A client that chooses another mechanism the second time is disconnected at its first token."""
    client = SaslClient(lifetime_ms=5000)
    client.authenticate()
    assert not client.handshake("SCRAM-SHA-256").error_code
    message = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x")
    client.connection.receive(encode_request(SASL_AUTHENTICATE, 2, 9, None, message), client.clock.now())
    assert client.closed_after(DELAY_MS)
