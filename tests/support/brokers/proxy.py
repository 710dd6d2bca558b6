"""A TCP proxy in front of brokers that disturbs the connections between a client and them.

The proxy delivers bytes at once, late, a few at a time, or not at all, or it resets the connection; the caller decides
when. Bytes that are withheld when their client closes are lost. Every method may be called from any thread. The proxy
runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

HOST = "127.0.0.1"
CHUNK = 65_536
LOOK_AGAIN_S = 0.02  # how often a stalled link checks whether it may continue
TRICKLE_PAUSE_S = 0.005

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a link delivers bytes."""

    up_stalled: bool = False  # from the client to the broker
    down_stalled: bool = False
    delay_s: float = 0.0
    trickle: int = 0  # this many bytes at a time; 0: as they come
    cut_after: int = -1  # reset both sides when this many more bytes have come down; -1: never


CALM = Conditions()
STALLED = Conditions(up_stalled=True, down_stalled=True)


class Link:
    """One connection of a client, and the proxy's to the broker behind it."""

    def __init__(self, listener: Listener, client: socket.socket, client_port: int) -> None:
        self.listener = listener
        self.conditions = listener.conditions
        self.client_port = client_port
        self._client, self._broker = client, socket.socket()

    async def run(self) -> None:
        """Carry bytes both ways until a side ends or the link is cut; both sides end with a reset."""
        loop = asyncio.get_running_loop()
        pumps: list[asyncio.Task[None]] = []
        try:
            self._broker.setblocking(False)
            await loop.sock_connect(self._broker, (HOST, self.listener.target))
            pumps.append(loop.create_task(self._pump(self._client, self._broker, up=True)))
            pumps.append(loop.create_task(self._pump(self._broker, self._client, up=False)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the broker is down
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)  # the loop must let go of a socket before it closes
            self.close()

    async def _pump(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, CHUNK):
                while data:
                    while self.conditions.up_stalled if up else self.conditions.down_stalled:
                        await asyncio.sleep(LOOK_AGAIN_S)
                        if up and self._closed_by_client():
                            return
                    data = await self._forward(data, sink, up=up)

    def _closed_by_client(self) -> bool:
        """Returns True if the client has closed or reset the connection, also if bytes that it has sent are unread."""
        ended = select.poll()
        ended.register(self._client, select.POLLRDHUP)
        return bool(ended.poll(0))

    async def _forward(self, data: bytes, sink: socket.socket, *, up: bool) -> bytes:
        """Send some of `data`. Returns the remaining bytes."""
        conditions = self.conditions
        size = len(data)
        if conditions.delay_s:
            await asyncio.sleep(conditions.delay_s)
        elif conditions.trickle:
            await asyncio.sleep(TRICKLE_PAUSE_S)
            size = conditions.trickle
        if not up and conditions.cut_after >= 0:
            size = min(size, conditions.cut_after)
        if size:
            await asyncio.get_running_loop().sock_sendall(sink, data[:size])
        if not up and conditions.cut_after >= 0:
            self.conditions = replace(self.conditions, cut_after=conditions.cut_after - size)
            if conditions.cut_after == size:
                raise ConnectionResetError
        return data[size:]

    def close(self) -> None:
        """Close without lingering, so that the peers receive a reset."""
        for side in (self._client, self._broker):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()


class Listener:
    """A port that clients connect to in place of a broker's port."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.conditions = CALM  # what new links begin with
        self.links: dict[Link, asyncio.Task[None]] = {}
        self._socket = socket.create_server((HOST, 0), backlog=64)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    async def run(self) -> None:
        """Accept connections for ever."""
        loop = asyncio.get_running_loop()
        while True:
            client, (_, client_port) = await loop.sock_accept(self._socket)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(self, client, client_port)
            task = self.links[link] = loop.create_task(link.run())
            task.add_done_callback(partial(self._ended, link))

    def _ended(self, link: Link, _: object) -> None:
        del self.links[link]

    def cut(self, link: Link) -> None:
        """Reset both sides of a link if it is open."""
        if link in self.links:
            self.links[link].cancel()

    def close(self) -> None:
        """Stop accepting connections. Called after the thread has ended."""
        self._socket.close()


class Proxy:
    """Listeners in front of brokers; a context manager."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._accepting: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def listen_for(self, port: int) -> int:
        """Returns the proxy's port for a broker's port; the first call opens it."""

        def listen() -> int:
            if port not in self._listeners:
                listener = self._listeners[port] = Listener(port)
                self._accepting.append(self._loop.create_task(listener.run()))
            return self._listeners[port].port

        return self._on_loop(listen)

    def links(self, port: int | None = None) -> list[Link]:
        """Returns the open connections to a broker's port, or all."""
        return self._on_loop(lambda: [link for each in self._chosen(port) for link in each.links])

    def set_conditions(self, conditions: Conditions, link: Link) -> None:
        """Change one open connection."""
        self._on_loop(lambda: setattr(link, "conditions", conditions))

    def set_climate(self, conditions: Conditions, port: int | None = None) -> None:
        """Set the conditions of a broker's connections, or of all, for open and for new ones."""

        def change() -> None:
            for listener in self._chosen(port):
                listener.conditions = conditions
                for link in listener.links:
                    link.conditions = conditions

        self._on_loop(change)

    def cut(self, *links: Link) -> None:
        """Reset connections."""

        def reset() -> None:
            for link in links:
                link.listener.cut(link)

        self._on_loop(reset)

    def calm(self) -> None:
        """Remove all faults; withheld bytes then arrive late."""
        self.set_climate(CALM)

    def close(self) -> None:
        """Cut everything and end the thread."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut(self) -> None:
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners.values():
            listener.close()

    def _chosen(self, port: int | None) -> list[Listener]:
        return list(self._listeners.values()) if port is None else [self._listeners[port]]

    def _on_loop(self, call: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return call()

        coroutine: Coroutine[Any, Any, _T] = run()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)
