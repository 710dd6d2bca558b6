"""The credentials for SASL. They are read from the options for each authentication, so changed ones are used.

Decides which mechanism an authentication runs, and with which credentials. If reading them may block (`blocking`), the
authenticator does so in a background task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kconsumer.net.background import BackgroundExecutor
from kconsumer.net.sasl.gssapi import Gssapi
from kconsumer.net.sasl.mechanism import Credentials, Mechanism
from kconsumer.net.sasl.oauthbearer import OAuthBearer
from kconsumer.net.sasl.plain import Plain
from kconsumer.net.sasl.scram import ScramSha256, ScramSha512

if TYPE_CHECKING:
    from kconsumer._core.lock import Clock
    from kconsumer.config.options import ConsumerConfig
    from kconsumer.net.sasl.tokens import Tokens

MECHANISMS: Mapping[str, type[Mechanism]] = {
    "PLAIN": Plain,
    "SCRAM-SHA-256": ScramSha256,
    "SCRAM-SHA-512": ScramSha512,
    "OAUTHBEARER": OAuthBearer,
    "GSSAPI": Gssapi,
}


class CredentialsProvider:
    """Creates a mechanism with the present credentials for each authentication of one client. Several threads may
    call `mechanism` at the same time."""

    def __init__(self, config: ConsumerConfig, clock: Clock, background: BackgroundExecutor) -> None:
        self.name = config.sasl_mechanism
        self.background = background
        self._kind = MECHANISMS[self.name]
        self._config = config
        self._tokens = self._token_source(config, clock, background) if self.name == "OAUTHBEARER" else None
        secrets = ("sasl_plain_username", "sasl_plain_password", "sasl_jaas_config")
        self.blocking = self._tokens is not None or self._kind.blocking or any(map(config.refers, secrets))

    @staticmethod
    def _token_source(config: ConsumerConfig, clock: Clock, background: BackgroundExecutor) -> Tokens:
        from kconsumer.net.sasl.tokens import Tokens

        return Tokens(config, clock, background.sleep)

    @property
    def hint(self) -> str:
        """The hint for users if the broker refuses the credentials: what they may have to change."""
        return self._kind.hint

    def mechanism(self, host: str) -> Mechanism:
        """Returns a mechanism for one authentication with `host`, with credentials that are read now.

        Raises ConfigError if an option cannot be read, and MechanismError if the mechanism cannot use the credentials
        or no token was issued. Passes on the exceptions of a user's callable.
        """
        return self._kind(self._credentials(host))

    def invalidate(self, mechanism: Mechanism) -> None:
        """Stop using the token of `mechanism`, because a broker has refused it. Only OAUTHBEARER has tokens: does
        nothing for other mechanisms."""
        if self._tokens is not None:
            self._tokens.invalidate(mechanism.token)

    def _credentials(self, host: str) -> Credentials:
        config = self._config
        if self._tokens is not None:
            return Credentials(token=self._tokens.token(), extensions=config.sasl_oauth_extensions)
        entry = self._jaas()
        return Credentials(
            entry.get("sasl_plain_username", config.secret("sasl_plain_username")) or "",
            entry.get("sasl_plain_password", config.secret("sasl_plain_password")) or "",
            tokenauth=config.sasl_scram_tokenauth or entry.get("sasl_scram_tokenauth") == "true",
            service=entry.get("sasl_kerberos_service_name", config.sasl_kerberos_service_name) or "",
            host=host,
            principal=entry.get("sasl_kerberos_principal", config.sasl_kerberos_principal),
            keytab=entry.get("sasl_kerberos_keytab", config.sasl_kerberos_keytab),
        )

    def _jaas(self) -> Mapping[str, Any]:
        """Returns the options in `sasl_jaas_config` if it must be read each time, because it is a callable or refers to
        a file or environment variable. Otherwise returns no options: the configuration has them already."""
        if not self._config.refers("sasl_jaas_config"):
            return {}
        from kconsumer.config.jaas import options_of

        return options_of(self._config.secret("sasl_jaas_config") or "", self.name)
