from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Final, final

from typing_extensions import disjoint_base

@disjoint_base
class Clock:
    def now(self) -> float: ...
    def wall_ms(self) -> int: ...

@disjoint_base
class ManagerTime:
    now: float
    def __init__(self, now: float = 0.0) -> None: ...
    def set_now(self, now: float) -> None: ...

@final
class Timer:
    deadline: Final[float]
    expired: Final[bool]
    def __init__(self, clock: Clock, timeout_ms: float) -> None: ...
    def remaining_ms(self) -> float: ...

@disjoint_base
class HeldHandlers:
    active: bool
    wake: Callable[[], None] | None
    note: Callable[[int, FrameType | None], object]
    set_handler: Callable[[int, Any], Any]
    main: int
    def __new__(
        cls,
        get_handler: Callable[[int], Any],
        set_handler: Callable[[int, Any], Any],
        numbers: Iterable[int],
        main: int,
    ) -> HeldHandlers: ...
    get_handler: Final[Callable[[int], Any]]
    noted: Final[dict[int, FrameType | None]]
    handlers: Final[dict[int, Any]]
    held: Final[bool]
    def hold(self, wake: Callable[[], None] | None = None) -> bool: ...
    def release(self) -> None: ...
    def run_noted(self) -> None: ...
    def run_handlers(self) -> None: ...

EXPECTED: tuple[type[Exception], ...]

def fork_count() -> int: ...

@final
class EngineLock:
    version: int
    def __init__(self, lock: Any, signals: HeldHandlers) -> None: ...
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def _is_owned(self) -> bool: ...

@final
class Step:
    unfinished: bool
    waiting: bool
    shared_by: int
    def begin(self) -> None: ...
    def begin_shared(self) -> None: ...
    def end_shared(self) -> None: ...
    def end(self) -> int: ...
    interrupted: Final[bool]
    def resume(self, changing: bool) -> int: ...
    def interrupt(self) -> None: ...

@disjoint_base
class ClientState:
    lock: EngineLock
    step: Step
    clock: Clock
    changes: Any
    user_calls: Any
    end_wait: Callable[[], None]
    turnstile: Any
    closed: bool

@final
class Section:
    def __init__(self, parts: ClientState, signals: HeldHandlers) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Waiting:
    def __init__(self, lock: EngineLock, step: Step) -> None: ...

FORKED: str

@disjoint_base
class GuardState:
    closed: bool
    step: Step
    end_wait: Callable[[], None] | None
    holder: int
    _forks: Final[int]
    forked: Final[bool]
    def __init__(self, signals: HeldHandlers, step: Step, end_wait: Callable[[], None] | None) -> None: ...
    def check_usable(self) -> None: ...
    def enter(self, *, closing: bool = False) -> int: ...
