"""GSSAPI (RFC 4752): Kerberos 5, through the system's library and the package `gssapi`.

The library finds the ticket (or makes one of a keytab) and may wait for the key distribution centre, so the steps run
beside the event loop. Only authentication is asked for: neither integrity nor confidentiality of what follows.
"""

from __future__ import annotations

import importlib
from typing import Any

from kconsumer.net.sasl.mechanism import Credentials, Mechanism, MechanismError

NO_SECURITY_LAYER = 1
MISSING = "sasl_mechanism='GSSAPI' needs the package gssapi: pip install gssapi"


class Gssapi(Mechanism):
    """One exchange: the context's tokens, then the agreement about the security layer."""

    blocking = True
    hint = (
        "check sasl_kerberos_service_name, the ticket (klist) or sasl_kerberos_keytab, and that bootstrap_servers has "
        "the name that the broker's principal has"
    )

    def __init__(self, account: Credentials) -> None:
        try:
            self._library: Any = importlib.import_module("gssapi")
        except ImportError as error:
            raise MechanismError(f"{MISSING} ({error})") from None
        self._agreed = False
        self._principal = account.principal
        try:
            target = self._library.Name(
                f"{account.service}@{account.host}", self._library.NameType.hostbased_service
            ).canonicalize(self._library.MechType.kerberos)
            self._context = self._library.SecurityContext(
                name=target,
                mech=self._library.MechType.kerberos,
                creds=self._credentials(account.principal, account.keytab),
                usage="initiate",
            )
        except self._library.exceptions.GSSError as error:
            raise MechanismError(_error_text(error)) from None

    def _credentials(self, principal: str | None, keytab: str | None) -> Any:
        """Those of the keytab, kept in memory; else whatever ticket the system has (None), or that principal's."""
        if principal is None and keytab is None:
            return None
        name = None if principal is None else self._library.Name(principal, self._library.NameType.kerberos_principal)
        store = None
        if keytab is not None:
            store = {"client_keytab": keytab, "ccache": f"MEMORY:kconsumer {keytab} {principal}"}
        return self._library.Credentials(name=name, usage="initiate", store=store)

    def step(self, challenge: bytes | None) -> bytes | None:
        """The next token of the context; then the answer about the security layer."""
        try:
            if not self._context.complete:
                token: bytes | None = self._context.step(challenge)
                return token or b""
            if self._agreed:
                return None
            return self._agree(challenge or b"")
        except self._library.exceptions.GSSError as error:
            raise MechanismError(_error_text(error)) from None

    def _agree(self, challenge: bytes) -> bytes:
        """The broker offers security layers and says how long our messages may be: take none."""
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & NO_SECURITY_LAYER:
            raise MechanismError("the broker insists on a security layer, which Kafka's protocol does not have")
        self._agreed = True
        answer = bytes([NO_SECURITY_LAYER, 0, 0, 0]) + (self._principal or "").encode()
        wrapped: bytes = self._context.wrap(answer, False).message
        return wrapped


def _error_text(error: Any) -> str:
    """What the library says, on one line."""
    return " ".join(str(error).split())
