"""Serves the model of a cluster on loopback sockets, from one daemon thread.

The thread is the only user of the sockets. It waits for them without the lock, and holds the lock while it passes bytes
to the model. Other threads read and change the model under the same lock, in `change`, which returns when the effects
have reached the sockets. An exception of the model closes the connection that caused it, as an unexpected exception may
do in Kafka, and is logged. `stop` warns of it: it is no error of the test that uses the cluster.
"""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kconsumer._common.signal_safe_lock import SignalSafeLock
from kconsumer._core.lock import Clock
from kconsumer.testing.cluster.broker import Broker
from kconsumer.testing.cluster.cluster import Cluster
from kconsumer.testing.cluster.connection import Connection

RECEIVE_BYTES = 1 << 18
Receive = Callable[[Connection, bytes, float], None]


class ClientSocket:
    """An accepted socket. Received bytes are passed to `receive(connection, data, now)`.

    No method raises an OSError. If the socket fails, `lost` becomes True.
    """

    def __init__(
        self,
        accepted: socket.socket,
        connection: Connection,
        selector: selectors.BaseSelector,
        tls: ssl.SSLContext | None,
        receive: Receive,
    ) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.lost = False  # True: the client has disconnected, or the socket failed
        self.closed = False
        self._socket = accepted
        if tls is not None:
            self._socket = tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        self._handshaking = tls is not None
        self._receive = receive
        self._output = bytearray()
        self._closing = False  # True: close the socket when the output is sent
        self._selector = selector
        self._events = selectors.EVENT_READ
        selector.register(self._socket, self._events, self.on_event)

    def on_event(self, mask: int, now: float) -> None:
        """Continue the handshake, and read and write as far as possible without waiting."""
        self._attempt(lambda: self._read_and_write(mask, now))

    def send(self, data: bytes) -> None:
        """Send data. What the socket does not accept now is sent later."""
        self._output += data
        self._attempt(self._write)

    def close_after_output(self) -> None:
        self._closing = True
        self._attempt(self._write)
        if self.lost or not self._output:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()

    def _read_and_write(self, mask: int, now: float) -> None:
        if self._handshaking:
            assert isinstance(self._socket, ssl.SSLSocket)
            self._socket.do_handshake()
            self._handshaking = False
            mask |= selectors.EVENT_READ  # the client's first request may have come with its last handshake message
        if mask & selectors.EVENT_READ:
            self._read(now)
        self._write()
        if self._closing and not self._output:
            self.lost = True

    def _read(self, now: float) -> None:
        """Read the bytes that have arrived. With TLS, also reads the bytes that are already decrypted."""
        while not self.lost:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                self.lost = True
            elif not self._closing:
                self._receive(self.connection, data, now)
            if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
                return

    def _write(self) -> None:
        while self._output and not self._handshaking:
            sent = self._socket.send(memoryview(self._output)[:RECEIVE_BYTES].tobytes())
            del self._output[:sent]

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step until it would have to wait. Then register the socket for the events that the step needs."""
        if self.closed or self.lost:
            return
        waits_to_write = False
        try:
            step()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except ssl.SSLWantWriteError:
            waits_to_write = True
        except OSError:
            self.lost = True
            return
        has_output = bool(self._output) and not self._handshaking
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits_to_write or has_output else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self.on_event)


HOST = "127.0.0.1"
BACKLOG = 128
logger = logging.getLogger(__name__)
STOP_TIMEOUT_S = 10
NOT_RUNNING = "the cluster is not running: use it inside `with FakeCluster(...) as cluster:`"


class Server:
    """One listener for each broker of a cluster, and the thread that serves them.

    `port`: the port of the first broker; the other brokers have the ports that follow. 0: free ports. The brokers keep
    their ports when they stop and start.
    """

    def __init__(self, cluster: Cluster, clock: Clock, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._cluster = cluster
        self._clock = clock
        self._tls = tls
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[int, _Listener] = {}
        self._clients: dict[Connection, ClientSocket] = {}
        self._lock = SignalSafeLock()  # protects everything but the selector
        self._applied_changes = threading.Condition(self._lock)
        self._changes = 0  # how many changes other threads have made
        self._applied = 0  # how many of them have reached the sockets
        self._running = False  # not Thread.is_alive(), which a signal handler that raises can make False for ever
        self._stopping = False
        self._failure: Exception | None = None  # the exception that ended the thread
        self._model_failures: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="kconsumer-fake-cluster", daemon=True)
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)

    def start(self) -> None:
        """Open the listeners and start the thread. Raises OSError if a port is in use."""
        if self.started:
            raise RuntimeError("a FakeCluster runs once: make a new one")
        try:
            self._selector.register(self._wake_receiver, selectors.EVENT_READ, self._on_wake)
            for index, broker in enumerate(self._cluster.brokers.values()):
                listener = self._listeners[broker.id] = _Listener(broker, self._port + index if self._port else 0)
                broker.host, broker.port = HOST, listener.port
            self._update_listeners()
            self._running = True
            self._thread.start()
        except BaseException:
            self._running = False
            self._close_sockets()
            raise

    @property
    def started(self) -> bool:
        """True if `start` has opened the listeners, also after `stop`."""
        return bool(self._listeners)

    def stop(self) -> None:
        """Close all sockets and end the thread. Warns if the model has failed."""
        with self._lock:
            running = self._running and not self._stopping
            self._stopping = True
            if running:
                self._wake()
        if running:
            self._thread.join(STOP_TIMEOUT_S)
        self._raise_failure()
        failures, self._model_failures = self._model_failures, []
        if failures:
            text = f"the model of FakeCluster failed {len(failures)} times; the first time: {failures[0]!r}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    @contextmanager
    def change(self) -> Iterator[float]:
        """Hold the lock during the block, which may read and change the model. Yields the time in ms.

        After the block, waits until the thread has applied the changes: opened and closed sockets, and sent responses.
        Raises RuntimeError if the thread has ended.
        """
        with self._lock:
            self._raise_failure()
            if self._stopping or not self._running:
                raise RuntimeError(NOT_RUNNING)
            yield self._read_clock()
            self._changes += 1
            number = self._changes
            self._wake()
            while self._applied < number and not self._stopping:
                self._applied_changes.wait()
            self._raise_failure()

    # --- the thread ---

    def _run(self) -> None:
        try:
            while self._run_once():
                pass
        except Exception as error:
            self._failure = self._failure or error
        finally:
            with self._lock:
                self._stopping = True
                self._close_sockets()
                self._applied_changes.notify_all()

    def _run_once(self) -> bool:
        """Wait for the sockets, a change or a timer, and process it. Returns False when the server has to stop."""
        with self._lock:
            timeout = self._timeout_s()
        events = self._selector.select(timeout)
        with self._lock:
            if self._stopping:
                return False
            changes = self._changes
            now = self._read_clock()
            for key, mask in events:
                key.data(mask, now)
            self._keep_failure(lambda: self._cluster.run_timers(now))
            self._update_listeners()
            self._send_output()
            self._applied = changes
            self._applied_changes.notify_all()
        return True

    def _read_clock(self) -> float:
        """Returns the time in ms. Also sets the wall clock of the model, as the system may have adjusted its own."""
        now = self._clock.now()
        self._cluster.set_wall_clock(self._clock.wall_ms(), now)
        return now

    def _timeout_s(self) -> float | None:
        """Returns how long (s) the thread may wait for the sockets, or None if there is no timer."""
        deadline = self._cluster.next_deadline()
        return None if deadline is None else max(0.0, deadline - self._clock.now()) / 1000

    def _update_listeners(self) -> None:
        """Open the listeners of brokers that run, and close the listeners of stopped brokers."""
        for listener in self._listeners.values():
            if listener.broker.alive and not listener.listening:
                listener.listen()
                self._selector.register(listener.socket, selectors.EVENT_READ, self._accepting(listener))
            elif not listener.broker.alive and listener.listening:
                self._selector.unregister(listener.socket)
                listener.refuse()

    def _accepting(self, listener: _Listener) -> Callable[[int, float], None]:
        """Returns the callback that accepts a new connection at a listener."""

        def accept(_: int, now: float) -> None:
            accepted = listener.accept()
            if accepted is None:
                return
            connection = self._cluster.connect(listener.broker.id)
            if connection is None:
                accepted.close()
                return
            try:
                client = ClientSocket(accepted, connection, self._selector, self._tls, self._receive)
            except OSError:  # the client has disconnected already
                accepted.close()
                connection.close()
                return
            self._clients[connection] = client
            client.on_event(0, now)

        return accept

    def _receive(self, connection: Connection, data: bytes, now: float) -> None:
        """Pass received bytes to the model. If the model raises an exception, close the connection."""
        if not self._keep_failure(lambda: connection.receive(data, now)):
            connection.close()

    def _send_output(self) -> None:
        """Send the output of the model's connections, and close the sockets of those that it has closed."""
        for client in [client for client in self._clients.values() if client.lost]:
            client.connection.close()  # also if the model has closed it: that makes it writable again
        writable = self._cluster.writable
        while writable:
            connection, _ = writable.popitem()
            if connection in self._clients:
                self._send(connection, self._clients[connection])
                writable.pop(connection, None)

    def _send(self, connection: Connection, client: ClientSocket) -> None:
        """Send the output of a connection. Close the socket if the connection is closed and its output is sent."""
        if not connection.closed:
            client.send(connection.take_output())
        if connection.closed:
            client.close_after_output()
        if client.lost or client.closed:
            client.close()
            connection.close()
            del self._clients[connection]

    def _on_wake(self, mask: int, now: float) -> None:
        """Discard the bytes that have woken the thread."""
        try:
            self._wake_receiver.recv(4096)
        except BlockingIOError:
            return

    # --- failures and the end ---

    def _keep_failure(self, step: Callable[[], None]) -> bool:
        """Run a step of the model. If it raises an exception, log and keep the exception, and return False."""
        try:
            step()
        except Exception as error:
            logger.exception("The model of FakeCluster failed. This is a defect of kconsumer, not of the test.")
            self._model_failures.append(error)
            return False
        return True

    def _raise_failure(self) -> None:
        """Raise RuntimeError if an exception has ended the thread."""
        if self._failure is not None:
            raise RuntimeError(f"the thread of the cluster failed: {self._failure!r}") from self._failure

    def _wake(self) -> None:
        """End the thread's wait for the sockets."""
        try:
            self._wake_sender.send(b"\0")
        except BlockingIOError:
            return  # it has not yet received the bytes sent before

    def _close_sockets(self) -> None:
        for client in self._clients.values():
            client.close()
        for listener in self._listeners.values():
            listener.socket.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        self._selector.close()


class _Listener:
    """The port of a broker. While the broker is stopped, the port stays reserved and refuses connections."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.listening = False
        self.socket = _bind(port)
        self.port: int = self.socket.getsockname()[1]

    def listen(self) -> None:
        """Begin to accept connections."""
        self.socket.listen(BACKLOG)
        self.listening = True

    def refuse(self) -> None:
        """Refuse connections."""
        self.socket.close()
        self.socket = _bind(self.port)
        self.listening = False

    def accept(self) -> socket.socket | None:
        """Returns the socket of a new connection, or None if the client has disconnected already."""
        try:
            return self.socket.accept()[0]
        except (BlockingIOError, ConnectionAbortedError):
            return None  # the client has disconnected already


def _bind(port: int) -> socket.socket:
    """Returns a socket that is bound to a port of the loopback interface."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind((HOST, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen at {HOST}:{port}: {error.strerror}") from error
    return bound
