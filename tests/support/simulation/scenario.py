"""Scenarios: what a simulated run contains, as data that can be generated from a seed, shrunk, and printed.

The `repr` of a scenario is Python code that creates it again. `generate.py` draws scenarios.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

HOUR_MS = 3_600_000.0
MINUTE_MS = 60_000.0
STABLE_TOPICS = ("t", "u")
VOLATILE_TOPIC = "v"


class Program(enum.Enum):
    """What the application of a member does. The value describes it."""

    AUTO_COMMIT = "polls and processes"
    SLOW = "processes slowly, sometimes longer than max_poll_interval_ms"
    COMMIT = "commits each batch and waits"
    COMMIT_ASYNC = "commits each batch without waiting"
    COMMIT_IN_CALLBACK = "commits in on_revoke"
    SEEK_BACK = "seeks back to the committed offset now and then, as after a failed batch"
    PAUSE = "pauses and resumes partitions"
    RAISE_IN_CALLBACK = "raises exceptions in rebalance callbacks, sometimes for several seconds"
    REOPEN = "closes its consumer now and then, and opens another one"
    CHANGE_PROTOCOL = "closes its consumer now and then, and opens one with the other group protocol"
    RESUBSCRIBE = "unsubscribes and subscribes now and then"
    ITERATE = "iterates record by record, and leaves the loop in the middle of a batch"
    CLOSE_IN_CALLBACK = "closes its consumer now and then in the callback of an auto-commit, and opens another one"
    SLOW_DESERIALIZER = "has a deserializer that sometimes takes longer than the session timeout"
    RAISE_IN_PLUGIN = "has a deserializer and an interceptor that sometimes raise exceptions"
    INTERRUPT = "is interrupted by signals now and then, as by Ctrl-C, and continues; unsubscribes and subscribes, too"
    CHANGE_TOPICS = "subscribes to other topics or to a pattern now and then"
    SEEK_TO_ENDS = "calls seek_to_end and seek_to_beginning now and then"
    UPGRADE = "changes from range to cooperative-sticky in two steps, by closing its consumer and opening another one"
    WAKE_UP = "is woken up by another thread now and then, while it polls or fetches committed offsets"
    CLOSE_IN_HANDLER = "commits some batches, and closes its consumer now and then in a signal handler"
    READ_ALONE = "reads all partitions without a group, and takes longer than the request timeout now and then"
    CANCEL = "cancels polls, commits and unsubscribe() of its AsyncConsumer now and then"
    PARALLEL = "processes records by `kconsumer.parallel`, in one run after the other"
    CALLS = "polls records or columns, and makes random other calls between two polls"
    STORE = "processes records in any order, and stores them with store_offsets for the auto-commits"

    def __repr__(self) -> str:
        return f"Program.{self.name}"


class FaultKind(enum.Enum):
    """What goes wrong. The value describes it."""

    KILL_BROKER = "a broker stops, and starts again at the end"
    MOVE_LEADERS = "the leaders of some partitions move"
    BLOCK = "packets between a member and a broker are held back"
    CUT_OFF = "packets between a member and all brokers are held back"
    SUSPEND = "the process of a member does not run"
    CRASH = "the process of a member ends; it starts again at the end"
    RESET = "the connections of a member are reset"
    SLOW_NETWORK = "all packets take longer"
    ERROR = "the next requests of an API fail with an error code"
    DISCONNECT = "a broker closes the connection instead of processing the next requests of an API"
    DISCONNECT_AFTER = "a broker processes the next requests of an API, and closes the connection instead of responding"
    INTERRUPT_BROKER = "a broker does not receive or send anything"
    ADD_PARTITIONS = "the topic gets another partition"
    REFUSE = "all requests of an API fail with an error code"
    SLOW_REQUESTS = "the responses of an API take several seconds"
    CLOSE_AT_FIRST_REQUEST = "the brokers close connections at the first request, as a load balancer without targets"
    WRONG_PASSWORD = "the brokers refuse the password of the members"
    DELETE_RECORDS = "the records of some partitions are deleted, those that no member has read, too"
    LOSE_RECORDS = "the volatile topic loses its last records in unclean elections of leaders"
    RECREATE_TOPIC = "the volatile topic is deleted, and created again at the end"
    PENDING_OFFSETS = "a transaction with offsets of the group is open"
    TWIN = "a second process uses the group_instance_id of a member"
    CLOSE_IN_HANDSHAKE = "the brokers close connections in the TLS handshake, as a load balancer without targets"

    def __repr__(self) -> str:
        return f"FaultKind.{self.name}"


@dataclass(frozen=True)
class Workers:
    """How a member with the program PARALLEL processes records: arguments of `process`, and what its handler does."""

    order: str = "key"
    executor: str = "threads"
    number: int = 4
    max_in_flight: int = 100
    on_revoke: str = "drain"
    drain_timeout_s: float = 10.0
    commit_interval_s: float = 1.0
    failing: float = 0.05  # the share of attempts that raise
    slow: float = 0.01  # the share of attempts that take up to `slow_ms`
    slow_ms: float = 8_000.0
    batch: tuple[int, float] | None = None  # the arguments of a Batch
    run_ms: float = 5 * MINUTE_MS  # the mean time of a run; another one follows on the same consumer


@dataclass(frozen=True)
class Member:
    """One process that runs one consumer after the other."""

    program: Program
    engine: str = "classic"  # the option `engine`, only for the classic protocol; or "asyncio": an AsyncConsumer
    protocol: str = "classic"  # the option `group_protocol`
    assignor: str = "cooperative-sticky"
    static: bool = False  # the consumer has a group_instance_id
    start_ms: float = 0.0
    stop_ms: float | None = None  # the consumer is closed then; None: at the end of the run
    workers: Workers = Workers()  # of the program PARALLEL


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, from `at_ms` on for `duration_ms`."""

    kind: FaultKind
    at_ms: float
    duration_ms: float = 0.0
    member: int = 0  # the index of the member
    broker: int = 1  # the id of the broker
    number: int = 0  # which API or how many partitions, depending on the kind

    @property
    def ends_ms(self) -> float:
        """When the fault ends. Some kinds need a minimum of time."""
        return self.at_ms + max(self.duration_ms, MIN_DURATIONS_MS.get(self.kind, 0.0))

    @property
    def settled_ms(self) -> float:
        """When the members know that the fault has ended."""
        return self.ends_ms + SETTLING_MS.get(self.kind, 0.0)


