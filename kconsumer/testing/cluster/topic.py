"""Topics and partitions: the replicas of a partition, its leader, and how much of the log each replica has.

A partition has one log, which all its replicas share. For a replica that was stopped, the partition stores the offset
at which this replica's copy of the log ends. If such a replica becomes the leader, the log is truncated to that offset.
`replication.py` decides which replicas lead and which are in sync.
"""

from __future__ import annotations

from collections.abc import Mapping

from kconsumer.testing.cluster.log import AppendResult, Log
from kconsumer.testing.cluster.producers import Producers
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS
from kconsumer.testing.cluster.stored_batch import recompressed
from kconsumer.testing.cluster.topic_configs import normalized
from kconsumer.testing.records import CODECS

NO_LEADER = -1
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


class Partition:
    """One partition of a topic."""

    def __init__(self, topic: Topic, index: int, replicas: list[int]) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas  # ids of brokers; the first one is the preferred leader
        self.isr = list(replicas)
        self.elr: list[int] = []  # the eligible leader replicas (KIP-966): out of sync, but with all replicated records
        self.leader = replicas[0]  # or NO_LEADER
        self.leader_epoch = 0
        self.leader_epoch_start = 0  # the end of the log when the leader was elected
        self.log = Log(topic.configs)
        self.log.epochs.assign(0, 0)
        self.producers = Producers(self.log)
        self.stopped: dict[int, int] = {}  # the log end offset of each replica that does not replicate

    # --- records ---

    def append(self, data: bytes, wall_ms: int) -> AppendResult:
        """Store produced batches, and replicate them to the replicas that are running.

        Raises ValueError if the bytes are not whole batches.
        """
        by_broker = self.topic.configs["message.timestamp.type"] == "LogAppendTime"
        codec = self.topic.configs["compression.type"]
        if codec != "producer":
            data = recompressed(data, CODECS["none" if codec == "uncompressed" else codec])
        result = self.log.append(data, self.leader_epoch, wall_ms, by_broker)
        self.advance_high_watermark()
        return result

    def append_stored(self, data: bytes, wall_ms: int = 0) -> None:
        """Store batches as they are, with their own offsets and leader epochs, and replicate them.

        Raises ValueError if an offset is below the end of the log.
        """
        self.log.append_stored(data, wall_ms)
        self.advance_high_watermark()

    @property
    def min_isr(self) -> int:
        """How many replicas must be in sync so that the high watermark advances and acks=all succeeds."""
        return min(int(self.topic.configs["min.insync.replicas"]), len(self.replicas))

    def end_offset_on(self, broker_id: int) -> int:
        """Returns the log end offset of a replica."""
        return self.stopped.get(broker_id, self.log.end)

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to the smallest log end offset of the in-sync replicas.

        Does nothing if the partition has no leader, or if fewer than `min_isr` replicas are in sync.
        """
        if self.leader != NO_LEADER and len(self.isr) >= self.min_isr:
            replicated = min(map(self.end_offset_on, self.isr))
            self.log.set_high_watermark(max(self.log.high_watermark, replicated))

    # --- replicas ---

    def stop_replica(self, broker_id: int) -> None:
        """Let a replica stop replicating. It stays in sync until `remove_from_isr`."""
        self.stopped.setdefault(broker_id, self.log.end)

    def resume_replica(self, broker_id: int) -> None:
        """Let a replica catch up with the leader and be in sync again."""
        self.stopped.pop(broker_id, None)
        if broker_id not in self.isr:
            self.set_isr([*self.isr, broker_id])
        self.advance_high_watermark()

    def remove_from_isr(self, broker_id: int) -> None:
        """Remove a replica from the in-sync replicas, unless it is the last one."""
        if broker_id in self.isr and len(self.isr) > 1:
            self.set_isr([node for node in self.isr if node != broker_id])
            self.advance_high_watermark()

    def set_isr(self, isr: list[int]) -> None:
        """Set the in-sync replicas.

        If they are fewer than `min_isr`, the removed replicas become eligible leader replicas.
        """
        eligible = [*self.elr, *self.isr] if len(isr) < self.min_isr else []
        self.isr = [node for node in self.replicas if node in isr]
        self.elr = [node for node in self.replicas if node in eligible and node not in isr]

    def elect(self, leader: int) -> None:
        """Make `leader` the leader and increase the leader epoch by one. With NO_LEADER, the partition has no leader.

        Truncates the log to the log end offset of the new leader. If the new leader was not in sync, it becomes the
        only in-sync replica.
        """
        self.leader = leader
        self.leader_epoch += 1
        if leader != NO_LEADER:
            end = self.stopped.pop(leader, self.log.end)
            if leader not in self.isr:
                self.set_isr([leader])
            self.stopped = {node: min(known, end) for node, known in self.stopped.items()}
            self.log.truncate(end)
            self.leader_epoch_start = end
            self.log.epochs.assign(self.leader_epoch, end)
            self.advance_high_watermark()
        self.log.notify()

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index}, leader {self.leader}, epoch {self.leader_epoch}>"


class Topic:
    """A topic: its id, its settings, and its partitions."""

    def __init__(self, name: str, topic_id: bytes, configs: Mapping[str, str], *, internal: bool = False) -> None:
        self.name = name
        self.id = topic_id
        self.configs = {**TOPIC_DEFAULTS, **{name: normalized(name, value) for name, value in configs.items()}}
        self.explicit_configs = set(configs)  # the names of those that do not have their defaults
        self.internal = internal
        self.partitions: list[Partition] = []

    def set_config(self, name: str, value: str | None) -> None:
        """Change a setting. None restores its default."""
        if value is not None:
            self.configs[name] = normalized(name, value)
            self.explicit_configs.add(name)
            return
        self.explicit_configs.discard(name)
        if name in TOPIC_DEFAULTS:
            self.configs[name] = TOPIC_DEFAULTS[name]
        else:
            self.configs.pop(name, None)  # the deletion of an unknown setting is no error

    def __repr__(self) -> str:
        return f"<Topic {self.name}, {len(self.partitions)} partitions>"
