from collections.abc import Callable
from typing import final

@final
class ResponseParser:
    def __init__(
        self, track: Callable[[object], object], *, check_crcs: bool, read_committed: bool, batch_limit: int
    ) -> None: ...
