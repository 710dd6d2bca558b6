from collections.abc import Callable, Mapping
from typing import Any, final

from kconsumer._core.metric_events import FetchEvents
from kconsumer._core.wire import Frame

@final
class InFlightFetch:
    @property
    def broker(self) -> Any: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def sent_at(self) -> float: ...
    @property
    def full(self) -> bool: ...
    @property
    def requested(self) -> Mapping[Any, Any]: ...
    @property
    def topic_names(self) -> Mapping[bytes, str]: ...
    @property
    def leader_only(self) -> bool: ...
    @property
    def active_brokers(self) -> int: ...
    @property
    def node(self) -> Any: ...
    def __init__(
        self,
        broker: Any,
        max_bytes: int,
        reserved: int,
        sent_at: float,
        full: bool,
        requested: Mapping[Any, Any],
        topic_names: Mapping[bytes, str],
        leader_only: bool,
        active_brokers: int = 0,
        cycle: FetchCycle | None = None,
    ) -> None: ...
    def notify(self) -> None: ...
    def receive(self, connection: Any, entry: Any, frame: Frame, now: float) -> bytes | None: ...

@final
class FetchCycle:
    on_records: Callable[[], object]
    on_ended: Callable[[], object]
    def __init__(
        self,
        manager: Any,
        lock: Any,
        events: FetchEvents | None,
        *,
        check_crcs: bool,
        read_committed: bool,
        batch_limit: int,
    ) -> None: ...

def next_epoch(epoch: int) -> int: ...
def topic_id_of(requested: Any) -> bytes: ...
