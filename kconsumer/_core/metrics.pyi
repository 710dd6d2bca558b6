from collections.abc import Callable, Container, Mapping
from typing import Final, Protocol, final

from typing_extensions import disjoint_base

from kconsumer._core.decode import RecordRun
from kconsumer.types import MetricName, TopicPartition

@final
class Window:
    start: Final[float]
    count: Final[int]
    sum: Final[float]
    largest: Final[float]
    smallest: Final[float]

@disjoint_base
class SampledValues:
    names: Final[list[MetricName]]
    samples: Final[int]
    window_ms: Final[float]
    count: Final[int]
    total: Final[float]
    value: Final[float]
    def __new__(cls, samples: int, window_ms: float, parent: SampledValues | None = None) -> SampledValues: ...
    def record(self, value: float, now: float, count: int = 1) -> None: ...
    def windows_after(self, since: float) -> list[Window]: ...

@final
class SensorPair:
    def __new__(cls, first: SampledValues, second: SampledValues) -> SensorPair: ...
    first: Final[SampledValues]
    second: Final[SampledValues]
    def record(self, first_value: float, second_value: float, now: float, count: int = 1) -> None: ...

@final
class NodeSensors:
    def __new__(
        cls,
        outgoing: SampledValues,
        incoming: SampledValues,
        requests: SampledValues,
        responses: SampledValues,
        latency: SampledValues,
    ) -> NodeSensors: ...

class _Reply(Protocol):
    @property
    def node(self) -> str: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def now(self) -> float: ...
    @property
    def sent_at(self) -> float: ...

@final
class ConnectionEvents:
    def __new__(
        cls, waits: SampledValues, work: SampledValues, new_node: Callable[[str], NodeSensors]
    ) -> ConnectionEvents: ...
    def sent(self, node_id: str, size: int, request_size: int, now: float) -> None: ...
    def received(self, node_id: str, size: int, responses: int) -> None: ...
    def completed(self, reply: _Reply) -> None: ...
    def exchanged(self, node_id: str, latency_ms: float, now: float) -> None: ...
    def polled(self, selects: int, waited_ms: float, busy_ms: float, now: float) -> None: ...

@final
class PollEvents:
    def __new__(cls, between: SensorPair, idle: SampledValues) -> PollEvents: ...
    last_poll: Final[float | None]
    def poll_began(self, now: float) -> None: ...
    def quick_poll(self, now: float) -> None: ...
    def wait_ended(self, now: float) -> None: ...
    def settle(self) -> None: ...

@final
class TopicTally:
    bytes: Final[int]
    records: Final[int]

@final
class ResponseTally:
    unread: Final[int]
    bytes: Final[int]
    records: Final[int]
    topics: Final[dict[str, TopicTally]]
    def expect(self) -> None: ...
    def add(self, topic: str, size: int, records: int) -> None: ...

class _State(Protocol):
    @property
    def high_watermark(self) -> int | None: ...
    @property
    def last_stable_offset(self) -> int | None: ...
    @property
    def log_start_offset(self) -> int | None: ...

class _Position(Protocol):
    @property
    def offset(self) -> int: ...

@final
class DataSensors:
    def __new__(cls, requests: SensorPair, consumed: SensorPair) -> DataSensors: ...
    requests: Final[SensorPair]
    consumed: Final[SensorPair]

@final
class FetchEvents:
    def __new__(
        cls,
        responses: SensorPair,
        data: DataSensors,
        new_topic: Callable[[str], DataSensors | None],
        read_committed: bool,
    ) -> FetchEvents: ...
    topics: Final[dict[str, DataSensors]]
    partitions: Final[dict[TopicPartition, SensorPair]]
    filtered: SampledValues | None
    returned: Final[dict[TopicPartition, int]]
    def record_response(self, latency_ms: float, throttle_ms: float, now: float) -> None: ...
    def record_filtered(self, records: int, now: float) -> None: ...
    def record_returned(
        self,
        runs: list[RecordRun],
        positions: Mapping[TopicPartition, _Position],
        states: Mapping[TopicPartition, _State],
        now: float,
    ) -> None: ...
    def record_unreturned(self, kept: Container[TopicPartition], now: float) -> None: ...
    def record_cut(self, run: RecordRun, offset: int, now: float) -> None: ...
    def record_drained(self, tally: ResponseTally, now: float) -> None: ...
