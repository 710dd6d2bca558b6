"""TLS connections on Python's `ssl`: the handshake, encrypted bytes, and what a failure of either means.

Decides which failures the user must repair (an AuthenticationError that says what to change; see `tls/errors.py`) and
which are temporary. `tls/context.py` decides which certificates are trusted and which one is sent. Nothing here blocks:
a handshake, a read or a write that cannot continue says which event it waits for.

OpenSSL reads a whole record (at most 16 KiB) from the socket at a time. The part that the caller has not taken stays in
OpenSSL, where a selector does not see it. So `pending` reports it.
"""

from __future__ import annotations

import errno
import os
import ssl
from functools import partial
from typing import TYPE_CHECKING

from kconsumer.deferred_calls import get_logger
from kconsumer.errors import AuthenticationError, ConfigError
from kconsumer.net.background import BackgroundExecutor, BackgroundTask
from kconsumer.net.tls.context import make_context, watched_files
from kconsumer.net.tls.errors import alert_hint, handshake_hint, peer_name, words
from kconsumer.net.transport import WOULD_BLOCK, Address, HandshakeClosedError, TcpTransport, Transport, buffer_sizes

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

DISCONNECTED_ERRORS = (
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ENOTCONN,
)  # the last is how Python's ssl finds a reset connection
MAX_READ_BYTES = 1 << 20  # about a millisecond's work; ends with a record, so that a selector reports the next one
MAX_ALERT_BYTES = 1 << 16  # read after a failed write, to find the alert that says why
CLOSED_IN_HANDSHAKE = (
    "it closed the connection when TLS was offered (a broker that starts does so, or a proxy without a broker, or a "
    "PLAINTEXT or SASL_PLAINTEXT listener)"
)

Stamp = tuple[int, int, int]
"""A file's modification time in ns, size in bytes and inode."""
Stamps = list[Stamp | None]

log = get_logger(__name__)


