"""The HTTP proxy between this process and a token endpoint: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as curl has them.

The variables are read by Python's `urllib`, for each request. Their names may be in lower case. On macOS and Windows,
`urllib` reads the settings of the system, too.
"""

from __future__ import annotations

import base64
import urllib.parse
from typing import NamedTuple

from kconsumer.net.sasl.mechanism import MechanismError

DEFAULT_PORT = 80


class Proxy(NamedTuple):
    """A proxy, and the headers that it needs."""

    host: str
    port: int
    headers: dict[str, str]
    variable: str  # the name of the variable, for messages

    @property
    def shown(self) -> str:
        """Names the proxy in messages, without the password."""
        return f"the proxy {self.host}:{self.port} ({self.variable})"


def proxy_for(scheme: str, host: str, port: int | None) -> Proxy | None:
    """Returns the proxy for requests to a host, or None if they go there directly.

    Raises MechanismError for a proxy whose address is not http://host:port.
    """
    # Imported when a token is requested: most programs have no token endpoint.
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(scheme)
    if not address or proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    variable = f"{scheme.upper()}_PROXY"
    found = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
    try:
        proxy_port = found.port or DEFAULT_PORT
    except ValueError:
        proxy_port = 0
    if found.scheme != "http" or not found.hostname or not proxy_port:
        raise MechanismError(f"{variable} must be http://host:port, with user:password@ before the host if needed")
    headers = {}
    if found.username is not None:
        login = f"{urllib.parse.unquote(found.username)}:{urllib.parse.unquote(found.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
    return Proxy(found.hostname, proxy_port, headers, variable)
