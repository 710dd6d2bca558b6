"""Reads and writes of a TLS connection after its handshake, in one of two ways.

`DirectChannel` calls the OpenSSL that Python's `ssl` has loaded (`_core/net/openssl.pyx`). Large responses are then
decrypted by the background receiver. `PythonChannel` calls Python's `ssl`. It is used if OpenSSL's functions cannot be
found in the process, because OpenSSL is a part of the interpreter and its functions have no names there. `repr` of the
transport says which of them it uses.
"""

from __future__ import annotations

import _ssl
import os
import ssl
from typing import Protocol

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core import net as openssl
from kconsumer._core.net import TlsChannel

log = get_logger("kconsumer.net")

# Results of OpenSSL's SSL_get_error.
_WANT_READ, _WANT_WRITE, _SYSCALL, _ZERO_RETURN = 2, 3, 5, 6

_EOF = "UNEXPECTED_EOF_WHILE_READING"

# Reasons why a channel has stopped. They are compared, and never raised.
WANT_READ = ssl.SSLWantReadError()
WANT_WRITE = ssl.SSLWantWriteError()
CLOSED = ssl.SSLZeroReturnError(ssl.SSL_ERROR_ZERO_RETURN, "TLS/SSL connection has been closed (EOF)")

DIRECT_UNUSABLE = openssl.load(getattr(_ssl, "__file__", None), ssl.OPENSSL_VERSION_NUMBER)
"""Why OpenSSL cannot be called directly, or None if it can."""


class OpenSslError(ssl.SSLError):
    """An error as Python's `ssl` raises it. `name` is the reason; `error` is the result of SSL_get_error."""

    def __init__(self, name: str, error: int = ssl.SSL_ERROR_SSL) -> None:
        super().__init__(error, f"[SSL: {name}]" if name else "A failure in the SSL library occurred")
        self.library = "SSL"
        self.reason = name


class Channel(Protocol):
    """Reads and writes of a connection whose handshake has completed."""

    description: str  # of the way, for the `repr` of the transport

    @property
    def direct(self) -> TlsChannel | None:
        """The channel from which the background receiver can read, or None."""
        ...

    @property
    def pending(self) -> bool:
        """Returns whether `read` would return something although the socket has no bytes."""
        ...

    def read(self, view: memoryview, enough: int) -> tuple[int, OSError | None]:
        """Decrypt into `view` until `enough` bytes were decrypted. Returns their number, and why it stopped earlier:
        WANT_READ, WANT_WRITE, CLOSED or an error. CLOSED means that the peer has closed the connection, with or without
        an alert."""
        ...

    def write(self, data: bytes | memoryview) -> tuple[int, OSError | None]:
        """Encrypt and send bytes. Returns how many were taken, and if none were, why: WANT_READ, WANT_WRITE, CLOSED or
        an error."""
        ...


class PythonChannel:
    """Calls Python's `ssl`, once for each TLS record."""

    description = "through Python's ssl"
    direct = None

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._ssl = sock

    @property
    def pending(self) -> bool:
        """Returns whether OpenSSL has decrypted bytes."""
        return self._ssl.pending() > 0

    def read(self, view: memoryview, enough: int) -> tuple[int, OSError | None]:
        """See Channel."""
        receive = self._ssl.recv_into
        size, filled = len(view), 0
        while filled < enough:
            try:
                count = receive(view[filled:], size - filled)
            except ssl.SSLWantReadError:
                return filled, WANT_READ
            except ssl.SSLWantWriteError:
                return filled, WANT_WRITE
            except OSError as error:
                return filled, error
            if not count:
                return filled, CLOSED
            filled += count
        return filled, None

    def write(self, data: bytes | memoryview) -> tuple[int, OSError | None]:
        """See Channel."""
        try:
            return self._ssl.send(data), None
        except ssl.SSLWantWriteError:
            return 0, WANT_WRITE
        except ssl.SSLWantReadError:
            return 0, WANT_READ
        except OSError as error:
            return 0, error


class DirectChannel:
    """Calls OpenSSL without Python's `ssl`, once for many TLS records. Its errors are those of Python's `ssl`."""

    description = "through OpenSSL"

    def __init__(self, direct: TlsChannel) -> None:
        self.direct = direct

    @property
    def pending(self) -> bool:
        """Returns whether OpenSSL has decrypted bytes, or a job of the background receiver has stopped early."""
        return self.direct.pending

    def read(self, view: memoryview, enough: int) -> tuple[int, OSError | None]:
        """See Channel."""
        count = self.direct.recv_into(view, enough)
        return count, None if count >= enough else _reason(*self.direct.stopped)

    def write(self, data: bytes | memoryview) -> tuple[int, OSError | None]:
        """See Channel."""
        count = self.direct.send(data)
        return count, None if count else _reason(*self.direct.stopped)


def _reason(error: int, os_error: int, code: int) -> OSError:
    """Returns the exception for a result of SSL_get_error, the errno of the socket, and OpenSSL's error code."""
    if error == _WANT_READ:
        return WANT_READ
    if error == _WANT_WRITE:
        return WANT_WRITE
    if error == _ZERO_RETURN:
        return CLOSED
    if error == _SYSCALL and (os_error or not code):  # from OpenSSL 3.6 on, `code` repeats errno
        return OSError(os_error, os.strerror(os_error)) if os_error else CLOSED
    name = name_of_reason(openssl.reason(code))
    return CLOSED if name == _EOF else OpenSslError(name, error)


def name_of_reason(text: str) -> str:
    """Returns the name that Python's `ssl` has for OpenSSL's text of a reason."""
    # Python derives the names from OpenSSL's macros, whose names have kept "SSLV3" where newer texts have "SSL/TLS".
    return text.upper().replace(" ", "_").replace("SSL/TLS_ALERT", "SSLV3_ALERT")


def new_channel(sock: ssl.SSLSocket) -> Channel:
    """Returns the channel of a socket that this thread has connected since `expect_connection`."""
    direct = openssl.adopt_connection(sock.fileno())
    if direct is not None:
        return DirectChannel(direct)
    log.info("TLS is decrypted through Python's ssl: %s", DIRECT_UNUSABLE or "several connections started at once")
    return PythonChannel(sock)
