from typing import Self, final

from kconsumer._core.wire import Slice

def use_library(codec: str, path: str) -> bool: ...
def prefetch_hits() -> int: ...

@final
class PrefetchDecompressor:
    def __new__(cls, data: Slice) -> Self: ...
