from collections.abc import Callable, Mapping
from selectors import SelectorKey
from socket import socket
from typing import Any, Final, final

from typing_extensions import Buffer, disjoint_base

from kconsumer._core.lock import Waiting
from kconsumer._core.metrics import ConnectionEvents
from kconsumer._core.wire import Frame, FrameBuffer

def load(path: str | None, version: int) -> str | None: ...
def expect_connection() -> None: ...
def adopt_connection(fd: int) -> TlsChannel | None: ...
def reason(code: int) -> str: ...

@final
class TlsChannel:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    pending: bool
    ended: bool
    stopped: tuple[int, int, int]
    def recv_into(self, view: Buffer, enough: int) -> int: ...
    def send(self, data: Buffer) -> int: ...

@final
class Receiver:
    completed: int
    def fileno(self) -> int: ...
    def begin(self, fd: int, view: Buffer, tag: Any, framed: bool, channel: TlsChannel | None = None) -> int | None: ...
    def take(self) -> tuple[Any, bytes | None, int, int] | None: ...
    def cancel(self, job_id: int) -> None: ...
    def filled(self, job_id: int) -> int: ...
    def held(self) -> dict[int, Any]: ...
    def close(self) -> None: ...

@final
class EpollSelector:
    def register(self, descriptor: int, events: int, data: Any = None) -> SelectorKey: ...
    def modify(self, descriptor: int, events: int, data: Any = None) -> SelectorKey: ...
    def unregister(self, descriptor: int) -> SelectorKey: ...
    def get_map(self) -> Mapping[int, SelectorKey]: ...
    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]: ...
    def close(self) -> None: ...

LOGIN_CORRELATION_IDS: Final[int]
MAX_IN_FLIGHT: Final[int]
MAX_LOW_WATER_BYTES: Final[int]
SLOW_MS: Final[float]
MIN_BACKGROUND_BYTES: Final[int]
WOULD_BLOCK: Final[int]

@final
class InFlight:
    correlation_id: Final[int]
    sent_at: Final[float]
    deadline: Final[float]
    api: Final[Any]
    version: Final[int]
    timeout_ms: Final[float]
    request: Final[Any]
    handler: Final[Callable[[InFlight, Frame, float], None] | None]
    raw: Final[bool]
    def __init__(
        self,
        correlation_id: int,
        api: Any,
        version: int,
        sent_at: float,
        deadline: float,
        request: Any = None,
        handler: Callable[[InFlight, Frame, float], None] | None = None,
        raw: bool = False,
    ) -> None: ...
    def restart_timeout(self, since: float) -> None: ...

@disjoint_base
class RequestQueue:
    name: str
    state: Any
    session: Any
    entries: list[InFlight]
    outgoing: list[bytes | memoryview]
    next_correlation_id: int
    next_deadline: float
    has_served_request: bool
    throttle_ms: int
    exchanged_by: Any
    _preamble: bytearray | None
    ready_state: Final[Any]
    owner: Final[Any]
    _frames: Final[FrameBuffer]
    def __init__(self, name: str, state: Any, ready_state: Any, session: Any, frames: FrameBuffer) -> None: ...
    def sent(self, count: int) -> int: ...
    def received(self, count: int, now: float, ended: list[Any]) -> int: ...
    def received_prefetched(self, prefix: bytes, count: int, now: float, ended: list[Any]) -> int: ...
    def belong_to(self, owner: ConnectionIo) -> None: ...
    def may_continue(self, now: float) -> bool: ...
    def _advance_correlation_id(self) -> None: ...
    def _exchanged(self, entry: InFlight, following: bytes, now: float) -> None: ...
    def _pop(self) -> int: ...
    def _find_deadline(self) -> int: ...

@disjoint_base
class SocketIo:
    _sock: socket
    def recv_into(self, view: memoryview) -> int: ...
    def send(self, data: bytes | memoryview) -> int: ...

@disjoint_base
class ConnectionIo:
    id: str
    connection: Any
    transport: Any
    _loop: Any
    last_used: float
    progress_at: float
    throttled_until: float
    _parts: int
    _low_water: int
    receiving: Final[bool]
    def __init__(self, connection_id: str, loop: IoLoop) -> None: ...
    def may_send(self, now: float) -> bool: ...
    def send(self, request: Any, now: float) -> None: ...
    def serve(self, mask: int, now: float) -> int: ...
    def write(self, now: float) -> int: ...
    def read(self, now: float, received: tuple[bytes | None, int, int] | None = None) -> int: ...
    def _watch(self, connection: RequestQueue, transport: Any) -> int: ...
    def _wait_for_rest(self, connection: RequestQueue, transport: Any) -> None: ...
    def _set_low_water(self, transport: Any, count: int) -> None: ...

@disjoint_base
class IoLoop:
    nodes: Mapping[str, Any]
    waker: Any
    metrics: Any
    events: ConnectionEvents | None
    interest: Any
    background: Any
    resolver: Any
    background_receiver: Any
    defers_writes: bool
    deferred: dict[Any, None]
    ended: list[Any]
    changed: bool
    next_timer: float
    _clock: Any
    _max_wait_ms: float
    _entered_at: float
    def __init__(
        self,
        clock: Any,
        nodes: Mapping[str, Any],
        waker: Any,
        metrics: Any,
        interest: Any,
        background: Any,
        resolver: Any,
        background_receiver: Any,
        run_python: Callable[[], object],
    ) -> None: ...
    _waiting: Final[Waiting | None]
    def wait_inside(self, waiting: Waiting | None) -> None: ...
    def poll(self, timeout_ms: float, now: float) -> list[Any]: ...
    def flush(self, now: float) -> None: ...
    def run_timers_by(self, due: float) -> None: ...
    def connection_changed(self) -> None: ...
