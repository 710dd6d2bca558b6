"""Creates the state, the managers and the network of a share consumer, and connects them."""

from __future__ import annotations

from uuid import UUID

from kconsumer._internal.managers import KeepsErrors
from kconsumer._internal.progress import Progress
from kconsumer.config.option_groups import GroupRebalanceConfig, RetryConfig, ShareConfig
from kconsumer.config.options import ConsumerConfig
from kconsumer.coordinator.consumer_protocol.topic_names import TopicNames
from kconsumer.coordinator.lookup import CoordinatorManager
from kconsumer.engine.components import ClientComponents
from kconsumer.engine.environment import Environment
from kconsumer.share.buffer import ShareBuffer
from kconsumer.share.collector import ShareCollector
from kconsumer.share.manager import ShareManager
from kconsumer.share.member import ShareMember
from kconsumer.share.membership import ShareMembership
from kconsumer.share.metrics import ShareGroupMetrics, ShareMetrics


class ShareComponents(ClientComponents):
    """The components of one share consumer. Creating them does no I/O."""

    fetch: ShareManager
    buffer: ShareBuffer

    def __init__(self, config: ConsumerConfig, environment: Environment, group_id: str) -> None:
        super().__init__(config, environment)
        rng = self._rng
        self.member = ShareMember(group_id, str(UUID(int=rng.getrandbits(128), version=4)))
        self._lookup = CoordinatorManager(config.select(RetryConfig), group_id, rng)
        self._lookup.on_found.append(lambda _now: self.share_nodes())
        self.membership = ShareMembership(
            config.select(GroupRebalanceConfig),
            self.member,
            self.subscription,
            self._lookup,
            TopicNames(self.cluster, self.metadata),
            ShareGroupMetrics(self.metrics),
            rng,
        )
        share_config = config.select(ShareConfig)
        metrics = ShareMetrics(self.metrics)
        self.buffer = ShareBuffer(metrics)
        self.fetch = ShareManager(
            share_config, self.member, self.cluster, self.subscription, self.metadata, self.buffer, metrics, rng
        )
        self.collector = ShareCollector(config, self.buffer, metrics)
        self.progress.watch(self.metadata.progress, self.metadata.lookups, *self._group_progress())
        self.progress.watch(self.fetch.progress)
        self.managers = [self.metadata, self.membership, self._lookup, self.fetch, self.progress]
        self._report_metrics()

    def options_updated(self) -> None:
        self.fetch.configure(self.config.select(ShareConfig))

    @property
    def group_protocol(self) -> str:
        return "share"

    def member_state(self) -> tuple[str, int]:
        return self.member.state.value, self.member.member_epoch

    @property
    def coordinator(self) -> CoordinatorManager:
        return self._lookup

    @property
    def heartbeat(self) -> ShareMembership:
        return self.membership

    def _group_progress(self) -> list[Progress]:
        return [self._lookup.progress, self.membership.progress]

    @property
    def group_id(self) -> str:
        return self.member.group_id

    @property
    def member_id(self) -> str:
        return self.member.member_id

    def error_sources(self) -> list[KeepsErrors]:
        return [
            self.metadata,
            self._lookup,
            self.membership,
            self.fetch,
        ]
