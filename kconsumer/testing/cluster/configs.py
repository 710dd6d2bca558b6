"""The settings of topics, brokers, groups and client metrics, in four APIs.

They are DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Settings of brokers do not change.
"""

from __future__ import annotations

from dataclasses import asdict

from kconsumer._common.error_codes import Errors
from kconsumer.schema.telemetry import (
    CLIENT_METRICS,
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesResponse,
)
from kconsumer.schema.topics import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsResponse,
    ReplacedConfigsResource,
)
from kconsumer.testing.cluster import acls
from kconsumer.testing.cluster.authorizer import ERRORS, REFUSED
from kconsumer.testing.cluster.group_configs import DEFAULT_CONFIG, GROUP_CONFIGS, STATIC_BROKER_CONFIG
from kconsumer.testing.cluster.metadata import legal_name
from kconsumer.testing.cluster.requests import GroupError, Request, handles
from kconsumer.testing.cluster.settings import BROKER_NAMES, TOPIC_DEFAULTS, Settings
from kconsumer.testing.cluster.state import ClusterHandlers, ClusterState
from kconsumer.testing.cluster.telemetry import DEFAULTS, INTERVAL, InvalidRequestError, Telemetry
from kconsumer.testing.cluster.topic import Topic
from kconsumer.testing.cluster.topic_configs import BOOLEAN, INT, LIST, STRING, TYPES, config_error, type_of

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32  # types of resources
# Sources of a setting.
TOPIC_CONFIG, CLIENT_METRICS_CONFIG = 1, 7
_TYPES: dict[type, int] = {bool: BOOLEAN, int: INT, tuple: LIST}  # of settings of brokers that are no text
OPERATIONS = SET, DELETE, APPEND, SUBTRACT = range(4)  # operations on a setting
#: Settings of brokers that have no effect in the model, with their defaults.
BROKER_DEFAULTS: dict[str, object] = {
    "compression.type": "producer",
    "default.replication.factor": 1,
    "delete.topic.enable": True,
    "log.cleanup.policy": ("delete",),
    "log.dirs": "/var/lib/kafka/data",
    "log.message.timestamp.type": "CreateTime",
    "log.retention.bytes": -1,
    "log.retention.hours": 168,
    "log.segment.bytes": 1 << 30,
    "min.insync.replicas": 1,
}


