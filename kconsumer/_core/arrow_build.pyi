from typing import final

from kconsumer._core.arrow_columns import Columns
from kconsumer._core.record_run import RecordRun
from kconsumer.types import TopicPartition

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
