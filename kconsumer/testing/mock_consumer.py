"""`MockConsumer`: a `Consumer` for unit tests, without brokers, sockets, threads and waiting.

A test adds records, assigns partitions and injects errors. All other methods are those of `Consumer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack, overload

from kconsumer._client.consumer_base import P, Partition
from kconsumer._client.offset_arguments import seek_target, topic_partition
from kconsumer.config.options import ConsumerConfig
from kconsumer.consumer import Consumer
from kconsumer.engine.access_guard import guarded
from kconsumer.testing.mock_engine import MockEngine
from kconsumer.types import K, OffsetAndMetadata, TopicPartition, V

if TYPE_CHECKING:
    from kconsumer.assignors import Assignor
    from kconsumer.config.signature import MockOptions


class MockConsumer(Consumer[K, V]):
    """A `Consumer` that reads what a test adds, and commits to its own memory (Java `MockConsumer`).

    It has the options, methods, results and errors of `Consumer`. It differs in this:

    - The test decides the assignment with `rebalance`, after `subscribe`. No method joins a group.
    - No call waits. A poll that finds no record advances a virtual clock by its timeout and returns, so that
      `auto_commit_interval_ms` and `consumer_timeout_ms` work without delay. A loop over the consumer waits without end
      for further records, as that of a `Consumer`: set `consumer_timeout_ms`, or end it with `schedule`, `raise_next`
      or `wakeup`.
    - Deserializers do not run: a record has the key and value that the test gave it.
    - The group has no other members, and commits always succeed.

    >>> with MockConsumer(auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     consumer.add_records(("orders", 0), ["first", "second"])
    ...     [record.value for record in consumer.poll()]
    ['first', 'second']
    """

    _engine: MockEngine

    @overload
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = ...,
        group_id: str | None = ...,
        **options: Unpack[MockOptions],
    ) -> None: ...
    @overload  # for `**options` of a dict, as in Consumer
    def __init__(self, *topics: str, _in_a_dict: Any, **options: Any) -> None: ...
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "mock:9092",
        group_id: str | None = None,
        **options: Any,
    ) -> None:
        self._set_up(ConsumerConfig(bootstrap_servers=bootstrap_servers, group_id=group_id, **options), topics)

    def _create_engine(self, config: ConsumerConfig, loaded: Sequence[Assignor]) -> MockEngine:
        return MockEngine(config, loaded)

    def _next_batch(self) -> bool:
        with self._engine.looping(endless=self._config.consumer_timeout_ms is None):
            return super()._next_batch()

    # --- what the consumer reads -----------------------------------------------------------------------------------

    @guarded
    def add_records(self, tp: Partition, records: Iterable[object]) -> None:
        """Append records to a partition. They stay there, so that `seek` can go back.

        Each of the `records` is a ConsumerRecord, or any other object, which becomes the value of a record at the next
        offset. Raises ValueError for a record of another partition, and for an offset below the end of the partition.
        """
        log = self._engine.broker.log(topic_partition(tp))
        for record in records:
            log.add(record)
        self._engine.match_pattern()

    @guarded
    def update_beginning_offsets(self, offsets: Mapping[P, SupportsIndex]) -> None:
        """Set the first offset of partitions. Records below it are deleted, as after their retention time."""
        for tp, offset in offsets.items():
            self._engine.broker.log(topic_partition(tp)).set_beginning(seek_target(offset).offset)
        self._engine.match_pattern()

    @guarded
    def update_end_offsets(self, offsets: Mapping[P, SupportsIndex]) -> None:
        """Set the end offset of partitions, for example to test a lag. Records at or above it are deleted."""
        for tp, offset in offsets.items():
            self._engine.broker.log(topic_partition(tp)).set_end(seek_target(offset).offset)
        self._engine.match_pattern()

    # --- what happens to the consumer ------------------------------------------------------------------------------

    @guarded
    def schedule(self, call: Callable[[], object]) -> None:
        """Run `call` at the beginning of the next poll. If several calls are scheduled, each poll runs one."""
        if not callable(call):
            raise TypeError(f"schedule() takes a callable without arguments, not {call!r}")
        self._engine.scheduled.append(call)

    @guarded
    def raise_next(self, error: BaseException) -> None:
        """Make the next poll raise `error`. If there are several errors, each poll raises one."""
        if not isinstance(error, BaseException):
            raise TypeError(f"raise_next() takes an exception object, not {error!r}")
        self._engine.errors.append(error)

    @guarded
    def rebalance(self, partitions: Iterable[Partition], *, lost: bool = False) -> None:
        """Assign `partitions`, and call the rebalance listener. The consumer must be subscribed to their topics.

        If auto-commit is enabled, commits first. With the eager protocol, on_revoke gets all partitions of the old
        assignment, and on_assign all of the new one. With a cooperative assignor or `group_protocol="consumer"`,
        on_revoke gets only the partitions that are removed, and on_assign only those that are added.

        With `lost`, nothing is committed, on_lost gets all partitions of the old assignment in place of on_revoke, and
        on_assign gets all of the new one.

        If a callback raises an exception, the remaining steps are done, and the first exception is raised at the end.
        Raises StateError without a subscription, and ValueError for a topic that is not subscribed.
        """
        chosen = [topic_partition(tp) for tp in partitions]
        self._rewind()
        self._engine.rebalance(chosen, lost=lost)

    def committed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns all committed offsets of the group. Works after close(), too."""
        return dict(self._engine.broker.committed)
