"""A client that logs in, with its broker, network and clock (see `fake_network.py`)."""

from __future__ import annotations

from typing import Any

from kconsumer.schema.metadata import METADATA
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from support.fakes.fake_network import NetworkHarness
from support.harnesses.inside import links_of


class SaslHarness(NetworkHarness):
    """A client that logs in as alice by PLAIN, and a broker that accepts."""

    def __init__(self, lifetime_ms: int = 0, **options: Any) -> None:
        given = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "hunter2",
            "sasl_jaas_config": None,
            "sasl_scram_tokenauth": False,
            "sasl_kerberos_service_name": None,
            "sasl_kerberos_principal": None,
            "sasl_kerberos_keytab": None,
            **options,
        }

        def secret(name: str) -> Any:
            value = given[name]
            return value() if callable(value) else value

        super().__init__(**given, secret=secret, refers=lambda name: callable(given[name]))
        self.broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response(mechanisms=["PLAIN"]))
        self.broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(session_lifetime_ms=lifetime_ms))
        self.broker.on(METADATA, METADATA.response())

    @property
    def link(self) -> Any:
        return links_of(self.client)["-1"]

    def authenticate(self) -> SaslHarness:
        self.ready()
        for _ in range(8):
            self.poll()
        assert self.ready()
        return self

    def until_failed(self, polls: int = 12) -> Any:
        """Poll once a second until the connection fails. Returns the error."""
        for _ in range(polls):
            self.poll(1_000)
            if self.failed() is not None:
                break
        return self.failed()

    def take_raw_tokens(self, response: bytes | None) -> list[bytes]:
        """Make the broker read a token without a header after each handshake, and respond with the given bytes. Returns
        the list of tokens.
        """
        taken: list[bytes] = []
        ordinary = self.broker.respond

        def respond(frame: bytes) -> Any:
            if len(taken) == self.broker.names().count("SaslHandshake"):
                return ordinary(frame)
            taken.append(frame)
            return response

        vars(self.broker)["respond"] = respond
        return taken