class Configs(ClusterHandlers):
    """Handles the requests that read and change settings."""

    def __init__(self, cluster: ClusterState, telemetry: Telemetry) -> None:
        super().__init__(cluster)
        self._telemetry = telemetry

    @handles(LIST_CONFIG_RESOURCES)
    def _list(self, request: Request, _: float) -> ListConfigResourcesResponse:
        error = self._refusal(request, "DESCRIBE_CONFIGS", BROKER, "")
        types = request.message.resource_types if request.version else [CLIENT_METRICS]
        brokers = [str(broker) for broker in self._cluster.brokers]
        names = {
            TOPIC: [*self._cluster.topics],
            BROKER: brokers,
            BROKER_LOGGER: brokers,
            CLIENT_METRICS: [*self._telemetry.subscriptions],
            GROUP: self._cluster.group_configs.groups(),
        }
        if error or not {*types} <= {*names}:
            return ListConfigResourcesResponse(error_code=error or Errors.UNSUPPORTED_VERSION)
        rows = [
            ConfigResource(resource_name=name, resource_type=kind) for kind in types or names for name in names[kind]
        ]
        return ListConfigResourcesResponse(config_resources=rows)

    @handles(DESCRIBE_CONFIGS)
    def _describe(self, request: Request, _: float) -> DescribeConfigsResponse:
        rows = [self._describe_resource(request, row) for row in request.message.resources]
        return DescribeConfigsResponse(results=rows)

    def _refusal(self, request: Request, operation: str, resource_type: int, name: str) -> int:
        """Returns the error code of a resource on which the client may not perform an operation, or NONE."""
        kind = {TOPIC: acls.TOPIC, GROUP: acls.GROUP}.get(resource_type, acls.CLUSTER)
        resource = acls.CLUSTER_NAME if kind == acls.CLUSTER else name
        return Errors.NONE if self._cluster.acls.allowed(request, operation, kind, resource) else ERRORS[kind]

    def _describe_resource(self, request: Request, row: DescribeConfigsResource) -> DescribeConfigsResult:
        """Returns the response row of one topic, broker or group: the requested settings, or an error."""
        result = DescribeConfigsResult(resource_type=row.resource_type, resource_name=row.resource_name)
        result.error_code = self._refusal(request, "DESCRIBE_CONFIGS", row.resource_type, row.resource_name)
        if result.error_code:
            result.error_message = REFUSED
        elif row.resource_type == TOPIC:
            topic = self._cluster.topics.get(row.resource_name)
            if not legal_name(row.resource_name):
                result.error_code = Errors.INVALID_TOPIC_EXCEPTION
                result.error_message = f"Topic name is invalid: {row.resource_name!r}"
            elif topic is None:
                result.error_code = Errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                result.configs = _topic_rows(topic)
        elif (
            row.resource_type == BROKER
            and row.resource_name
            and row.resource_name not in map(str, self._cluster.brokers)
        ):
            result.error_code, result.error_message = Errors.INVALID_REQUEST, "The request went to another broker."
        elif row.resource_type == BROKER:  # without a name: the dynamic defaults of all brokers
            result.configs = self._broker_rows(int(row.resource_name)) if row.resource_name else []
        elif row.resource_type == GROUP:
            result.configs = self._group_rows(row.resource_name)
        elif row.resource_type == CLIENT_METRICS:
            result.configs = self._subscription_rows(row.resource_name)
        else:
            result.error_code, result.error_message = Errors.INVALID_REQUEST, "Unsupported resource type."
        keys = row.configuration_keys
        if keys is not None:
            result.configs = [config for config in result.configs if config.name in keys]
        if not request.message.include_synonyms:
            for config in result.configs:
                config.synonyms = []
        return result

    def _broker_rows(self, broker_id: int) -> list[DescribeConfigsResourceResult]:
        """Returns response rows with the settings of a broker: those of the model, and some that clients ask for."""
        broker = self._cluster.brokers[broker_id]
        address = f"PLAINTEXT://{broker.host}:{broker.port}"
        static = {"broker.id": broker_id, "node.id": broker_id, "advertised.listeners": address, "listeners": address}
        defaults = {**asdict(Settings()), "broker.id": -1, **BROKER_DEFAULTS}
        rows = []
        settings = asdict(self._cluster.settings)
        for name, value in {**settings, **static, "process.roles": ("broker", "controller"), **BROKER_DEFAULTS}.items():
            known = name.replace("_", ".")
            sources = [(known, value, STATIC_BROKER_CONFIG)] if defaults.get(name) != value else []
            sources += [(known, defaults[name], DEFAULT_CONFIG)] if name in defaults else []
            rows.append(_row(known, value, _TYPES.get(type(value), STRING), sources, read_only=True))
        return rows

    def _group_rows(self, group_id: str) -> list[DescribeConfigsResourceResult]:
        """Returns response rows with the settings of a group."""
        configs = self._cluster.group_configs
        return [
            _row(name, configs.text(group_id, name), config.kind, configs.sources(group_id, name))
            for name, config in GROUP_CONFIGS.items()
        ]

    def _subscription_rows(self, name: str) -> list[DescribeConfigsResourceResult]:
        """Returns response rows with the settings of a subscription for metrics of clients, which may not exist."""
        defaults = DEFAULTS.settings()
        rows = self._telemetry.subscriptions.get(name, DEFAULTS).settings()
        return [
            _row(
                key,
                value,
                INT if key == INTERVAL else LIST,
                [(key, value, CLIENT_METRICS_CONFIG)] if value != defaults[key] else [],
            )
            for key, value in rows.items()
        ]

    @handles(INCREMENTAL_ALTER_CONFIGS)
    def _alter(self, request: Request, _: float) -> IncrementalAlterConfigsResponse:
        rows = [self._alter_resource(request, row) for row in request.message.resources]
        return IncrementalAlterConfigsResponse(responses=rows)

    @handles(ALTER_CONFIGS)
    def _replace(self, request: Request, _: float) -> AlterConfigsResponse:
        rows = [self._alter_resource(request, self._replacement(row)) for row in request.message.resources]
        return AlterConfigsResponse(responses=rows)

    def _replacement(self, row: ReplacedConfigsResource) -> AlterConfigsResource:
        """Returns the changes after which a resource has no other settings of its own than the given ones."""
        given = {config.name for config in row.configs}
        topic, groups = self._cluster.topics.get(row.resource_name), self._cluster.group_configs
        own = {
            TOPIC: topic.explicit_configs if topic else (),
            GROUP: [name for name in GROUP_CONFIGS if groups.is_explicit(row.resource_name, name)],
            CLIENT_METRICS: [config.name for config in self._subscription_rows(row.resource_name)],
        }.get(row.resource_type, ())
        changes = [AlterableConfig(name=name, config_operation=DELETE) for name in own if name not in given]
        changes += [AlterableConfig(name=each.name, config_operation=SET, value=each.value) for each in row.configs]
        return AlterConfigsResource(resource_type=row.resource_type, resource_name=row.resource_name, configs=changes)

    def _alter_resource(self, request: Request, row: AlterConfigsResource) -> AlterConfigsResourceResponse:
        """Change the settings of one topic or group. Returns the response row.

        If one change is not valid, or if the request has `validate_only`, no setting changes.
        """
        validate_only = request.message.validate_only
        response = AlterConfigsResourceResponse(
            error_message=None, resource_type=row.resource_type, resource_name=row.resource_name
        )
        topic = self._cluster.topics.get(row.resource_name)
        response.error_code = self._refusal(request, "ALTER_CONFIGS", row.resource_type, row.resource_name)
        if response.error_code:
            response.error_message = REFUSED
            return response
        if row.resource_type == GROUP:
            self._alter_group(row, response, validate_only)
        elif row.resource_type == CLIENT_METRICS:
            changes = {each.name: None if each.config_operation == DELETE else each.value for each in row.configs}
            try:
                self._telemetry.configure(row.resource_name, changes, validate_only=validate_only)
            except InvalidRequestError as error:
                response.error_code, response.error_message = Errors.INVALID_REQUEST, str(error)
            except ValueError as error:
                response.error_code, response.error_message = Errors.INVALID_CONFIG, str(error)
        elif row.resource_type != TOPIC:
            response.error_code, response.error_message = (
                Errors.INVALID_REQUEST,
                "Only topics and groups change.",
            )
        else:
            # Brokers check the changes of a topic that does not exist only by the old request.
            checked = Topic(row.resource_name, b"", {}) if topic is None else topic
            given = [] if topic is None and request.api is INCREMENTAL_ALTER_CONFIGS else row.configs
            response.error_code, message = _change_error(checked, given, request.broker.release)
            response.error_message = message or None
            if not response.error_code and topic is None:
                response.error_code = Errors.UNKNOWN_TOPIC_OR_PARTITION
                response.error_message = f"The topic '{row.resource_name}' does not exist."
            elif topic is not None and not response.error_code and not validate_only:
                for config in row.configs:
                    topic.set_config(config.name, _changed(topic, config))
        return response

    def _alter_group(
        self, row: AlterConfigsResource, response: AlterConfigsResourceResponse, validate_only: bool
    ) -> None:
        """Change the settings of one group, unless `validate_only` is true.

        If one change is not valid, changes no setting, and sets the error of `response`.
        """
        configs = self._cluster.group_configs
        changes = [(config.name, None if config.config_operation == DELETE else config.value) for config in row.configs]
        try:
            for config in row.configs:
                _check_group_operation(config)
            configs.validate_all(row.resource_name, dict(changes))
        except GroupError as error:
            response.error_code, response.error_message = error.error, error.message
            return
        if not validate_only:
            for name, value in changes:
                configs.set(row.resource_name, name, value)


