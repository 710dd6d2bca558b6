from typing import final

from kconsumer._core.run import RecordRun
from kconsumer.types import TopicPartition

COLUMNS: tuple[str, ...]
MOST_BYTES: int

@final
class Columns:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def gaps(self, start: int, end: int = ...) -> list[tuple[int, int]]: ...

@final
class Build:
    def __new__(cls, runs: tuple[RecordRun, ...], ends: dict[TopicPartition, int]) -> Build: ...

def build(
    runs: tuple[RecordRun, ...],
    names: tuple[str, ...],
    ends: dict[TopicPartition, int] | None = None,
    *,
    most_bytes: int = ...,
) -> list[Columns]: ...
