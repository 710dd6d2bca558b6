"""All options of the consumer in one table, and `ConsumerConfig`, a checked and immutable configuration.

The table has one row per option: type, allowed values, default and meaning. Names are the keys of the Java consumer
with `_` for `.`; defaults and units are Java's (ConsumerConfig of Kafka 4.4). Options that Java does not have are in a
section of their own. What an option does is decided by the code that reads it, not here.

Every mistake in a configuration raises `ConfigError` at construction: an unknown name, a value that is not allowed,
options that contradict each other, an option whose feature this version does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, Unpack

from kconsumer._common.deferred_calls import get_logger
from kconsumer.config import kinds
from kconsumer.config.kinds import Option
from kconsumer.config.kinds import option as _option
from kconsumer.config.option_rules import SHARE, check_limits, check_together, derive, derive_login
from kconsumer.errors import ConfigError
from kconsumer.types import OffsetReset

if TYPE_CHECKING:
    from kconsumer.config.option_groups import OptionGroup
    from kconsumer.config.signature import AllOptions

log = get_logger(__name__)
T = TypeVar("T", bound="OptionGroup")

REQUIRED: Any = object()  # marks an option without a default, which the user must set


class _Table:
    """The rows of the table. The annotation of a row is the type of the checked value."""

    # fmt: off

    # --- group and consumption ---
    bootstrap_servers: tuple[tuple[str, int], ...] = _option(
        kinds.SERVERS, REQUIRED, "Brokers to connect to first; all others are found through them."
    )
    bootstrap_resolve_timeout_ms: int = _option(
        kinds.int64(), 0,
        "How long to wait until one of these names can be resolved, before a call raises an error (KIP-909)."
    )
    client_dns_lookup: str = _option(
        kinds.choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "use_all_dns_ips",
        "Try every address of a name; or also replace bootstrap servers by their canonical names."
    )
    group_id: str | None = _option(
        kinds.text(allow_empty=False), None, "The consumer group. Without one there are only assign() and no commits."
    )
    group_instance_id: str | None = _option(
        kinds.INSTANCE_ID, None,
        "Static membership: a restart within session_timeout_ms causes no rebalance (KIP-345)."
    )
    group_protocol: str = _option(
        kinds.choice("classic", "consumer", ignore_case=True), "classic",
        "The group protocol: classic (JoinGroup, SyncGroup) or consumer (KIP-848)."
    )
    engine: str | None = _option(
        kinds.choice("classic", "threaded"), None,
        "Where I/O runs: in calls (classic) or on a network thread (threaded). Default: by group_protocol."
    )
    group_remote_assignor: str | None = _option(
        kinds.text(allow_empty=False), None, "The broker's assignor to use (uniform, range).",
        protocol="consumer"
    )
    share_acknowledgement_mode: str = _option(
        kinds.choice("implicit", "explicit"), "implicit",
        "The next poll accepts the records of the last one (implicit), or each is acknowledged (explicit).",
        protocol="share"
    )
    share_acquire_mode: str = _option(
        kinds.choice("batch_optimized", "record_limit"), "batch_optimized",
        "Acquire whole batches, so that a poll may exceed max_poll_records; or never exceed it (KIP-1206).",
        protocol="share"
    )
    session_timeout_ms: int = _option(
        kinds.int32(1), 45_000, "The coordinator removes a member that sends no heartbeat for this time.",
        protocol="classic"
    )
    heartbeat_interval_ms: int = _option(
        kinds.int32(1), 3_000, "Interval of heartbeats; must be less than session_timeout_ms.",
        protocol="classic"
    )
    assignors: tuple[Any, ...] = _option(
        kinds.ASSIGNORS, ("range", "cooperative-sticky"),
        "Assignors in order of preference: names, classes or instances. Alias: partition_assignment_strategy.",
        protocol="classic"
    )
    max_poll_interval_ms: int = _option(
        kinds.int32(1), 300_000,
        "Maximum time between two polls; then the member leaves the group. Also the rebalance timeout."
    )
    max_poll_records: int = _option(
        kinds.int32(1), 500, "Maximum number of records that a poll returns; does not limit fetching."
    )
    enable_auto_commit: bool = _option(
        kinds.BOOLEAN, None,
        "Commit positions every auto_commit_interval_ms. Default: True with a group, otherwise False."
    )
    enable_auto_offset_store: bool = _option(
        kinds.BOOLEAN, True, "False: commits contain what store_offsets() has stored, in place of the positions."
    )
    auto_commit_interval_ms: int = _option(kinds.int32(), 5_000, "Interval of auto-commits.")
    auto_offset_reset: OffsetReset = _option(
        kinds.RESET, OffsetReset.LATEST,
        "Where to start without a usable position: latest, earliest, none (raise an error), by_duration:PT1H."
    )
    auto_offset_reset_new_partitions: str | None = _option(
        kinds.choice("earliest", "latest"), None,
        "Where partitions start that appeared after their topic was subscribed (KIP-1327). Default: auto_offset_reset."
    )
    isolation_level: str = _option(
        kinds.choice("read_uncommitted", "read_committed", enum="IsolationLevel"), "read_uncommitted",
        "read_committed: skip records of aborted transactions, and read only up to the first open transaction.",
    )
    exclude_internal_topics: bool = _option(
        kinds.BOOLEAN, True, "A subscribed re.Pattern does not match internal topics."
    )
    allow_auto_create_topics: bool = _option(
        kinds.BOOLEAN, True, "Let brokers create topics that do not exist (if they are configured to)."
    )
    client_rack: str = _option(
        kinds.text(), "", "The rack of this client, to fetch from a replica in the same rack (KIP-392)."
    )
    key_deserializer: Any = _option(
        kinds.DESERIALIZER, None,
        "Turns a key's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."
    )
    value_deserializer: Any = _option(
        kinds.DESERIALIZER, None,
        "Turns a value's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."
    )

    record_filter: Callable[..., object] | None = _option(
        kinds.CALLABLE, None,
        "Drops records before deserializers: HeaderFilter, KeyFilter, or a callable (record) -> bool.",
        own=True
    )

    # --- fetching ---
    fetch_min_bytes: int = _option(
        kinds.int32(), 1, "A broker responds when it has this many bytes, or after fetch_max_wait_ms."
    )
    fetch_max_bytes: int = _option(
        kinds.int32(), 52_428_800,
        "Maximum size of a fetch; a first batch that is larger is returned completely."
    )
    fetch_max_wait_ms: int = _option(
        kinds.int32(), 500,
        "Maximum time a broker delays a fetch; less than request_timeout_ms, by default at most half of it."
    )
    max_partition_fetch_bytes: int = _option(
        kinds.int32(), 1_048_576,
        "Maximum size of one partition in a fetch; a first batch that is larger is returned completely."
    )
    check_crcs: bool = _option(kinds.BOOLEAN, True, "Check the CRC of every batch.")

    # --- client, network, metadata, metrics ---
    client_id: str = _option(
        kinds.text(), "",
        "Name in broker logs, metrics and quotas. Default: consumer-[<group>-]<instance id or number>."
    )
    request_timeout_ms: int = _option(
        kinds.int32(), 30_000, "A connection with a request older than this is closed."
    )
    default_api_timeout_ms: int = _option(
        kinds.int32(), 60_000, "Timeout of methods that are called without a timeout."
    )
    retry_backoff_ms: int = _option(
        kinds.int64(), 100, "First backoff before a retry; doubles with each failure, with 20 % of jitter."
    )
    retry_backoff_max_ms: int = _option(kinds.int64(), 1_000, "Maximum backoff before a retry.")
    reconnect_backoff_ms: int = _option(
        kinds.int64(), 50, "First backoff before another connection attempt to a broker; doubles with each failure."
    )
    reconnect_backoff_max_ms: int = _option(
        kinds.int64(), 1_000,
        "Maximum backoff before another connection attempt. Default: reconnect_backoff_ms if only that is set."
    )
    socket_connection_setup_timeout_ms: int = _option(
        kinds.int64(), 10_000, "Timeout of a connection attempt; doubles with each failure."
    )
    socket_connection_setup_timeout_max_ms: int = _option(
        kinds.int64(), 30_000, "Maximum timeout of a connection attempt."
    )
    connections_max_idle_ms: int = _option(
        kinds.int64(-1), 540_000, "Close connections that were not used for this time; -1: never."
    )
    send_buffer_bytes: int = _option(kinds.int32(-1), 131_072, "SO_SNDBUF; -1: the system's default.")
    receive_buffer_bytes: int = _option(
        kinds.int32(-1), 65_536, "SO_RCVBUF. If it is not set, or -1, the system adapts the buffer, which is faster."
    )
    metadata_max_age_ms: int = _option(
        kinds.int64(), 300_000,
        "Maximum age of metadata; also how long a preferred read replica is used."
    )
    metadata_recovery_strategy: str = _option(
        kinds.choice("none", "rebootstrap", ignore_case=True), "rebootstrap",
        "Whether to return to bootstrap_servers if no known broker is available (KIP-899)."
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _option(
        kinds.int64(), 300_000, "Return to bootstrap_servers after this time without metadata (KIP-1102)."
    )
    metadata_cluster_check_enable: bool = _option(
        kinds.BOOLEAN, True, "Send the expected cluster and node ids to brokers (KIP-1242)."
    )
    metrics_sample_window_ms: int = _option(kinds.int64(), 30_000, "Length of a sample of a metric.")
    metrics_num_samples: int = _option(kinds.int32(1), 2, "Number of samples of averages, minima, maxima and rates.")
    metrics_recording_level: str = _option(
        kinds.choice("INFO", "DEBUG", "TRACE", ignore_case=True), "INFO",
        "Level of metrics to record; all metrics of a consumer have the level INFO, as in Java."
    )
    enable_metrics_push: bool = _option(
        kinds.BOOLEAN, True,
        "Push metrics to brokers that request them (KIP-714)."
    )

    # --- our own ---
    buffer_memory: int = _option(
        kinds.int64(1), 64 << 20,
        "Bound of the memory for fetched data, in bytes, compressed and decompressed.", own=True
    )
    receive_message_max_bytes: int = _option(
        kinds.int32(1_000), 1 << 30,
        "Maximum size of a response; a connection is closed if a response is larger.", own=True
    )
    decompressed_batch_max_bytes: int | None = _option(
        kinds.int32(1), None,
        "Maximum decompressed size of a batch. Default: 128 MiB, or 64 times the compressed size if that is more.",
        own=True,
    )
    consumer_timeout_ms: int | None = _option(
        kinds.LIMIT_MS, None,
        "Iteration over the consumer ends after this time without a record; None: never.", own=True
    )
    on_commit: Callable[..., object] | None = _option(
        kinds.CALLABLE, None, "Called as (offsets, error) after each auto-commit and asynchronous commit.",
        own=True
    )
    on_acknowledge: Callable[..., object] | None = _option(
        kinds.CALLABLE, None, "Called as (offsets, error) when a broker has processed acknowledgements.",
        protocol="share", own=True
    )
    interceptors: tuple[Any, ...] = _option(
        kinds.INTERCEPTORS, (),
        "Called with records before poll returns them, and with offsets after a commit. Alias: interceptor_classes.",
        own=True
    )
    metrics_reporters: tuple[Any, ...] = _option(
        kinds.REPORTERS, (), "Notified of all metrics (MetricsReporter). Alias: metric_reporters.", own=True
    )

    address_map: Mapping[tuple[str, int], tuple[str, int]] | Callable[..., object] | None = _option(
        kinds.ADDRESS_MAP, None,
        "Connect to other addresses than brokers advertise, as of port-forwards; TLS checks the advertised names.",
        own=True
    )
    socks_proxy: str | None = _option(
        kinds.proxy("socks_proxy"), None,
        "Connect to brokers through a SOCKS5 proxy, which resolves their names; TLS checks the names of brokers.",
        own=True, secret=True
    )
    http_proxy: str | None = _option(
        kinds.proxy("http_proxy"), None, "The same through an HTTP proxy (CONNECT).", own=True, secret=True
    )

    # --- security: names as in kafka-python, and Java's PEM keys ---
    security_protocol: str = _option(
        kinds.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignore_case=True), "PLAINTEXT",
        "Encryption and authentication of connections."
    )
    ssl_context: Any = _option(
        kinds.OBJECT, None, "An ssl.SSLContext, in place of all other ssl_ options.", own=True
    )
    ssl_cafile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of trusted certificates. Default: those that the system trusts.",
        own=True
    )
    ssl_certfile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of the client's certificate chain.",
        own=True
    )
    ssl_keyfile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of the client's key. Default: the key in ssl_certfile.", own=True
    )
    ssl_password: str | None = _option(kinds.SECRET, None, "Password of an encrypted key.", own=True, secret=True)
    ssl_check_hostname: bool = _option(
        kinds.BOOLEAN, True, "The broker's certificate must name its host.", own=True
    )
    ssl_protocol: str = _option(
        kinds.choice("TLSv1.2", "TLSv1.3", "TLS"), "TLSv1.3", "Maximum TLS version; TLS: the newest one."
    )
    ssl_enabled_protocols: tuple[str, ...] = _option(
        kinds.WORDS, ("TLSv1.2", "TLSv1.3"), "Allowed TLS versions, of TLSv1.2 and TLSv1.3."
    )
    ssl_cipher_suites: tuple[str, ...] = _option(
        kinds.WORDS, (), "Allowed ciphers, by the names of Java or OpenSSL; empty: the defaults of OpenSSL."
    )
    ssl_endpoint_identification_algorithm: str = _option(
        kinds.HOST_CHECK, "https",
        'Java\'s form of ssl_check_hostname; "" disables the check.'
    )
    ssl_keystore_type: str = _option(
        kinds.choice("JKS", "PKCS12", "PEM", ignore_case=True), "JKS",
        "Format of the keystore; only PEM is supported, also if it is not set."
    )
    ssl_keystore_location: str | None = _option(
        kinds.text(allow_empty=False), None, "Java's ssl_certfile: PEM file of certificate and key."
    )
    ssl_keystore_password: str | None = _option(
        kinds.SECRET, None, "Password of a JKS or PKCS12 store; PEM has none.", secret=True
    )
    ssl_keystore_key: str | None = _option(kinds.SECRET, None, "The client's key as PEM text.", secret=True)
    ssl_keystore_certificate_chain: str | None = _option(
        kinds.text(allow_empty=False), None, "The client's certificate chain as PEM text."
    )
    ssl_key_password: str | None = _option(kinds.SECRET, None, "Java's ssl_password.", secret=True)
    ssl_truststore_type: str = _option(
        kinds.choice("JKS", "PKCS12", "PEM", ignore_case=True), "JKS",
        "Format of the truststore; only PEM is supported, also if it is not set."
    )
    ssl_truststore_location: str | None = _option(
        kinds.text(allow_empty=False), None, "Java's ssl_cafile: PEM file of trusted certificates."
    )
    ssl_truststore_password: str | None = _option(
        kinds.SECRET, None, "Password of a JKS or PKCS12 store; PEM has none.", secret=True
    )
    ssl_truststore_certificates: str | None = _option(
        kinds.text(allow_empty=False), None, "Trusted certificates as PEM text."
    )
    sasl_mechanism: str = _option(
        kinds.choice("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"), "GSSAPI",
        "The SASL mechanism (security_protocol SASL_PLAINTEXT or SASL_SSL). AWS_MSK_IAM logs in by OAUTHBEARER."
    )
    sasl_login_callback_handler_class: str | None = _option(
        kinds.text(allow_empty=False), None, "Java's class of AWS, Google or Azure; its Python library gets tokens."
    )
    sasl_client_callback_handler_class: str | None = _option(
        kinds.text(allow_empty=False), None, "AWS's class for the mechanism AWS_MSK_IAM."
    )
    sasl_plain_username: str | None = _option(
        kinds.SECRET, None, "User name for PLAIN and SCRAM. References are read for each authentication.", own=True
    )
    sasl_plain_password: str | None = _option(
        kinds.SECRET, None, "Password for PLAIN and SCRAM. References are read for each authentication.", own=True,
        secret=True
    )
    sasl_scram_tokenauth: bool = _option(
        kinds.BOOLEAN, False, "User name and password are the id and the HMAC of a delegation token (SCRAM).", own=True
    )
    sasl_oauth_token_provider: Callable[[], object] | None = _option(
        kinds.PROVIDER, None, "Returns a token, or (token, expires_at_s); called on a background thread.", own=True
    )
    sasl_oauth_extensions: Mapping[str, str] | None = _option(
        kinds.PAIRS, None, "Extensions that are sent with the token (OAUTHBEARER).", own=True
    )
    sasl_jaas_config: str | None = _option(
        kinds.SECRET, None, "A JAAS login entry, as in Java, in place of the equivalent options.", secret=True
    )
    sasl_kerberos_service_name: str | None = _option(
        kinds.text(allow_empty=False), None, "The service name of the brokers: the first part of their principal."
    )
    sasl_kerberos_principal: str | None = _option(
        kinds.text(allow_empty=False), None, "The client's principal. Default: the principal of the ticket.", own=True
    )
    sasl_kerberos_keytab: str | None = _option(
        kinds.text(allow_empty=False), None, "File with the principal's key. Without it a ticket is required (kinit).",
        own=True
    )
    sasl_login_refresh_window_factor: float = _option(
        kinds.number(0.5, 1.0), 0.8, "Share of a token's lifetime after which a new one is requested."
    )
    sasl_login_refresh_window_jitter: float = _option(
        kinds.number(0.0, 0.25), 0.05, "Maximum random share that is added to sasl_login_refresh_window_factor."
    )
    sasl_login_refresh_min_period_seconds: int = _option(
        kinds.integer(0, 900), 60, "Minimum time before a token is refreshed, if its lifetime allows it."
    )
    sasl_login_refresh_buffer_seconds: int = _option(
        kinds.integer(0, 3600), 300, "Minimum time between refresh and expiry of a token, if its lifetime allows it."
    )
    sasl_login_connect_timeout_ms: int | None = _option(
        kinds.int32(1), None, "Token endpoint: timeout of connecting; None: 10 s."
    )
    sasl_login_read_timeout_ms: int | None = _option(
        kinds.int32(1), None, "Token endpoint: timeout of reading; None: 10 s."
    )
    sasl_login_retry_backoff_ms: int = _option(
        kinds.int64(), 100, "Token endpoint: first backoff before a retry; doubles with each failure."
    )
    sasl_login_retry_backoff_max_ms: int = _option(
        kinds.int64(), 10_000, "Token endpoint: maximum backoff, and for how long requests are retried."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = _option(
        kinds.HTTP_URL, None, "The token endpoint, for the client-credentials flow."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = _option(
        kinds.text(allow_empty=False), None, "Client id for the token endpoint."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = _option(
        kinds.SECRET, None, "Client secret for the token endpoint. References are read for each token.", secret=True
    )
    sasl_oauthbearer_scope: str | None = _option(kinds.text(), None, "Scope to request.")
    sasl_oauthbearer_header_urlencode: bool = _option(
        kinds.BOOLEAN, False, "URL-encode client id and secret in the header (RFC 6749, 2.3.1)."
    )
    # fmt: on


OPTIONS: dict[str, Option] = {name: row for name, row in vars(_Table).items() if isinstance(row, Option)}

# Other names of an option: Java's, and those of other clients with the same meaning and the same values.
ALIASES = {
    "partition_assignment_strategy": "assignors",
    "interceptor_classes": "interceptors",
    "metric_reporters": "metrics_reporters",
    "metadata_broker_list": "bootstrap_servers",
    "auto_commit_enable": "enable_auto_commit",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "socks5_proxy": "socks_proxy",
    "ssl_ca_location": "ssl_cafile",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_pem": "ssl_keystore_key",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_extensions": "sasl_oauth_extensions",
}
# Options that `update_options` may change while a consumer runs.
UPDATABLE = (
    "max_poll_records",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "fetch_min_bytes",
    "fetch_max_wait_ms",
    "buffer_memory",
)
MIN_SIMILARITY = 0.8  # of an unknown name and the suggested option; lower values gave wrong suggestions


class ConsumerConfig(_Table):
    """A checked configuration with one attribute per option. Raises ConfigError for any mistake.

    It is immutable, except that `update_options` of a consumer changes that of the consumer (`apply_update`).
    """

    _is_share: ClassVar[bool] = False  # the configuration of a ShareConsumer
    _updatable: ClassVar[tuple[str, ...]] = UPDATABLE
    explicit: frozenset[str]  # the options that were set, in snake_case, also those set to their default

    def __init__(self, /, **options: Unpack[AllOptions]) -> None:
        named: Mapping[str, object] = options
        given = _canonical(named)
        values = {name: row.default for name, row in OPTIONS.items() if row.default is not REQUIRED}
        for name, spelling in given.items():
            values[name] = OPTIONS[name].read(named[spelling], spelling)
        if "bootstrap_servers" not in given:
            raise ConfigError('bootstrap_servers is required, for example bootstrap_servers="localhost:9092"')
        derive(values, given)
        derive_login(values, given, OPTIONS)
        check_together(values, given, SHARE if self._is_share else values["group_protocol"], OPTIONS)
        self.__dict__.update(values, explicit=frozenset(given))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ConsumerConfig:
        """Returns a configuration for a mapping of options. Names may have Java's dots or be in snake_case. Values may
        be typed or text."""
        for key in mapping:
            if not isinstance(key, str):
                raise ConfigError(f"the name of an option must be a str, not {key!r}")
        return cls(**mapping)

    @property
    def read_committed(self) -> bool:
        """True if records of open and aborted transactions are not returned."""
        return self.isolation_level == "read_committed"

    def select(self, group: type[T]) -> T:
        """Returns an instance of `group`, a class of `option_groups.py`, with the values of this configuration."""
        return group({name: getattr(self, name) for name in group.__annotations__})

    def refers(self, name: str) -> bool:
        """Returns True if the option `name`, a secret, is set to a reference or a callable.

        `secret` may then return a different value each time.
        """
        return kinds.refers(self.__dict__[name])

    def secret(self, name: str) -> str | None:
        """Returns the secret that an option contains or refers to. Raises ConfigError if it cannot be read."""
        try:
            return kinds.reveal(self.__dict__[name])
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None

    @property
    def partition_assignment_strategy(self) -> tuple[Any, ...]:
        """The value of `assignors`, under Java's name of the option."""
        return self.assignors

    def as_mapping(self) -> dict[str, Any]:
        """Returns all options by their names in snake_case, without secrets. Plugins receive this mapping."""
        return {name: self.__dict__[name] for name, row in OPTIONS.items() if not row.secret}

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to pickle. Raises TypeError if it contains a secret in clear text."""
        for name, row in OPTIONS.items():
            value = self.__dict__[name]
            if row.secret and value is not None and not kinds.refers(value):
                raise TypeError(
                    f"a configuration with {name} in clear text cannot be pickled; set env:NAME or file:PATH"
                )
        return self.__dict__

    def __copy__(self) -> ConsumerConfig:
        return self  # it is immutable

    def __deepcopy__(self, _: object) -> ConsumerConfig:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ConsumerConfig is immutable; create another one to set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ConsumerConfig is immutable; {name} cannot be deleted")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={OPTIONS[name].show(self.__dict__[name])}" for name in sorted(self.explicit))
        return f"ConsumerConfig({shown})"


def read_update(config: ConsumerConfig, options: Mapping[str, object]) -> dict[str, Any]:
    """Returns the checked values of options that the user sets while the consumer runs.

    Raises ConfigError for a value that is not allowed, and for an option that cannot change.
    """
    allowed = config._updatable
    fixed = [spelling for spelling in options if canonical_name(spelling) not in allowed]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} cannot be changed while a consumer runs; update_options() takes {', '.join(allowed)}"
        )
    return {name: OPTIONS[name].read(options[spelling], spelling) for name, spelling in _canonical(options).items()}


def apply_update(config: ConsumerConfig, update: Mapping[str, Any]) -> None:
    """Set the result of `read_update`. Only the consumer that `config` was made for calls this.

    Raises ConfigError, without a change, if a value contradicts another option.
    """
    explicit = config.explicit.union(update)
    check_limits({**config.__dict__, **update}, explicit)
    config.__dict__.update(update, explicit=explicit)


def _canonical(options: Mapping[str, object]) -> dict[str, str]:
    """Returns a dict of the options that were set: the name of an option -> its name as the user wrote it.

    Raises ConfigError for an unknown option, and for an option that was set twice.
    """
    given: dict[str, str] = {}
    for spelling in options:
        name = canonical_name(spelling)
        if name not in OPTIONS:
            raise ConfigError(_unknown(spelling))
        if name in given:
            raise ConfigError(f"{given[name]} and {spelling} are names of the same option; use one of them")
        given[name] = spelling
    return given


def canonical_name(spelling: str) -> str:
    """Returns the name of an option for one of its spellings. An unknown name is returned in snake_case."""
    snake = spelling.replace(".", "_")
    return ALIASES.get(snake, snake)


def _unknown(spelling: str) -> str:
    import difflib  # both are imported for wrong names only

    from kconsumer.config.foreign_options import FOREIGN

    snake = spelling.replace(".", "_").lower()
    if snake in FOREIGN:
        return f"{spelling} is not an option of kconsumer: {FOREIGN[snake]}"
    near = difflib.get_close_matches(snake, [*OPTIONS, *ALIASES], n=1, cutoff=MIN_SIMILARITY)
    if not near:
        return f"{spelling} is not an option of kconsumer; help(kconsumer.ConsumerConfig) lists them"
    name = near[0].replace("_", ".") if "." in spelling else near[0]
    return f"{spelling} is not an option of kconsumer; did you mean {name}?"
