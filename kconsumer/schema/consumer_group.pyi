# Written by `python -m kconsumer.schema.stubs`; the tables are in consumer_group.py.

from kconsumer.schema.dsl import Api, Message

class ConsumerGroupHeartbeatTopicPartitions(Message):
    topic_id: bytes
    partitions: list[int]
    def __init__(
        self,
        *,
        topic_id: bytes = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatAssignment(Message):
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions]
    def __init__(
        self,
        *,
        topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatAssignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatAssignment | None = ...,
    ) -> None: ...

CONSUMER_GROUP_HEARTBEAT: Api
