from collections.abc import Callable, Iterable, Sequence
from typing import final

from typing_extensions import Buffer

from kconsumer._core.record_run import RecordRun
from kconsumer._core.wire import Slice
from kconsumer.types import TopicPartition

class DecompressionError(Exception): ...
class OutputLimitError(DecompressionError): ...

def use_codecs(
    decompress_batch: Callable[[int, Slice, int, int], Slice | bytes | bytearray], limit_output: Callable[[int], int]
) -> None: ...

@final
class PartitionFetch:
    def __init__(
        self,
        topic_partition: TopicPartition,
        records: Slice | Buffer | None,
        fetch_offset: int,
        *,
        check_crcs: bool = True,
        log_bytes: bool = False,
        read_committed: bool = False,
        aborted_transactions: Iterable[tuple[int, int]] = (),
        on_decompressed: Callable[[Buffer], object] | None = None,
        batch_limit: int = 0,
    ) -> None: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def next_leader_epoch(self) -> int | None: ...
    @property
    def exhausted(self) -> bool: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    def take(self, max_records: int, max_bytes: int = ..., max_output: int = 0) -> RecordRun: ...
    def take_skipped(self) -> Sequence[tuple[int, int, str]]: ...
    def drain(self) -> None: ...