class TlsConnector:
    """Starts TLS connections with one SSLContext, which is replaced when a file that it was made of has changed.

    Certificates that are valid for hours are replaced on disk; later connections use the new ones.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        """Read the certificates. Raises ConfigError if an option of TLS, or a file that it names, cannot be used."""
        self._config = config
        self._files = watched_files(config)
        stamps = self._read_stamps()
        self._loaded = make_context(config), stamps  # replaced as a whole, by a background thread
        self._task: BackgroundTask[None] | None = None  # the last one that read the files again

    def __call__(self, host: str, address: Address, config: ConsumerConfig) -> Transport:
        """Start a connection with the context that was read last; the certificate must be for `host`."""
        return TlsTransport(host, address, self._loaded[0], buffer_sizes(config), config)

    def refresh(self, background: BackgroundExecutor) -> BackgroundTask[None] | None:
        """Start to read the certificates again if a file has changed. Returns the task, or None if the context is
        current.

        Reading them calls a callable `ssl_password`, which may wait for a vault or use the consumer. On the event loop
        it would run under the engine's lock and stop heartbeats, hence the background thread.
        """
        if self._task is None or self._task.completed:
            stamps = self._read_stamps()
            current = stamps == self._loaded[1]
            self._task = None if current else background.submit(partial(self._load, stamps))
        return self._task

    def _load(self, stamps: Stamps) -> None:
        """Replace the context. `stamps` were taken before, so a file that changes meanwhile is read once more."""
        try:
            self._loaded = make_context(self._config), stamps
        except ConfigError as error:  # the file is perhaps half written: the next connection reads it again
            log.warning("certificates have changed, those read before are used: %s", error)
        else:
            log.info("certificates have changed and were read again")

    def _read_stamps(self) -> Stamps:
        return [_stamp(path) for path in self._files]


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _server_name(host: str) -> str:
    """Returns the name that the certificate must have: the host without a final dot, without the zone of an IPv6
    address. Raises OSError for a name that TLS cannot send."""
    name = host.rstrip(".").partition("%")[0]
    try:
        if name.encode("idna")[:1] not in (b"", b"."):
            return name
    except UnicodeError:
        pass
    raise OSError(f"{host!r} cannot be the name of a TLS host")


class TlsTransport(TcpTransport):
    """A TLS connection that never blocks. The GIL is released while OpenSSL works."""

    __slots__ = (
        "_config",
        "_end",
        "_host",
        "_peer",
        "_ssl",
        "_tcp_connected",
        "_waits_for_write",
        "crossed",
        "pending",
    )
    plain = False

    def __init__(
        self,
        host: str,
        address: Address,
        context: ssl.SSLContext,
        buffers: tuple[int, int],
        config: ConsumerConfig,
    ) -> None:
        """Start to connect. Raises OSError if that fails at once. Errors name options of the `config`."""
        self._host = host
        self._peer = peer_name(host, address)
        self._config = config
        self._tcp_connected = False
        self._waits_for_write = True
        self._end: BaseException | bool = False  # how reading ended: an error, or True for a close
        self.crossed = self.pending = False
        # The socket is wrapped before it is connected. The descriptor then stays the same, as the selector requires.
        name = _server_name(host)
        super().__init__(
            address,
            *buffers,
            lambda sock: context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False),
        )
        assert isinstance(self._sock, ssl.SSLSocket)
        self._ssl = self._sock

    def wants_write(self) -> bool:
        """Returns whether the connection attempt, the handshake, a read or a write waits for writability."""
        return self._waits_for_write

    def finish_connect(self) -> bool:
        """Continue to connect, then with the handshake. Raises AuthenticationError if one side refuses the other."""
        if not self._tcp_connected:
            super().finish_connect()
            self._tcp_connected = True
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._waits_for_write = False
            return False
        except ssl.SSLWantWriteError:
            self._waits_for_write = True
            return False
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError) as error:
            raise HandshakeClosedError(CLOSED_IN_HANDSHAKE) from error
        except ssl.SSLError as error:
            raise self._refused(handshake_hint(error, self._config, self._host)) from error
        except OSError as error:
            if error.errno not in DISCONNECTED_ERRORS:
                raise
            raise self._read_alert() or HandshakeClosedError(CLOSED_IN_HANDSHAKE) from error
        return True

    def recv_into(self, view: memoryview) -> int:
        """Decrypt into `view`, record after record, but no more than MAX_READ_BYTES: a broker may send as fast as this
        decrypts, and the caller has a timeout."""
        if self._end is not False:
            return self._ended()
        if self._waits_for_write and self.crossed:
            self.crossed = False
        receive = self._ssl.recv_into
        size, filled = len(view), 0
        enough = min(size, MAX_READ_BYTES)
        while filled < enough:
            try:
                count = receive(view[filled:], size - filled)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLWantWriteError:
                self.crossed = self._waits_for_write = True
                break
            except OSError as error:
                self._end = error
                break
            if not count:
                self._end = True
                break
            filled += count
        # Either part of a record is left, or the end was found behind the last bytes and is reported by the next call.
        self.pending = self._end is not False or (filled == size and self._ssl.pending() > 0)
        if filled:
            return filled
        return WOULD_BLOCK if self._end is False else self._ended()

    def send(self, data: bytes | memoryview) -> int:
        """Encrypt and send. OpenSSL requires that the next call begins with the bytes that this one did not take, which
        the connection guarantees."""
        if self.crossed and not self._waits_for_write:
            self.crossed = False
        try:
            return self._ssl.send(data)
        except ssl.SSLWantWriteError:
            return 0
        except ssl.SSLWantReadError:
            self.crossed, self._waits_for_write = True, False
            return 0
        except OSError as error:
            raise self._read_alert() or error from None

    def _ended(self) -> int:
        """Returns 0 if the peer has closed, with or without a close_notify alert. Otherwise raises the error that ended
        reading."""
        error = self._end
        if not isinstance(error, ssl.SSLError):
            if isinstance(error, BaseException):
                raise error
            return 0
        hint = alert_hint(error, self._config)
        if hint is None:
            raise ConnectionError(f"TLS ended with {words(error)}") from error
        raise self._refused(hint) from error

    def _read_alert(self) -> AuthenticationError | None:
        """Returns the error of an alert that has arrived, or None. A broker that refuses a certificate sends an alert
        and closes. In TLS 1.3 the client has finished its handshake by then and is writing, so its write fails with a
        reset before it has read the alert."""
        try:
            while self.recv_into(memoryview(bytearray(MAX_ALERT_BYTES))) > 0:
                pass
        except AuthenticationError as error:
            return error
        except OSError:
            pass
        return None

    def _refused(self, hint: str) -> AuthenticationError:
        return AuthenticationError(f"TLS with {self._peer} failed: {hint}")

    def __repr__(self) -> str:
        return f"<TlsTransport fd={self._sock.fileno()} {self._ssl.version() or 'connecting'}>"
