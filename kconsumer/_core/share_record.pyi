from collections.abc import Callable, Iterable
from typing import final

from kconsumer._core.record import ConsumerRecord
from kconsumer.types import TimestampType

@final
class ShareRecord(ConsumerRecord):
    """A record of a share consumer. It can be acknowledged until the next poll.

    `delivery_count`: how often the record has been delivered to a member of the group, with this time.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: TimestampType = ...,
        key: object = None,
        value: object = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        leader_epoch: int | None = None,
        serialized_key_size: int | None = None,
        serialized_value_size: int | None = None,
        delivery_count: int = 1,
    ) -> None: ...
    @property
    def delivery_count(self) -> int: ...
    def ack(self) -> None: ...
    def release(self) -> None: ...
    def reject(self) -> None: ...
    def renew(self) -> None: ...

def acquired_records(
    records: Iterable[ConsumerRecord],
    ranges: list[tuple[int, int, int]],
    acknowledger: Callable[[ShareRecord, int], object] | None,
) -> dict[int, ShareRecord]: ...
