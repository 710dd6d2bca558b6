import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, final

from typing_extensions import disjoint_base

from kconsumer._core.decode import ConsumerRecord, PartitionFetch, RecordRun, RecordTest
from kconsumer._core.lock import ClientState, Clock, EngineLock, ManagerTime, Timer
from kconsumer._core.metrics import FetchEvents, PollEvents
from kconsumer._core.wire import Frame
from kconsumer.errors import KafkaError
from kconsumer.types import TopicPartition

_S = TypeVar("_S")
_T = TypeVar("_T")
_P = TypeVar("_P")
_R = TypeVar("_R")

@final
class ChangeLog(ManagerTime, Generic[_S]):
    assignment_version: int
    dirty: dict[_S, None]
    without_position: int
    unchecked_leaders: bool
    def take(self) -> dict[_S, None]: ...
    def add_without_position(self, count: int) -> None: ...
    def set_unchecked_leaders(self) -> None: ...
    def clear_unchecked_leaders(self) -> None: ...
    def begin_assignment(self) -> None: ...

@disjoint_base
class PartitionPosition(Generic[_P]):
    changes: ChangeLog[Any]
    topic_partition: TopicPartition
    position: _P | None
    topic_id: bytes | None
    fetchable: bool
    paused: bool
    high_watermark: int | None
    last_stable_offset: int | None
    log_start_offset: int | None
    out_of_range: int

@disjoint_base
class AssignedPartitions(Generic[_S]):
    changes: ChangeLog[_S]
    _states: dict[TopicPartition, _S]
    def __init__(self, changes: ChangeLog[_S]) -> None: ...
    def find(self, tp: TopicPartition) -> _S | None: ...
    def states(self) -> Mapping[TopicPartition, _S]: ...
    def move_to_end(self, tp: TopicPartition) -> None: ...

@final
class Delivery(Generic[_P]):
    open: bool
    before: dict[TopicPartition, _P]
    after: dict[TopicPartition, _P]
    version: int
    def begin(self) -> None: ...
    def forget(self, tp: TopicPartition) -> None: ...
    def end_at(self, tp: TopicPartition, position: _P) -> None: ...
    def consumed(self, tp: TopicPartition, position: _P) -> _P: ...

MEMORY_SHARES: int
DEFAULT_MAX_BATCH: int

class Block(weakref.ref[object]):
    size: int
    uses: int

@final
class Memory:
    limit: int
    reserved: int
    decompressed: int
    least_response: int
    has_freed: Final[bool]
    total: Final[int]
    held_by_caller: Final[int]
    used: Final[int]
    room: Final[int]
    output_room: Final[int]
    def __init__(self, limit: int) -> None: ...
    def resize(self, limit: int) -> None: ...
    def track(self, memory: object, size: int | None = None) -> Block: ...
    def acquire(self, block: Block) -> int: ...
    def release(self, block: Block) -> int: ...
    def reap_freed(self) -> int: ...
    def reserve(self, size: int) -> None: ...
    def cancel_reservation(self, size: int) -> None: ...
    def record_decompressed(self, unpacked: int) -> int: ...
    def record_response(self, size: int, expected: int) -> int: ...
    def per_request_limit(self, brokers: int) -> int: ...
    def reserve_for(self, max_bytes: int) -> int: ...
    def usage(self) -> str: ...

@final
class CompletedFetch:
    chain: Any
    topic_id: bytes | None
    block: Block | None
    decompressed_block: Block | None
    arrived_at: float
    fetch_offset: int
    data: PartitionFetch | None
    size: int
    error_code: int
    diverging_epoch: Any
    tally: Any
    records: int
    record_bytes: int
    failure: str
    failed_at: float
    corrupt_at: Any
    in_turn_queue: bool
    is_error: Final[bool]
    position: Final[int]
    def __init__(
        self,
        chain: Any,
        fetch_offset: int,
        data: PartitionFetch | None = None,
        *,
        size: int = 0,
        error_code: int = 0,
        diverging_epoch: Any = None,
        tally: Any = None,
        block: Block | None = None,
        arrived_at: float = 0.0,
        topic_id: bytes | None = None,
    ) -> None: ...
    def attach(self, data: PartitionFetch) -> None: ...
    def advance(self, taken: int, size: int) -> None: ...
    def fail(self, reason: str, now: float, corrupt_at: Any = None) -> None: ...