def _row(
    name: str, value: object, kind: int, sources: list[tuple[str, object, int]], *, read_only: bool = False
) -> DescribeConfigsResourceResult:
    """Returns a response row. `sources`: names, values and sources of settings, of which the first one is used."""
    return DescribeConfigsResourceResult(
        name=name,
        value=_text(value),
        read_only=read_only,
        config_source=sources[0][2] if sources else DEFAULT_CONFIG,
        synonyms=[
            DescribeConfigsSynonym(name=key, value=_text(given), source=source) for key, given, source in sources
        ],
        config_type=kind,
        documentation=None,
    )


def _check_group_operation(config: AlterableConfig) -> None:
    """Raise GroupError if the operation is APPEND or SUBTRACT, because no setting of a group is a list."""
    name = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}.get(config.config_operation)
    if name is not None:
        message = f"Can't {name} to key {config.name} because its type is not LIST."
        raise GroupError(Errors.INVALID_CONFIG, message)


def _topic_rows(topic: Topic) -> list[DescribeConfigsResourceResult]:
    """Returns response rows with the settings of a topic."""
    return [_row(name, value, type_of(name), _sources(topic, name)) for name, value in topic.configs.items()]


def _sources(topic: Topic, name: str) -> list[tuple[str, object, int]]:
    """Returns the values of a setting, of which the first one is used: that of the topic, and the broker's default."""
    own = [(name, topic.configs[name], TOPIC_CONFIG)] if name in topic.explicit_configs else []
    default = [(BROKER_NAMES[name], TOPIC_DEFAULTS[name], DEFAULT_CONFIG)] if name in BROKER_NAMES else []
    return [*own, *default]


