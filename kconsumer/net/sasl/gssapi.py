"""GSSAPI (RFC 4752): Kerberos 5, through the system's library and the package `gssapi`.

The library uses the system's ticket, or gets a ticket with a keytab. It may wait for the key distribution centre, so
the steps run in the background. GSSAPI is used for authentication only. It neither signs nor encrypts the requests
after it.
"""

from __future__ import annotations

import importlib
from typing import Any

from kconsumer.net.sasl.mechanism import Credentials, Mechanism, MechanismError

NO_SECURITY_LAYER = 1
MISSING = "sasl_mechanism='GSSAPI' needs the package gssapi: pip install gssapi"


class Gssapi(Mechanism):
    """The client's side of one GSSAPI authentication.

    It first sends the tokens of the security context. The last token declares that later messages are neither signed
    nor encrypted.
    """

    blocking = True
    hint = (
        "check sasl_kerberos_service_name, the ticket (klist) or sasl_kerberos_keytab, and that bootstrap_servers has "
        "the name that the broker's principal has"
    )

    def __init__(self, credentials: Credentials) -> None:
        try:
            self._library: Any = importlib.import_module("gssapi")
        except ImportError as error:
            raise MechanismError(f"{MISSING} ({error})") from None
        self._agreed = False
        self._principal = credentials.principal
        try:
            target = self._library.Name(
                f"{credentials.service}@{credentials.host}", self._library.NameType.hostbased_service
            ).canonicalize(self._library.MechType.kerberos)
            self._context = self._library.SecurityContext(
                name=target,
                mech=self._library.MechType.kerberos,
                creds=self._credentials(credentials.principal, credentials.keytab),
                usage="initiate",
            )
        except self._library.exceptions.GSSError as error:
            raise MechanismError(_error_text(error)) from None

    def _credentials(self, principal: str | None, keytab: str | None) -> Any:
        """Returns credentials for `keytab`, `principal`, or both. Tickets obtained with a keytab are cached in memory
        only.

        If both are None, returns None. The library then uses the system's ticket.
        """
        if principal is None and keytab is None:
            return None
        name = None if principal is None else self._library.Name(principal, self._library.NameType.kerberos_principal)
        store = None
        if keytab is not None:
            store = {"client_keytab": keytab, "ccache": f"MEMORY:kconsumer {keytab} {principal}"}
        return self._library.Credentials(name=name, usage="initiate", store=store)

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the next token of the security context, then the token that chooses no security layer, then None.

        Raises MechanismError if the library fails, or if the broker requires a security layer.
        """
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
        """Returns the token that chooses no security layer. Raises MechanismError if the broker does not offer that."""
        offer = self._context.unwrap(challenge).message
        if len(offer) != 4 or not offer[0] & NO_SECURITY_LAYER:
            raise MechanismError("the broker insists on a security layer, which Kafka's protocol does not have")
        self._agreed = True
        choice = bytes([NO_SECURITY_LAYER, 0, 0, 0]) + (self._principal or "").encode()
        wrapped: bytes = self._context.wrap(choice, False).message
        return wrapped


def _error_text(error: Any) -> str:
    """Returns the library's error text on one line."""
    return " ".join(str(error).split())
