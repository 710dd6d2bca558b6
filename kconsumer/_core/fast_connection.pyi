from collections.abc import Callable, Mapping
from typing import Any, final

from kconsumer._core.metric_events import NodeSensors
from kconsumer._core.wire import FrameBuffer
from kconsumer.fetching.request import InFlightFetch
from kconsumer.fetching.session import RequestedPartition
from kconsumer.managers import UnsentRequest
from kconsumer.net.node import NodeConnection
from kconsumer.state.partition import FetchPosition
from kconsumer.types import TopicPartition

@final
class FastPartition:
    @property
    def requested(self) -> RequestedPartition: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def offset(self) -> int: ...
    @property
    def offset_epoch(self) -> int | None: ...
    @property
    def offset_before(self) -> int: ...
    @property
    def epoch_before(self) -> int | None: ...
    @property
    def advanced(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    def __init__(self, requested: RequestedPartition, topic_id: bytes, position: FetchPosition) -> None: ...

@final
class FastConnection:
    @property
    def flight(self) -> InFlightFetch: ...
    @property
    def unsent(self) -> UnsentRequest: ...
    @property
    def node(self) -> NodeConnection: ...
    @property
    def descriptor(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def correlation_id(self) -> int: ...
    @property
    def sent_at(self) -> float: ...
    @property
    def responded_at(self) -> float: ...
    @property
    def partitions(self) -> Mapping[bytes, FastPartition]: ...
    @property
    def request(self) -> bytes | None: ...
    @property
    def sent(self) -> int: ...
    @property
    def error(self) -> Any: ...
    def __init__(
        self,
        flight: InFlightFetch,
        node: NodeConnection,
        descriptor: int,
        frames: FrameBuffer,
        recv_into: Callable[[memoryview], int],
        send: Callable[[bytes], int],
        find: Callable[[bytes, int], FastPartition | None],
        head: bytes,
        tail: bytes,
        session_id: int,
        epoch: int,
        correlation_id: int,
        sent_at: float,
        unsent: UnsentRequest,
        sensors: NodeSensors | None = None,
        is_socket: bool = False,
        blocked: Callable[[], bool] | None = None,
    ) -> None: ...
