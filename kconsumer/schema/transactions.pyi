# Written by `python -m kconsumer.schema.stubs`; the tables are in transactions.py.

from kconsumer.schema.dsl import Api, Message

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        enable2_pc: bool = ...,
        keep_prepared_txn: bool = ...,
    ) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        ongoing_txn_producer_id: int = ...,
        ongoing_txn_producer_epoch: int = ...,
    ) -> None: ...

INIT_PRODUCER_ID: Api

class AddPartitionsToTxnTopic(Message):
    name: str
    partitions: list[int]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: list[int] = ...,
    ) -> None: ...

class AddPartitionsToTxnTransaction(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        verify_only: bool = ...,
        topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(Message):
    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int
    partition_error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        partition_error_code: int = ...,
    ) -> None: ...

class AddPartitionsToTxnTopicResult(Message):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]
    def __init__(
        self,
        *,
        name: str = ...,
        results_by_partition: list[AddPartitionsToTxnPartitionResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnResult(Message):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        topic_results: list[AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: list[AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...

ADD_PARTITIONS_TO_TXN: Api

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
    ) -> None: ...

ADD_OFFSETS_TO_TXN: Api

class TxnOffsetCommitRequestPartition(Message):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class TxnOffsetCommitRequestTopic(Message):
    name: str
    topic_id: bytes
    partitions: list[TxnOffsetCommitRequestPartition]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partitions: list[TxnOffsetCommitRequestPartition] = ...,
    ) -> None: ...

class TxnOffsetCommitRequest(Message):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...

class TxnOffsetCommitResponsePartition(Message):
    partition_index: int
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
    ) -> None: ...

class TxnOffsetCommitResponseTopic(Message):
    name: str
    topic_id: bytes
    partitions: list[TxnOffsetCommitResponsePartition]
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        partitions: list[TxnOffsetCommitResponsePartition] = ...,
    ) -> None: ...

class TxnOffsetCommitResponse(Message):
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[TxnOffsetCommitResponseTopic] = ...,
    ) -> None: ...

TXN_OFFSET_COMMIT: Api

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
    ) -> None: ...

class EndTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
    ) -> None: ...

END_TXN: Api
