"""Servers of Python's `ssl` as the other end of TLS connections, for tests without a broker."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support.brokers.certificates import Authority, Certificate


def server_context(
    folder: Path, certificate: Certificate, asks_for: Authority | None = None, **versions: ssl.TLSVersion
) -> ssl.SSLContext:
    """Returns the context of a server with this certificate. It requires client certificates issued by `asks_for`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write(folder / "server.pem"))
    if asks_for is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=asks_for.certificate)
    for name, version in versions.items():
        setattr(context, name, version)
    return context


def send_close_notify(tls: ssl.SSLSocket) -> None:
    """Send the alert that ends a connection, and do not wait for the one of the peer, which may disconnect at once."""
    tls.settimeout(0)
    with suppress(OSError):
        tls.unwrap()


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve connections with this function, one after the other, while the block runs. Returns the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = threading.Event()

        def run() -> None:
            while not stopping.is_set():
                accepted, _ = listener.accept()
                with accepted:
                    if not stopping.is_set():
                        serve(accepted)

        thread = threading.Thread(target=run, name="tls-peer", daemon=True)
        thread.start()
        port: int = listener.getsockname()[1]
        try:
            yield port
        finally:
            stopping.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join(10)
