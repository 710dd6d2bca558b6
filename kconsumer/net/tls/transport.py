"""TLS connections with Python's `ssl`: the handshake, reads and writes, and their errors.

Decides which errors are permanent and which are temporary. A permanent one is raised as an AuthenticationError whose
text says what to change (`tls/errors.py`). `tls/context.py` decides which certificates are trusted and which one is
sent. Nothing here blocks: if a handshake, a read or a write cannot continue, `wants_write` returns the event to wait
for.

OpenSSL reads a whole record (at most 16 KiB) from the socket at a time. If the caller takes only a part of it, the rest
stays in OpenSSL, and a selector does not report it. So the attribute `pending` is True then.

The handshake is done by Python's `ssl`. `tls/channel.py` does the reads and writes after it.
"""

from __future__ import annotations

import errno
import os
import ssl
from functools import partial
from typing import TYPE_CHECKING

from kconsumer._common.deferred_calls import get_logger
from kconsumer._core.net import TlsChannel, expect_connection
from kconsumer.errors import AuthenticationError, ConfigError
from kconsumer.net.background import BackgroundExecutor, BackgroundTask
from kconsumer.net.tls.channel import CLOSED, WANT_READ, WANT_WRITE, new_channel
from kconsumer.net.tls.context import make_context, watched_files
from kconsumer.net.tls.errors import alert_hint, handshake_hint, peer_name, words
from kconsumer.net.transport import (
    WOULD_BLOCK,
    Address,
    HandshakeClosedError,
    TcpTransport,
    Transport,
    buffer_sizes,
)

if TYPE_CHECKING:
    from kconsumer.config.options import ConsumerConfig

DISCONNECTED_ERRORS = (
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ENOTCONN,
)  # Python's ssl may raise ENOTCONN for a reset connection
MAX_READ_BYTES = 1 << 20  # `recv_into` stops at the end of the record that reaches this size; about 1 ms of work
MAX_ALERT_BYTES = 1 << 16  # size of a read after a failed write, which looks for an alert with the reason
CLOSED_IN_HANDSHAKE = (
    "it closed the connection when TLS was offered (a broker that starts does so, or a proxy without a broker, or a "
    "PLAINTEXT or SASL_PLAINTEXT listener)"
)

Stamp = tuple[int, int, int]
"""A file's modification time in ns, size in bytes and inode."""
Stamps = list[Stamp | None]
"""The stamps of all files from which a context is made; None for a missing file."""

log = get_logger(__name__)