def _change_error(topic: Topic, changes: list[AlterableConfig], release: str) -> tuple[int, str]:
    """Returns the error code and message of the first change that is not valid.

    Returns NONE and an empty message if all changes are valid.
    """
    if len({change.name for change in changes}) < len(changes):
        return Errors.INVALID_REQUEST, "A setting is changed twice."
    for change in changes:
        if change.config_operation not in OPERATIONS:
            return Errors.UNKNOWN_SERVER_ERROR, ""
        if change.name not in TOPIC_DEFAULTS and change.name not in TYPES and change.config_operation != DELETE:
            return Errors.INVALID_CONFIG, f"Unknown topic config name: {change.name}"
        if change.value is None and change.config_operation != DELETE:
            return Errors.INVALID_REQUEST, f"The value of {change.name} is null."
        if change.config_operation in (APPEND, SUBTRACT) and type_of(change.name) != LIST:
            return Errors.INVALID_CONFIG, f"{change.name} is not a list."
    values = {change.name: _changed(topic, change) for change in changes}
    present = {**topic.configs, **{name: TOPIC_DEFAULTS.get(name, "") for name, new in values.items() if new is None}}
    problem = config_error({name: new for name, new in values.items() if new is not None}, release, present)
    return (Errors.NONE, "") if problem is None else (Errors.INVALID_CONFIG, problem)


def _changed(topic: Topic, change: AlterableConfig) -> str | None:
    """Returns the new value of a setting after a change, or None if the change restores the default value."""
    present = topic.configs.get(change.name, "").split(",")
    given = (change.value or "").split(",")
    values = {
        SET: given,
        DELETE: None,
        APPEND: [*filter(None, present), *(item for item in given if item not in present)],
        SUBTRACT: [item for item in present if item not in given],
    }[change.config_operation]
    return None if values is None else ",".join(values)


def _text(value: object) -> str:
    """Returns the value of a setting as text in Kafka's format."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
