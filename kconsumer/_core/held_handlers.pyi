from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class HeldHandlers:
    active: bool
    wake: Callable[[], None] | None
    note: Callable[[int, FrameType | None], object]
    get_handler: Callable[[int], Any]
    set_handler: Callable[[int, Any], Any]
    main: int
    def __new__(
        cls,
        get_handler: Callable[[int], Any],
        set_handler: Callable[[int, Any], Any],
        numbers: Iterable[int],
        main: int,
    ) -> HeldHandlers: ...
    @property
    def noted(self) -> dict[int, FrameType | None]: ...
    @property
    def handlers(self) -> dict[int, Any]: ...
    @property
    def held(self) -> bool: ...
    def hold(self, wake: Callable[[], None] | None = None) -> bool: ...
    def refresh(self) -> None: ...
    def release(self) -> None: ...
    def run_noted(self) -> None: ...
    def run_handlers(self) -> None: ...
