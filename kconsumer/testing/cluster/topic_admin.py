"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kconsumer._common.error_codes import Errors
from kconsumer.schema.dsl import ZERO_UUID
from kconsumer.schema.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kconsumer.testing.cluster.acls import TOPIC
from kconsumer.testing.cluster.authorizer import ERRORS
from kconsumer.testing.cluster.metadata import legal_name
from kconsumer.testing.cluster.requests import Request, handles
from kconsumer.testing.cluster.settings import TOPIC_DEFAULTS
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.topic import NO_LEADER, Topic
from kconsumer.testing.cluster.topic_configs import config_error

BROKERS_DECIDE = -1  # in place of a number of partitions or replicas (KIP-464)
HIGH_WATERMARK = -1  # the offset by which DeleteRecords deletes all replicated records
FIRST_WITH_CONFIGS, FIRST_WITH_STATES, FIRST_WITH_TOPIC_ID = 5, 6, 7  # versions of CreateTopics and DeleteTopics
MAX_NEW_PARTITIONS = 10_000  # of one request
TOO_MANY_PARTITIONS = "The request has too many partitions."
DEFAULT_CONFIG, TOPIC_CONFIG = 5, 1  # sources of a setting


class AdminError(Exception):
    """Raised if a change of a topic is refused. `code`: the error code of the response row."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_name(cluster: ClusterState, name: str) -> None:
    """Raise AdminError if a topic name is not valid, or if a topic with this name exists.

    As in Kafka, `.` and `_` count as the same character when names are compared.
    """
    if not isinstance(name, str) or not legal_name(name):
        raise AdminError(Errors.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name!r}")
    if name in cluster.topics:
        raise AdminError(Errors.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    alike = name.replace(".", "_")
    other = next((known for known in cluster.topics if known.replace(".", "_") == alike), None)
    if other is not None:
        raise AdminError(Errors.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with '{other}'.")


class TopicAdmin(ClusterHandlers):
    """Handles the requests that change topics."""

    # --- CreateTopics ---

    @handles(CREATE_TOPICS)
    def _create_topics(self, request: Request, _: float) -> CreateTopicsResponse:
        names = Counter(row.name for row in request.message.topics)
        partitions = sum(max(row.num_partitions, len(row.assignments)) for row in request.message.topics)
        rows = []
        for row in {row.name: row for row in request.message.topics}.values():
            try:
                if partitions > MAX_NEW_PARTITIONS:
                    raise AdminError(Errors.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
                if names[row.name] > 1:
                    raise AdminError(Errors.INVALID_REQUEST, "Duplicate topic name.")
                rows.append(self._create_topic(row, request))
            except AdminError as error:
                rows.append(CreatableTopicResult(name=row.name, error_code=error.code, error_message=str(error)))
        return CreateTopicsResponse(topics=rows)

    def _create_topic(self, row: CreatableTopic, request: Request) -> CreatableTopicResult:
        """Create one topic, or only check the request if it has `validate_only`. Returns the response row.

        Raises AdminError if the topic cannot be created.
        """
        assignments = {a.partition_index: list(a.broker_ids) for a in row.assignments}
        check_name(self._cluster, row.name)
        partitions, replicas = self._sizes(row, assignments)
        given = {config.name: config.value for config in row.configs}
        problem = config_error(given, request.broker.release)
        if problem is not None:
            raise AdminError(Errors.INVALID_CONFIG, problem)
        configs = {name: value for name, value in given.items() if value is not None}
        result = CreatableTopicResult(name=row.name, error_message=None)
        if request.version >= FIRST_WITH_CONFIGS:
            if self._cluster.acls.allowed(request, "DESCRIBE_CONFIGS", TOPIC, row.name):
                result.num_partitions, result.replication_factor = partitions, replicas
                result.configs = _config_rows(configs)
            else:
                result.topic_config_error_code = ERRORS[TOPIC]
        if request.message.validate_only:
            result.topic_id = self._cluster.random.randbytes(16)  # Kafka draws an id here, too
        else:
            assignments = assignments or self._placed(partitions, replicas)
            topic = self._cluster.create_topic(row.name, partitions, replicas, configs, assignments=assignments)
            result.topic_id = topic.id
        return result

    def _placed(self, partitions: int, replicas: int) -> dict[int, list[int]]:
        """Returns the brokers of each partition: running brokers in turn, beginning with a random one, as in Kafka."""
        nodes = [broker.id for broker in self._cluster.alive_brokers()]
        first = self._cluster.random.randrange(len(nodes))
        return {
            index: [nodes[(first + index + i) % len(nodes)] for i in range(replicas)] for index in range(partitions)
        }

    def _sizes(self, row: CreatableTopic, assignments: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """Returns the numbers of partitions and replicas of a new topic. Raises AdminError if they are not valid."""
        if assignments:
            if row.num_partitions != BROKERS_DECIDE or row.replication_factor != BROKERS_DECIDE:
                raise AdminError(Errors.INVALID_REQUEST, "Assignments exclude the numbers of partitions and replicas.")
            if sorted(assignments) != list(range(len(assignments))):
                raise AdminError(Errors.INVALID_REPLICA_ASSIGNMENT, "Partitions must be consecutive and begin with 0.")
            self._check_assignments(assignments.values())
            return len(assignments), len(assignments[0])
        settings = self._cluster.settings
        partitions = settings.num_partitions if row.num_partitions == BROKERS_DECIDE else row.num_partitions
        replicas = 1 if row.replication_factor == BROKERS_DECIDE else row.replication_factor
        if partitions < 1:
            raise AdminError(Errors.INVALID_PARTITIONS, "The number of partitions must be positive.")
        if replicas < 1 or replicas > len(self._cluster.alive_brokers()):
            raise AdminError(
                Errors.INVALID_REPLICATION_FACTOR,
                f"The replication factor is {replicas}; {len(self._cluster.alive_brokers())} brokers run.",
            )
        return partitions, replicas

    def _check_assignments(self, assignments: Iterable[Sequence[int]]) -> None:
        """Raise AdminError if a partition has no brokers, an unknown broker, or the same broker twice."""
        for nodes in assignments:
            if not nodes or len(set(nodes)) < len(nodes) or not set(nodes) <= self._cluster.brokers.keys():
                raise AdminError(Errors.INVALID_REPLICA_ASSIGNMENT, f"The brokers {list(nodes)} are not valid.")

    # --- DeleteTopics ---

    @handles(DELETE_TOPICS)
    def _delete_topics(self, request: Request, now: float) -> DeleteTopicsResponse:
        message = request.message
        states = message.topics if request.version >= FIRST_WITH_STATES else None
        if states is None:
            states = [DeleteTopicState(name=name) for name in message.topic_names]
        counts = Counter(map(_identity, states))
        rows = [
            self._delete_topic(state, now) if counts[_identity(state)] == 1 else _wrong_state(state, "is named twice")
            for state in {_identity(state): state for state in states}.values()
        ]
        return DeleteTopicsResponse(responses=rows)

    def _delete_topic(self, state: DeleteTopicState, now: float) -> DeletableTopicResult:
        """Delete one topic, which `state` names by its name or id. Returns the response row."""
        by_id = state.topic_id != ZERO_UUID
        if by_id == (state.name is not None):
            return _wrong_state(state, "needs a name or an id")
        topic: Topic | None
        if by_id:
            topic = self._cluster.topics_by_id.get(state.topic_id)
        else:
            topic = self._cluster.topics.get(state.name or "")
        if topic is None:
            error = Errors.UNKNOWN_TOPIC_ID if by_id else Errors.UNKNOWN_TOPIC_OR_PARTITION
            message = "This server does not host this topic ID." if by_id else "This server does not host this topic."
            return DeletableTopicResult(
                name=state.name, topic_id=state.topic_id, error_code=error, error_message=message
            )
        self._cluster.delete_topic(topic.name)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id)

    # --- CreatePartitions ---

    @handles(CREATE_PARTITIONS)
    def _create_partitions(self, request: Request, _: float) -> CreatePartitionsResponse:
        names = Counter(row.name for row in request.message.topics)
        rows = []
        for row in {row.name: row for row in request.message.topics}.values():
            try:
                if names[row.name] > 1:
                    raise AdminError(Errors.INVALID_REQUEST, "Duplicate topic name.")
                self._add_partitions(row, request.message.validate_only)
                rows.append(CreatePartitionsTopicResult(name=row.name))
            except AdminError as error:
                text = str(error) or None
                rows.append(CreatePartitionsTopicResult(name=row.name, error_code=error.code, error_message=text))
        return CreatePartitionsResponse(results=rows)

    def _add_partitions(self, row: CreatePartitionsTopic, validate_only: bool) -> None:
        """Add partitions to one topic until it has `row.count`. Only checks the request if `validate_only` is true.

        Raises AdminError if the request is not valid.
        """
        topic = self._cluster.topics.get(row.name)
        if topic is None:
            raise AdminError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "")
        present = len(topic.partitions)
        if row.count <= present:
            problem = "is the same as" if row.count == present else "is smaller than"
            raise AdminError(Errors.INVALID_PARTITIONS, f"{row.count} {problem} the {present} partitions of the topic.")
        added = row.count - present
        if added > MAX_NEW_PARTITIONS:
            raise AdminError(Errors.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        if row.assignments is not None and len(row.assignments) != added:
            raise AdminError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{added} partitions need as many assignments.")
        nodes = [assignment.broker_ids for assignment in row.assignments or []]
        self._check_assignments(nodes)
        if validate_only:
            return
        assignments = dict(enumerate(nodes, start=present))
        self._cluster.add_partitions(topic, added, len(topic.partitions[0].replicas), assignments)

    # --- DeleteRecords ---

    @handles(DELETE_RECORDS)
    def _delete_records(self, request: Request, _: float) -> DeleteRecordsResponse:
        topics = []
        for topic in request.message.topics:
            rows = [self._delete_before(request, topic.name, p.partition_index, p.offset) for p in topic.partitions]
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
        return DeleteRecordsResponse(topics=topics)

    def _delete_before(self, request: Request, name: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
        """Delete the records of one partition before an offset. Returns the response row."""
        partition = self._cluster.partition(name, index)
        error: int = Errors.NONE
        if partition is None:
            error = Errors.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.leader == NO_LEADER or partition.leader != request.broker.id:
            error = Errors.NOT_LEADER_OR_FOLLOWER
        elif "delete" not in partition.topic.configs["cleanup.policy"]:
            error = Errors.POLICY_VIOLATION
        elif offset > partition.log.high_watermark or offset < HIGH_WATERMARK:
            error = Errors.OFFSET_OUT_OF_RANGE
        if partition is None or error:
            return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)
        partition.log.delete_before(partition.log.high_watermark if offset == HIGH_WATERMARK else offset)
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.log.start)


def _identity(state: DeleteTopicState) -> tuple[str | None, bytes]:
    return state.name, state.topic_id


def _wrong_state(state: DeleteTopicState, problem: str) -> DeletableTopicResult:
    """Returns the error row of a topic that a DeleteTopics request names in a wrong way. `problem`: what is wrong."""
    error = Errors.INVALID_REQUEST
    message = f"The topic {problem}."
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=error, error_message=message)


def _config_rows(configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """Returns all settings of a new topic as rows of a CreateTopics response (KIP-525)."""
    return [
        CreatableTopicConfigs(name=name, value=value, config_source=TOPIC_CONFIG if name in configs else DEFAULT_CONFIG)
        for name, value in {**TOPIC_DEFAULTS, **configs}.items()
    ]
