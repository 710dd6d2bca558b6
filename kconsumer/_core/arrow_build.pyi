from typing import final

from kconsumer._core.arrow_columns import Columns
from kconsumer._core.record_run import RecordRun
from kconsumer.types import TopicPartition

MOST_BYTES: int

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