class TlsConnector:
    """Starts TLS connections. All use one SSLContext, which `refresh` replaces after one of its files has changed.

    So certificates with a short validity can be replaced on disk, and new connections use the new ones.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        """Read the certificates. Raises ConfigError if a TLS option, or a file that it names, cannot be used."""
        self._config = config
        self._files = watched_files(config)
        stamps = self._read_stamps()
        self._loaded = make_context(config), stamps  # a background thread replaces the tuple in one assignment
        self._task: BackgroundTask[None] | None = None  # the last task that read the files again

    def __call__(self, host: str, address: Address, config: ConsumerConfig) -> Transport:
        """Start to connect, with the context that was made last. Returns the transport. The broker's certificate must
        be for `host`."""
        return TlsTransport(host, address, self._loaded[0], buffer_sizes(config), config)

    def refresh(self, background: BackgroundExecutor) -> BackgroundTask[None] | None:
        """Start to read the certificates again if a file has changed. Returns the task, or None if the context is
        current.

        If `ssl_password` is a callable, the task calls it. It may block, for example on a password store, or use the
        consumer. So it must not run on the thread of the event loop, which holds the engine's lock and sends
        heartbeats.
        """
        if self._task is None or self._task.completed:
            stamps = self._read_stamps()
            current = stamps == self._loaded[1]
            self._task = None if current else background.submit(partial(self._load, stamps))
        return self._task

    def _load(self, stamps: Stamps) -> None:
        """Make the context again. `stamps` contains the times and sizes that the files had before this call. So if a
        file changes while it is read, the next `refresh` finds the change."""
        try:
            self._loaded = make_context(self._config), stamps
        except ConfigError as error:  # a file may be incomplete; `_loaded` is kept, so the next connection tries again
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
    """Returns the name for which the certificate must be valid: the host without a trailing dot, and without the zone
    of an IPv6 address. Raises OSError for a name that cannot be sent in TLS."""
    name = host.rstrip(".").partition("%")[0]
    try:
        if name.encode("idna")[:1] not in (b"", b"."):
            return name
    except UnicodeError:
        pass
    raise OSError(f"{host!r} cannot be the name of a TLS host")


class TlsTransport(TcpTransport):
    """A TLS socket that never blocks. The GIL is released during calls of OpenSSL."""

    __slots__ = (
        "_channel",
        "_config",
        "_end",
        "_host",
        "_peer",
        "_ssl",
        "_tcp_connected",
        "_waits_for_write",
        "crossed",
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
        """Start to connect. Raises OSError if that fails at once. `config` is used for the hints in errors."""
        self._host = host
        self._peer = peer_name(host, address)
        self._config = config
        self._tcp_connected = False  # over TCP, and through the proxy, to the broker
        self._waits_for_write = True
        self._end: OSError | None = None  # None while reads may succeed, then the error, or CLOSED
        self.crossed = False
        # The socket is wrapped before it is connected, so that its descriptor does not change after it is registered.
        name = _server_name(host)
        expect_connection()
        super().__init__(
            address,
            *buffers,
            lambda sock: context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False),
        )
        assert isinstance(self._sock, ssl.SSLSocket)
        self._ssl = self._sock
        self._channel = new_channel(self._ssl)

    @property
    def pending(self) -> bool:
        """Returns whether a part of a record is left in OpenSSL, or the connection has ended, which the next read
        reports."""
        return self._end is not None or self._channel.pending

    @property
    def channel(self) -> TlsChannel | None:
        """Decrypts for the background receiver; None: it cannot receive from this transport."""
        return self._channel.direct

    @property
    def encryption(self) -> str:
        """Returns the version of TLS, once it is known, and how it is called."""
        return f"{self._ssl.version() or 'TLS'} {self._channel.description}"

    def wants_write(self) -> bool:
        """Returns True if the connect, the handshake, a read or a write waits until the socket is writable."""
        return self._waits_for_write if self._tcp_connected else super().wants_write()

    def finish_connect(self) -> bool:
        """Continue the connect, and then the handshake. Returns True when the handshake has completed.

        Raises AuthenticationError if one side refuses the other, HandshakeClosedError if the broker has disconnected,
        and OSError for other failures.
        """
        self._tcp_connected = self._tcp_connected or super().finish_connect()
        if not self._tcp_connected:
            return False
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

    def set_low_water(self, count: int) -> None:
        """Do nothing: OpenSSL may have received a part of the bytes that a selector would wait for."""

    def recv_into(self, view: memoryview) -> int:
        """Decrypt records into `view`, until it is full or no more have arrived. Stops after MAX_READ_BYTES, because a
        broker may send as fast as this decrypts, and the call could then exceed the caller's timeout.

        Returns the number of bytes, 0 if the peer has closed the connection, or WOULD_BLOCK if there are no bytes now.
        Raises AuthenticationError for an alert, and OSError for other failures.
        """
        if self._end is not None:
            return self._ended()
        if self._waits_for_write and self.crossed:
            self.crossed = False
        count, reason = self._channel.read(view, min(len(view), MAX_READ_BYTES))
        if reason is WANT_WRITE:
            self.crossed = self._waits_for_write = True
        elif reason is not WANT_READ:
            self._end = reason
        if count:
            return count
        return WOULD_BLOCK if self._end is None else self._ended()

    def send(self, data: bytes | memoryview) -> int:
        """Encrypt and send bytes. Returns how many were taken, which may be 0. The next call must begin with the bytes
        that were not taken, as OpenSSL requires. Raises AuthenticationError if the broker has sent an alert."""
        if self.crossed and not self._waits_for_write:
            self.crossed = False
        count, reason = self._channel.write(data)
        if reason is WANT_READ:
            self.crossed, self._waits_for_write = True, False
        elif reason is not None and reason is not WANT_WRITE:
            raise self._read_alert() or reason
        return count

    def _ended(self) -> int:
        """Returns 0 if the peer has closed the connection, with or without a close_notify alert. Otherwise raises an
        error with the reason."""
        error = self._end
        assert error is not None
        if error is CLOSED:
            return 0
        if not isinstance(error, ssl.SSLError):
            raise error
        hint = alert_hint(error, self._config)
        if hint is None:
            raise ConnectionError(f"TLS ended with {words(error)}") from error
        raise self._refused(hint) from error

    def _read_alert(self) -> AuthenticationError | None:
        """Returns the error for an alert of the broker that the socket contains, or None if it contains no alert.

        This is called after a failed write or handshake. A broker that refuses the client's certificate sends an alert
        and closes the connection. In TLS 1.3 the client has already finished its handshake and is writing. The write
        fails with a reset before the alert is read.
        """
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
        connecting = "" if self._ssl.version() else " connecting"
        return f"<TlsTransport fd={self._sock.fileno()} {self.encryption}{connecting}>"