@disjoint_base
class BufferedChain:
    topic_partition: TopicPartition
    state: Any
    leader: Any
    position: int
    next_offset: int | None
    fetches: list[Any]
    failures: int
    failure: str
    buffered_since: float
    leader_changed: bool
    set_aside: bool
    has_room: Final[bool]
    def __init__(self, topic_partition: TopicPartition, state: Any, position: Any) -> None: ...
    def advance(self, offset: int, leader: Any) -> int: ...

@disjoint_base
class BufferQueue:
    dirty: dict[TopicPartition, None]
    chains: dict[TopicPartition, Any]
    turns: deque[Any]
    waiting: int
    paused: dict[TopicPartition, Any]
    current: Any
    finished: list[Any]
    buffered: int
    error: KafkaError | None
    memory: Final[Memory]
    has_paused: Final[bool]
    waiting_bytes: Final[int]
    def __init__(self, buffer_memory: int) -> None: ...
    def find(self, tp: TopicPartition) -> Any: ...
    def accepts(self, chain: Any, offset: int, leader: Any) -> bool: ...
    def append(self, fetch: CompletedFetch, next_offset: int | None) -> int: ...
    def unpack(self, fetch: CompletedFetch, output: object) -> None: ...
    def clear_error(self, chain: BufferedChain) -> int: ...
    def mark_dirty(self, tp: TopicPartition) -> None: ...
    def take_dirty(self) -> dict[TopicPartition, None]: ...
    def account(self, events: FetchEvents | None, now: float) -> int: ...
    def fail(self, error: KafkaError | None) -> None: ...
    def take_failure(self) -> KafkaError | None: ...
    def peek(self) -> Any: ...
    def pop(self, fetch: CompletedFetch) -> int: ...
    def requeue(self, fetch: CompletedFetch) -> None: ...
    def has_data(self) -> bool: ...
    def enqueue(self, fetch: CompletedFetch) -> int: ...
    def dequeue(self, fetch: CompletedFetch) -> int: ...
    def finish(self, fetch: CompletedFetch) -> int: ...

@final
class FoundPartition: ...

@final
class Unpacker:
    def __call__(self, output: object) -> None: ...

@final
class InFlightFetch:
    broker: Final[Any]
    max_bytes: Final[int]
    reserved: Final[int]
    sent_at: Final[float]
    full: Final[bool]
    requested: Final[Mapping[Any, Any]]
    topic_names: Final[Mapping[bytes, str]]
    leader_only: Final[bool]
    active_brokers: Final[int]
    limits: Final[Any]
    node: Final[Any]
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
        limits: Any = None,
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

@final
class RequestedPartition:
    offset: int
    chain: Final[Any]
    leader: Final[Any]
    topic_id: Final[bytes | None]
    leader_epoch: Final[int]
    def __init__(self, chain: BufferedChain, offset: int, leader: Any, topic_id: bytes | None) -> None: ...
    def differs_from(self, before: RequestedPartition | None) -> bool: ...

@disjoint_base
class SessionState:
    id: int
    epoch: int
    requested: dict[Any, RequestedPartition]
    topic_names: dict[bytes, str]
    max_bytes: int
    def __init__(self, max_bytes: int) -> None: ...

@final
class BrokerFetchState:
    responded_at: float
    node: Final[Any]
    session: Final[Any]
    chains: Final[dict[Any, Any]]
    leader_only: Final[set[Any]]
    full: Final[set[Any]]
    changed: Final[dict[Any, None]]
    ready: Final[bool]
    def __init__(self, node: Any, session: SessionState, chains: dict[Any, Any] | None = None) -> None: ...
    def move_to(self, node: Any) -> None: ...
    def mark_responded(self, now: float) -> None: ...
    def add(self, tp: Any, chain: BufferedChain) -> None: ...
    def remove(self, tp: Any) -> None: ...

@disjoint_base
class PlannerState:
    active_brokers: int
    _cluster: Any
    _changes: Any
    _buffer: Any
    _next_release: float
    _lease_end: float
    _seen: tuple[int, int]
    changed: Final[bool]
    buffer_changed: Final[bool]
    next_change: Final[float]
    def __init__(self, cluster: Any, changes: Any, buffer: BufferQueue) -> None: ...

