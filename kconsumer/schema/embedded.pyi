# Written by `python -m kconsumer.schema.stubs`; the tables are in embedded.py.

from kconsumer.schema.dsl import Message

PROTOCOL_TYPE: str

HIGHEST_VERSION: int

class TopicPartitions(Message):
    topic: str
    partitions: list[int]
    def __init__(
        self,
        *,
        topic: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[TopicPartitions]
    generation_id: int
    rack_id: str | None
    def __init__(
        self,
        *,
        topics: list[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: list[TopicPartitions] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
    ) -> None: ...

class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartitions]
    user_data: bytes | None
    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartitions] = ...,
        user_data: bytes | None = ...,
    ) -> None: ...
