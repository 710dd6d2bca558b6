from collections.abc import Callable, Iterable
from typing import final

from kconsumer._core.record import ConsumerRecord

@final
class ShareRecord(ConsumerRecord):
    """A record of a share consumer. It can be acknowledged until the next poll.

    `delivery_count`: how often the record has been delivered to a member of the group, with this time.
    """

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