@disjoint_base
class FetchState:
    assignment: Any
    buffer: Any
    planner: Any
    in_flight: dict[int, Any]
    expedited_offsets: dict[Any, Any]
    node_failures: dict[int, Any]
    continue_until: float
    limits: Any
    _expedited: dict[int, Any]
    _waits_for_memory: dict[int, float]
    _responded: bool
    _expedited_response: bool
    has_in_flight: Final[bool]
    needs_poll: Final[bool]
    def __init__(self, assignment: Any, buffer: BufferQueue, planner: PlannerState) -> None: ...
    def continue_to(self, until: float) -> None: ...

@disjoint_base
class RecordTaker(Generic[_R]):
    collected: Sequence[RecordRun]
    _skipped: dict[TopicPartition, Any]
    _output_left: int
    positions_advanced: bool
    out_of_memory: bool
    busy: bool
    _assignment: Final[Any]
    _changes: Final[ChangeLog[Any]]
    _delivery: Final[Delivery[Any]]
    _buffer: Final[Any]
    _metrics: Final[FetchEvents | None]
    @property
    def _batch(self) -> type[_R]: ...
    _deserializes: Final[bool]
    _auto_store: Final[bool]
    _selects: Final[bool]
    _test: Final[RecordTest | None]
    _filter: Final[Callable[[ConsumerRecord], object] | None]
    _unlocks: Final[bool]
    deferred: Final[bool]
    def __init__(
        self,
        assignment: AssignedPartitions[Any],
        delivery: Delivery[Any],
        buffer: BufferQueue,
        metrics: FetchEvents | None,
        batch: type[_R],
        *,
        deserializes: bool,
        deferred: bool,
        auto_store: bool = True,
        record_filter: RecordTest | Callable[[ConsumerRecord], object] | None = None,
    ) -> None: ...
    def passed(self) -> _R: ...
    def collect(self, max_records: int, max_bytes: int | None = None) -> _R: ...
    def _record(self, runs: list[RecordRun], moved_to: dict[TopicPartition, Any]) -> None: ...

@disjoint_base
class Wait:
    deadline: Final[float]
    promise: Final[Any]
    joining: Final[bool]
    fetching: Final[bool]
    managers: Final[bool]
    def __init__(
        self,
        deadline: float,
        promise: Any = None,
        joining: bool = False,
        fetching: bool = False,
        managers: bool = True,
    ) -> None: ...

def run(operation: Generator[Wait, None, _T], wait: Callable[[Wait], object]) -> _T: ...

@disjoint_base
class DispatcherState:
    _client: Any
    _clock: Clock
    on_woken: list[Callable[[float], None]]
    ended: int
    _waiting: list[Any]
    _failed: bool
    _error: KafkaError | None
    def __init__(self, client: Any, clock: Clock) -> None: ...
    def step(self, timeout_ms: float) -> bool: ...
    def end_step(self, ended: list[Any]) -> bool: ...

@disjoint_base
class DriverState:
    _components: Any
    _dispatcher: Any
    _receiver: Any
    _fetches_created: int
    _fetches_flushed: int
    thread_steps: int
    _clock: Clock
    next_manager_poll: float
    wakeup_requested: bool
    wakeup_enabled: bool
    @property
    def has_urgent_io(self) -> bool: ...
    @property
    def managers_due(self) -> float: ...
    def __init__(self, parts: ClientState, dispatcher: DispatcherState) -> None: ...
    def set_managers_due(self, due: float) -> None: ...
    def request_manager_poll(self) -> None: ...
    def wait(self, wait: Wait) -> None: ...
    def wait_for_activity(self, timeout_ms: float) -> bool: ...

@disjoint_base
class PollState(Generic[_R]):
    components: Any
    lock: EngineLock
    _clock: Clock
    delivery: Delivery[Any]
    driver: Any
    callbacks: Any
    interceptors: Any
    polls: PollEvents
    _closing: bool
    _last_poll_empty: bool
    _forks: Final[int]
    def __init__(
        self, parts: Any, driver: DriverState, callbacks: Any, nothing: object, max_poll_interval_ms: float
    ) -> None: ...
    def poll(self, timeout_ms: float, max_records: int, max_bytes: int | None = None) -> _R: ...
    def poll_without_wait(self, timeout_ms: float, max_records: int, max_bytes: int | None = None) -> _R | None: ...
    def wait_in_flight(self, timer: Timer) -> Wait | None: ...
    def records_of_wait(self, max_records: int, max_bytes: int | None) -> _R | None: ...
    def _group_idle(self) -> bool: ...
    def _collect(self, max_records: int, max_bytes: int | None) -> _R | None: ...
