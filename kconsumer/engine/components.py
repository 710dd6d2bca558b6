"""Creates the state, the managers and the network of a consumer, and connects them.

Share consumers have `ClientComponents`, too. Both drivers use the same components. The group protocols differ in the
membership manager, the heartbeat manager and the commit requests.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kconsumer._common.deferred_calls import DeferredCalls
from kconsumer._core.cycle import ChangeLog
from kconsumer._core.lock import ClientState, EngineLock, Section, Step
from kconsumer._internal.deferred_signals import SIGNALS
from kconsumer._internal.managers import KeepsErrors, RequestManager
from kconsumer._internal.progress import Progress, ProgressMonitor, WaitStatus
from kconsumer.assignors import Assignor
from kconsumer.config.option_groups import (
    CommitConfig,
    FetchConfig,
    FetchLimits,
    GroupRebalanceConfig,
    MetadataConfig,
    OffsetConfig,
    RetryConfig,
)
from kconsumer.config.options import ConsumerConfig
from kconsumer.coordinator.classic_protocol.classic_commits import ClassicCommitProtocol
from kconsumer.coordinator.classic_protocol.heartbeat import HeartbeatManager
from kconsumer.coordinator.classic_protocol.manager import ClassicMembership
from kconsumer.coordinator.classic_protocol.state import Member
from kconsumer.coordinator.commit_protocol import CommitProtocol
from kconsumer.coordinator.commits import CommitManager
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.coordinator.membership import AbstractHeartbeatManager, Membership
from kconsumer.coordinator.metrics import GroupMetrics
from kconsumer.engine.dispatcher import Dispatcher
from kconsumer.engine.environment import Environment
from kconsumer.engine.metrics import add_app_info
from kconsumer.engine.section import Turnstile
from kconsumer.fetching.buffer import FetchBuffer
from kconsumer.fetching.collector import Collector
from kconsumer.fetching.manager import FetchManager
from kconsumer.fetching.partition_monitor import PartitionMonitor
from kconsumer.fetching.partition_status import FetchContext
from kconsumer.metadata.manager import MetadataManager
from kconsumer.metrics.registry import Metrics
from kconsumer.metrics.reporters import Reporters
from kconsumer.net.metrics import ConnectionMetrics
from kconsumer.offsets.initial_positions import PositionsManager
from kconsumer.offsets.reset_manager import ResetManager
from kconsumer.state.assignment import Assignment
from kconsumer.state.cluster import Cluster, MetadataUpdate
from kconsumer.state.partition import PartitionState
from kconsumer.state.positions import Positions
from kconsumer.state.subscription import SubscriptionState
from kconsumer.telemetry.manager import TelemetryManager
from kconsumer.types import OffsetReset, TopicPartition

if TYPE_CHECKING:
    from kconsumer.coordinator.consumer_protocol.state import ConsumerMember
    from kconsumer.telemetry.collector import TelemetryCollector


class Group(NamedTuple):
    """The components that only a consumer with a `group_id` has."""

    member: Member | ConsumerMember
    coordinator: CoordinatorManager
    commits: CommitManager
    metrics: GroupMetrics
    membership: Membership[Any]
    heartbeat: AbstractHeartbeatManager[Any]


class Pollable(RequestManager, Protocol):
    """The manager that fetches records, which a driver polls during polls of the user."""

    @property
    def needs_poll(self) -> bool:
        """True if `poll` may return requests."""
        ...


class RecordBuffer(Protocol):
    """The data of responses that no poll has returned yet."""

    def has_data(self) -> bool:
        """Returns True if a poll would find something in the buffer."""
        ...


class ClientComponents(ClientState, ABC):
    """The state, the managers and the network of one client of any kind. Creating them does no I/O.

    `lock` guards all of them. A driver holds the lock for one step at a time. It never holds the lock while user code
    runs, except for assignors. Every step polls `managers`. A step inside poll() also polls the membership and `fetch`.
    """

    group: Group | None = None  # the membership of a consumer group
    managers: list[RequestManager]  # in the order in which they are polled
    fetch: Pollable
    buffer: RecordBuffer
    changes: ChangeLog[PartitionState]
    user_calls: DeferredCalls

    def __init__(self, config: ConsumerConfig, environment: Environment) -> None:
        rng = self._rng = environment.random_generator()
        self.config = config
        self.environment = environment
        self.clock = clock = environment.clock
        self.lock = EngineLock(environment.reentrant_lock(), SIGNALS)
        self.turnstile = Turnstile(environment.lock())  # of the lock, see `shared_calls.py`
        self.step = Step()
        self.closed = False
        self.end_wait = self._end_wait
        self.user_calls = DeferredCalls(self.lock, self._log_fields)  # log handlers, reporters: called without the lock
        self.metrics = Metrics(
            samples=config.metrics_num_samples,
            window_ms=config.metrics_sample_window_ms,
            tags=(("client-id", config.client_id),),
        )
        add_app_info(self.metrics, clock.wall_ms())
        self.cluster = Cluster()
        self.changes = ChangeLog()
        self.assignment = Assignment(self.changes)
        self.subscription = SubscriptionState(self.assignment)
        is_new, reset_new = self.subscription.initial_partitions.is_new, config.auto_offset_reset_new_partitions
        self.positions = Positions(
            self.assignment,
            config.auto_offset_reset,
            auto_store=config.enable_auto_offset_store,
            initial_reset=lambda tp: OffsetReset(reset_new) if reset_new and is_new(tp) else None,
        )
        self.client = environment.client(config, rng, ConnectionMetrics(self.metrics))
        self.metadata = MetadataManager(config.select(MetadataConfig), self.cluster, self.subscription, rng)
        self.progress = ProgressMonitor()  # of all managers
        self.dispatcher = Dispatcher(self.client, clock, config.request_timeout_ms, self.metadata.on_no_node)
        # A step may have begun long before responses are handled.
        self.dispatcher.on_woken.append(self.changes.set_now)
        self.telemetry = TelemetryManager(
            self.client.least_loaded_ready, self._make_telemetry_collector, rng, enabled=config.enable_metrics_push
        )
        self.metadata.on_update.append(self._metadata_updated)

    @abstractmethod
    def options_updated(self) -> None:
        """Use the options that `update_options` has changed."""

    @abstractmethod
    def error_sources(self) -> list[KeepsErrors]:
        """Returns the managers whose errors any call of the user must raise."""

    def position_error_sources(self) -> list[KeepsErrors]:
        """Returns the managers whose errors only calls that need a position must raise."""
        return []

    @property
    def group_protocol(self) -> str:
        """The protocol of the group: "classic", "consumer" or "share"."""
        return self.config.group_protocol

    def member_state(self) -> tuple[str, int]:
        """Returns the state of the member, and its generation or member epoch. Empty and -1 without a group."""
        return ("", -1) if self.group is None else (self.group.member.state.value, self.group.member.generation.id)

    @property
    def coordinator(self) -> CoordinatorManager | None:
        """The manager that finds the coordinator of the group, or None for a client without a group."""
        return None if self.group is None else self.group.coordinator

    def _group_progress(self) -> list[Progress]:
        """Returns the progress of the managers of the group, the causes of other waits first."""
        return []

    @property
    def heartbeat(self) -> AbstractHeartbeatManager[Any] | None:
        """The manager that leaves the group if the user does not poll, or None for a client without a group."""
        return None if self.group is None else self.group.heartbeat

    def lag_seconds(self, now: float) -> dict[TopicPartition, float]:
        """Returns the metric `records-lag-seconds` of the partitions for which it is known."""
        return {}

    @property
    def group_wait(self) -> WaitStatus | None:
        """What the member of the group waits for, or None if it does not wait or there is no group."""
        return next(filter(None, (progress.status for progress in self._group_progress())), None)

    @property
    def group_id(self) -> str | None:
        """The group of which the client is a member, or None."""
        return None if self.group is None else self.group.member.group_id

    def release_lock(self) -> None:
        """Release the lock as many times as this thread has acquired it. An interrupted step may have kept it."""
        with contextlib.suppress(RuntimeError):
            while True:
                self.lock.release()

    @property
    def member_id(self) -> str:
        """The member id, which is empty for a client that is not a member of a group."""
        return "" if self.group is None else self.group.member.generation.member_id

    def _log_fields(self) -> dict[str, str]:
        """Returns the fields of the log records of this client. Those that are empty are left out."""
        fields = {"client_id": self.config.client_id, "group": self.group_id or "", "member": self.member_id}
        return {name: value for name, value in fields.items() if value}

    def _report_metrics(self) -> None:
        """Start to report metrics. The last step of a constructor, after which there is no other metric to create."""
        if self.config.metrics_reporters:
            self.metrics.report_to(Reporters(self.config.metrics_reporters, self.clock.now, self.user_calls.call))

    def _make_telemetry_collector(self) -> TelemetryCollector:
        # Imported here, because most consumers never push metrics.
        from kconsumer.telemetry.collector import TelemetryCollector

        return TelemetryCollector(self.metrics, self._telemetry_labels, self.clock.wall_ms)

    def _telemetry_labels(self) -> dict[str, str]:
        """Returns the attributes of this consumer in telemetry (Java `ClientTelemetryProvider`)."""
        return {
            "client_rack": self.config.client_rack,
            "group_id": self.group_id or "",
            "group_instance_id": self.config.group_instance_id or "",
            "group_member_id": self.member_id,
        }

    def changing(self) -> Section:
        """Returns a context manager that holds the lock while the calling thread changes the state."""
        return Section(self, SIGNALS)

    def use_fetch_cycle(self, on_records: Callable[[], object], on_ended: Callable[[], object]) -> None:
        """Let ordinary responses to fetches be handled where they are received, if this client has such fetches."""
        return

    def set_end_wait(self, end_wait: Callable[[], None]) -> None:
        """Set the function that ends the wait of the calling thread. Any thread or signal handler may call it."""
        self.end_wait = end_wait

    def mark_closed(self) -> None:
        """Mark the consumer as closed, so that waiting calls raise StateError."""
        self.closed = True

    def _end_wait(self) -> None:
        self.client.wakeup()

    def _metadata_updated(self, update: MetadataUpdate) -> None:
        self.share_nodes()
        if update.recreated:
            self.positions.forget_epochs(update.recreated)
        if self.subscription.has_pattern:
            self.subscription.update_matched(self.cluster, exclude_internal=self.config.exclude_internal_topics)

    def rebootstrap_if_wanted(self) -> None:
        """Connect to `bootstrap_servers` again if the metadata or a broker requires it (KIP-899, KIP-1102)."""
        if self.metadata.needs_rebootstrap or self.client.needs_rebootstrap:
            self.client.rebootstrap(close_connections=True)
            self.metadata.rebootstrapped()

    def share_nodes(self) -> None:
        """Pass the addresses of all brokers, including the coordinator, to the network client.

        The coordinator may be found before the first metadata arrives, or before the first after a rebootstrap. Then
        the bootstrap servers stay in the list: if it contained only the coordinator and that broker died, no request
        could reach another broker.
        """
        nodes = dict(self.cluster.nodes) or {node.id: node for node in self.client.bootstrap_nodes()}
        found = None if self.coordinator is None else self.coordinator.coordinator
        if found is not None:
            nodes.setdefault(found.id, found)
        self.client.set_nodes(nodes.values(), self.cluster.cluster_id)


class Components(ClientComponents):
    """The components of a consumer."""

    fetch: FetchManager
    buffer: FetchBuffer

    def __init__(
        self,
        config: ConsumerConfig,
        environment: Environment,
        assignors: Collection[Assignor],
        *,
        deferred: bool = False,
    ) -> None:
        """Create the components without I/O. If `deferred` is True, the engine runs the deserializers after a poll."""
        super().__init__(config, environment)
        clock, rng = self.clock, self._rng
        self.group = self._make_group(config.group_id, assignors)
        offset_config = config.select(OffsetConfig)
        self.offsets = ResetManager(offset_config, self.cluster, self.positions, self.metadata, clock.wall_ms, rng)
        commits = self.group.commits if self.group else None
        self.initial_positions = PositionsManager(offset_config, self.cluster, self.positions, commits, rng)
        self.buffer = FetchBuffer(config.buffer_memory)
        fetch_config = config.select(FetchConfig)
        self.fetch = FetchManager(
            fetch_config,
            config.select(FetchLimits),
            self.cluster,
            self.subscription,
            self.metadata,
            self.buffer,
            clock.wall_ms,
            self.metrics,
            rng,
        )
        self.collector = Collector(
            fetch_config,
            self.positions,
            self.buffer,
            None if deferred else config.key_deserializer,
            None if deferred else config.value_deserializer,
            rng,
            deferred=deferred,
            metrics=self.fetch.events,
        )
        self.managers = self._managers()
        self._report_metrics()

    def options_updated(self) -> None:
        self.fetch.configure(self.config.select(FetchLimits))
        self.buffer.memory.resize(self.config.buffer_memory)

    def use_fetch_cycle(self, on_records: Callable[[], object], on_ended: Callable[[], object]) -> None:
        self.fetch.use_cycle(self.lock, on_records, on_ended)

    def _make_group(self, group_id: str | None, assignors: Collection[Assignor]) -> Group | None:
        if group_id is None:
            return None
        coordinator = CoordinatorManager(self.config.select(RetryConfig), group_id, self._rng)
        if self.config.group_protocol == "classic":
            group = self._make_classic_group(group_id, coordinator, assignors)
        else:
            group = self._make_consumer_group(group_id, coordinator)
        group.metrics.watch_assignment(self.assignment.assigned)
        coordinator.on_found.append(self._coordinator_found)
        return group

    def _make_classic_group(
        self, group_id: str, coordinator: CoordinatorManager, assignors: Collection[Assignor]
    ) -> Group:
        config = self.config.select(GroupRebalanceConfig)
        member = Member(group_id, self.config.group_instance_id)
        metrics = GroupMetrics(self.metrics)
        commits = self._make_commits(ClassicCommitProtocol(member), coordinator, metrics)
        heartbeat = HeartbeatManager(config, member, coordinator, metrics, self._rng)
        membership = ClassicMembership(
            config,
            member,
            self.cluster,
            self.subscription,
            self.metadata,
            coordinator,
            commits,
            heartbeat,
            tuple(assignors),
            metrics,
            self._rng,
        )
        return Group(member, coordinator, commits, metrics, membership, heartbeat)

    def _make_consumer_group(self, group_id: str, coordinator: CoordinatorManager) -> Group:
        # Consumers of the classic protocol do not load these modules.
        from uuid import UUID

        from kconsumer.coordinator.consumer_protocol.consumer_commits import ConsumerCommitProtocol
        from kconsumer.coordinator.consumer_protocol.manager import ConsumerMembership
        from kconsumer.coordinator.consumer_protocol.state import ConsumerMember
        from kconsumer.coordinator.consumer_protocol.topic_names import TopicNames

        member_id = str(UUID(int=self._rng.getrandbits(128), version=4))
        member = ConsumerMember(group_id, self.config.group_instance_id, member_id)
        metrics = GroupMetrics(self.metrics, joins=False)
        protocol = ConsumerCommitProtocol(member, self.cluster, self.assignment, self.metadata)
        commits = self._make_commits(protocol, coordinator, metrics)
        membership = ConsumerMembership(
            self.config.select(GroupRebalanceConfig),
            member,
            self.subscription,
            self.metadata,
            coordinator,
            commits,
            TopicNames(self.cluster, self.metadata),
            metrics,
            self._rng,
        )
        return Group(member, coordinator, commits, metrics, membership, membership.heartbeat)

    def _make_commits(
        self, protocol: CommitProtocol, coordinator: CoordinatorManager, metrics: GroupMetrics
    ) -> CommitManager:
        return CommitManager(
            self.config.select(CommitConfig),
            protocol,
            self.subscription,
            self.positions,
            coordinator,
            metrics,
            self._rng,
        )

    def _managers(self) -> list[RequestManager]:
        """Returns the managers in the order in which they are polled."""
        group = self.group
        if group is None:
            managers: list[RequestManager] = [self.metadata, self.initial_positions, self.offsets]
        else:
            managers = [
                self.metadata,
                group.heartbeat,
                self.initial_positions,
                group.commits,
                self.offsets,
                group.coordinator,
            ]
        self.progress.watch(self.metadata.progress, self.metadata.lookups, *self._group_progress())
        self.progress.watch(self.initial_positions.progress, self.offsets.progress, self.offsets.validations)
        unusual = partial(self.fetch.unusual, self.client.is_healthy)
        return [*managers, self.progress, PartitionMonitor(self.assignment, unusual, self.fetch_context)]

    def fetch_context(self, tp: TopicPartition, state: PartitionState, now: float) -> FetchContext:
        """Returns the state of an assigned partition, for the rules of `partition_status`."""
        found = self.fetch.context(tp, state, now)
        node = "" if found.node is None else str(found.node.id)
        coordinator = ""
        if self.group is not None and self.group.coordinator.connection_id is None:
            coordinator = f"the coordinator is {self.group.coordinator.describe()}"
        elif self.initial_positions.last_error is not None:
            coordinator = str(self.initial_positions.last_error)
        return found._replace(
            topic_problem=self.metadata.topic_errors.problem_with(tp),
            unreachable=self.client.last_error(node, now),
            throttled_ms=self.client.throttled_ms(node, now),
            coordinator=coordinator,
        )

    def lag_seconds(self, now: float) -> dict[TopicPartition, float]:
        return self.fetch.lag_seconds(now)

    def _group_progress(self) -> list[Progress]:
        group = self.group
        return [] if group is None else [group.coordinator.progress, group.heartbeat.progress, *group.commits.progress]

    def _coordinator_found(self, now: float) -> None:
        self.share_nodes()
        assert self.group is not None
        self.group.heartbeat.reset_session_timer(now)

    def error_sources(self) -> list[KeepsErrors]:
        group = self.group
        if group is None:
            return [self.metadata]
        return [
            self.metadata,
            group.coordinator,
            group.heartbeat,
            group.membership,
            group.commits,
        ]

    def position_error_sources(self) -> list[KeepsErrors]:
        """Returns the managers whose errors only calls that need a position must raise.

        end_offsets() must work after a log truncation.
        """
        return [self.offsets, self.initial_positions]
