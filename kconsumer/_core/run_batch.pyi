from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from typing_extensions import disjoint_base

from kconsumer._core.record_run import RecordIterator, RecordRun
from kconsumer.types import TopicPartition

_Position = tuple[int, int | None] | tuple[int, int | None, Any]
_Skipped = Mapping[TopicPartition, Sequence[tuple[int, int, str]]]

NONE: Mapping[Any, Any]

@disjoint_base
class RunBatch:
    @property
    def _runs(self) -> tuple[RecordRun, ...]: ...
    @property
    def _positions(self) -> Mapping[TopicPartition, _Position]: ...
    @property
    def _skipped(self) -> _Skipped: ...
    @property
    def _count(self) -> int: ...
    @classmethod
    def from_runs(
        cls,
        runs: Iterable[RecordRun],
        positions: Mapping[TopicPartition, _Position] = ...,
        skipped: _Skipped = ...,
    ) -> Self: ...
    def _fill(
        self, runs: tuple[RecordRun, ...], positions: Mapping[TopicPartition, _Position], skipped: _Skipped
    ) -> None: ...
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> RecordIterator: ...
