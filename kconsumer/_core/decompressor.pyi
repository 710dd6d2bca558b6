from typing import Self, final

from kconsumer._core.wire import Slice

def use_library(codec: str, path: str) -> bool: ...
def taken_ahead() -> int: ...

@final
class Ahead:
    def __new__(cls, data: Slice) -> Self: ...
