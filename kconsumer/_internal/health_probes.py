"""Probes of `kconsumer.health`: an HTTP server, and a file that is written again and again.

Each has a daemon thread, which ends with the probe, and when the consumer is collected: the thread keeps only a weak
reference to it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socket import AF_INET, AF_INET6
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, Protocol

from kconsumer._common.closing import Closing
from kconsumer._common.deferred_calls import get_logger

if TYPE_CHECKING:
    from kconsumer._internal.status import Health

log = get_logger(__name__)

CHECK_S = 0.5  # how often the server checks whether it must end
REQUEST_TIMEOUT_S = 5.0  # how long a client may be silent


class Checked(Protocol):
    """A consumer of any kind, or a run of `kconsumer.parallel`."""

    def health(self, max_lag: int | None = None, max_lag_seconds: float | None = None) -> Health:
        """Returns the health."""

    def _on_closed(self, notify: Callable[[], object]) -> None:
        """Call `notify` when the consumer is closed."""


class Probe(Closing):
    """A daemon thread that reports the health of a consumer."""

    def __init__(self, consumer: Checked, max_lag: int | None, max_lag_seconds: float | None) -> None:
        self._consumer = weakref.ref(consumer)
        self._limits = max_lag, max_lag_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kconsumer-health", daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Report until `_stopped` is set, or until there is no health any more."""

    def health(self) -> Health | None:
        """Returns the present health, or None if the consumer was collected."""
        consumer = self._consumer()
        return None if consumer is None else consumer.health(*self._limits)

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


class HealthServer(Probe):
    """The result of `kconsumer.health.serve`."""

    host: str
    """The address that the server listens at."""
    port: int

    def __init__(
        self, consumer: Checked, port: int, host: str, max_lag: int | None, max_lag_seconds: float | None
    ) -> None:
        super().__init__(consumer, max_lag, max_lag_seconds)
        self._server = _Server((host, port), self.health)
        self.host, self.port = self._server.socket.getsockname()[:2]
        self._thread.start()
        log.info("%s/live and /ready report the health of the consumer", self.url)

    @property
    def url(self) -> str:
        """The address as users write it, such as "http://127.0.0.1:8080"."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def _run(self) -> None:
        with self._server:
            while not self._stopped.is_set() and self._consumer() is not None:
                self._server.handle_request()

    def __repr__(self) -> str:
        return f"<HealthServer {self.url}>"


class _Server(ThreadingTCPServer):
    """Handles each request on a thread, so that a client that sends nothing delays no other one."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name == "posix"
    timeout = CHECK_S

    def __init__(self, address: tuple[str, int], health: Callable[[], Health | None]) -> None:
        self.health = health
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error of a request, such as a client that has closed its connection."""
        log.debug("a request for the health failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        """Respond to a probe."""
        path, health = self.path.partition("?")[0], self.server.health()
        if path not in ("/live", "/ready") or health is None:
            self.send_error(404, explain="the paths are /live and /ready")
            return
        ok = health.live if path == "/live" else health.ok
        body = json.dumps({"ok": ok, "reasons": [] if ok else health.reasons}).encode()
        self.send_response(200 if ok else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Returns the header `Server`."""
        return "kconsumer"

    def log_message(self, *args: Any) -> None:
        """Log a request, in place of writing it to stderr."""
        log.debug(*args)


class HealthFile(Probe):
    """The result of `kconsumer.health.write`."""

    def __init__(
        self,
        consumer: Checked,
        path: str | os.PathLike[str],
        every_s: float,
        max_lag: int | None,
        max_lag_seconds: float | None,
    ) -> None:
        if not every_s > 0:
            raise ValueError(f"every_s must be positive, not {every_s!r}")
        super().__init__(consumer, max_lag, max_lag_seconds)
        self.path, self._every_s = os.path.abspath(path), every_s
        self._write()
        consumer._on_closed(self._stopped.set)
        self._thread.start()

    def _run(self) -> None:
        failed = False
        while self._consumer() is not None:
            stopped = self._stopped.wait(self._every_s)
            try:
                self._write()  # also when the consumer was closed: it is not ready any more
                failed = False
            except OSError as error:
                log.log(logging.DEBUG if failed else logging.WARNING, "the health was not written: %s", error)
                failed = True
            if stopped:
                return

    def _write(self) -> None:
        """Replace the file, so that a reader finds either the old or the new content."""
        health = self.health()
        if health is None:
            return
        content = {"live": health.live, "ready": health.ok, "reasons": health.reasons}
        written = f"{self.path}.{os.getpid()}"
        try:
            with open(written, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(written, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise

    def __repr__(self) -> str:
        return f"<HealthFile {self.path!r}>"