# A fault of requests waits this long for them, and a replica without replication leaves the in-sync replicas.
MIN_DURATIONS_MS = {
    FaultKind.ERROR: 15_000.0,
    FaultKind.DISCONNECT: 15_000.0,
    FaultKind.DISCONNECT_AFTER: 15_000.0,
    FaultKind.REFUSE: 15_000.0,
    FaultKind.SLOW_REQUESTS: 15_000.0,
    FaultKind.CLOSE_AT_FIRST_REQUEST: 15_000.0,
    FaultKind.CLOSE_IN_HANDSHAKE: 15_000.0,
    FaultKind.WRONG_PASSWORD: 15_000.0,
    FaultKind.PENDING_OFFSETS: 15_000.0,
    FaultKind.LOSE_RECORDS: 40_000.0,
    FaultKind.TWIN: 30_000.0,
}
# Members refresh their metadata every five minutes, and the fenced member waits before it opens another consumer.
SETTLING_MS = {
    FaultKind.ADD_PARTITIONS: 5 * MINUTE_MS,
    FaultKind.RECREATE_TOPIC: 5 * MINUTE_MS,
    FaultKind.TWIN: 2 * MINUTE_MS,
}


@dataclass(frozen=True)
class Scenario:
    """One run. `seed` decides about everything that is not a field: delays, values, the order of tasks."""

    seed: int
    members: tuple[Member, ...]
    faults: tuple[Fault, ...] = ()
    duration_ms: float = HOUR_MS
    brokers: int = 3
    partitions: int = 6
    record_interval_ms: float = 10_000.0  # the mean time between two appends
    fetch_max_wait_ms: int = 10_000
    session_timeout_ms: int = 45_000
    release: str = "4.4"
    transactions: bool = False  # some records are written in transactions, and members read with read_committed
    topics: int = 1  # how many topics have `partitions` partitions
    volatile: bool = False  # there is one more topic, which may lose records, and be deleted and created again
    sasl: str = ""  # the mechanism; "": clients do not authenticate
    max_callback_ms: float = 2_000.0  # how long rebalance callbacks take at most
    # The option auto_offset_reset. If it is latest, only new partitions have no committed offset, and members read them
    # from the beginning, with auto_offset_reset_new_partitions.
    reset: str = "earliest"
    tls: bool = False  # connections begin with a TLS handshake, which is simulated by two packets
    compressed: bool = False  # records are large, and compressed by more than a factor of 64
    api_timeout_ms: int = 60_000  # the option default_api_timeout_ms
    keys: int = 0  # records have one of this many keys, or none; 0: they have no keys
    filtered: bool = False  # members drop some of the records with record_filter
    window_bytes: int = 0  # a broker sends this many bytes before the client must read some; 0: no limit

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics to which members subscribe."""
        return STABLE_TOPICS[: self.topics] + ((VOLATILE_TOPIC,) if self.volatile else ())

    def has_wrong_password(self, now: float) -> bool:
        """Returns True if a fault may let brokers refuse the password of the members now."""
        return any(
            fault.kind is FaultKind.WRONG_PASSWORD
            and fault.at_ms <= now <= fault.settled_ms + 2 * self.session_timeout_ms
            for fault in self.faults
        )

    @property
    def has_both_protocols(self) -> bool:
        """True if members have different group protocols, or change theirs."""
        changes = any(member.program is Program.CHANGE_PROTOCOL for member in self.members)
        return changes or len({member.protocol for member in self.members}) > 1
