from typing import Any, Final, final

from kconsumer._core.decode import RecordRun
from kconsumer.types import TopicPartition

COLUMNS: tuple[str, ...]

@final
class Columns:
    def __init__(self, *args: object, **kwargs: object) -> None: ...
    names: Final[tuple[str, ...]]
    def __len__(self) -> int: ...
    def gaps(self, start: int, end: int = ...) -> list[tuple[int, int]]: ...

MAX_COLUMN_BYTES: int

@final
class RunCursor:
    def __new__(cls, runs: tuple[RecordRun, ...], ends: dict[TopicPartition, int]) -> RunCursor: ...

def build(
    runs: tuple[RecordRun, ...],
    names: tuple[str, ...],
    ends: dict[TopicPartition, int] | None = None,
    *,
    max_bytes: int = ...,
) -> list[Columns]: ...
def array_capsule(columns: Columns) -> Any: ...
def schema_capsule(names: tuple[str, ...]) -> Any: ...
def stream_capsule(parts: list[Columns], names: tuple[str, ...]) -> Any: ...

NAMES: dict[str, str]

def spark_columns(columns: Columns) -> Columns: ...
def spark_schema(names: tuple[str, ...]) -> Any: ...
