"""The options of consumers for type checkers and editors: names, types, meanings.

Written by docs/make_pages.py from the table in config/options.py, which also decides which values are valid; do not
edit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Required, TypedDict

from kconsumer.types import IsolationLevel, OffsetReset

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key = TypeVar("Key", default=bytes | None)  # the types that deserializers return
    Value = TypeVar("Value", default=bytes | None)
else:
    from typing import TypeVar

    Key, Value = TypeVar("Key"), TypeVar("Value")

T_co = TypeVar("T_co", covariant=True)


class DeserializerObject(Protocol[T_co]):
    """An object with the method of Java's interface `Deserializer`."""

    def deserialize(self, topic: Any, headers: Any, data: Any, /) -> T_co:
        """Returns the deserialized object."""
        ...


Deserializer = Callable[..., Key] | DeserializerObject[Key]
AsyncDeserializer = Callable[..., Awaitable[Key]] | DeserializerObject[Awaitable[Key]]


class CommonOptions(TypedDict, total=False):
    """The options that all consumers have. The classes below have all others."""

    bootstrap_resolve_timeout_ms: int
    """How long to wait until one of these names can be resolved, before a call raises an error (KIP-909)."""
    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """Try every address of a name; or also replace bootstrap servers by their canonical names."""
    max_poll_interval_ms: int
    """Maximum time between two polls; then the member leaves the group. Also the rebalance timeout."""
    max_poll_records: int
    """Maximum number of records that a poll returns; does not limit fetching."""
    enable_auto_offset_store: bool
    """False: commits contain what store_offsets() has stored, in place of the positions."""
    allow_auto_create_topics: bool
    """Let brokers create topics that do not exist (if they are configured to)."""
    client_rack: str
    """The rack of this client, to fetch from a replica in the same rack (KIP-392)."""
    record_filter: Callable[..., object] | None
    """Drops records before deserializers: HeaderFilter, KeyFilter, or a callable (record) -> bool."""
    fetch_min_bytes: int
    """A broker responds when it has this many bytes, or after fetch_max_wait_ms."""
    fetch_max_bytes: int
    """Maximum size of a fetch; a first batch that is larger is returned completely."""
    fetch_max_wait_ms: int
    """Maximum time a broker delays a fetch; less than request_timeout_ms, by default at most half of it."""
    check_crcs: bool
    """Check the CRC of every batch."""
    client_id: str
    """Name in broker logs, metrics and quotas. Default: consumer-[<group>-]<instance id or number>."""
    request_timeout_ms: int
    """A connection with a request older than this is closed."""
    default_api_timeout_ms: int
    """Timeout of methods that are called without a timeout."""
    retry_backoff_ms: int
    """First backoff before a retry; doubles with each failure, with 20 % of jitter."""
    retry_backoff_max_ms: int
    """Maximum backoff before a retry."""
    reconnect_backoff_ms: int
    """First backoff before another connection attempt to a broker; doubles with each failure."""
    reconnect_backoff_max_ms: int
    """Maximum backoff before another connection attempt. Default: reconnect_backoff_ms if only that is set."""
    socket_connection_setup_timeout_ms: int
    """Timeout of a connection attempt; doubles with each failure."""
    socket_connection_setup_timeout_max_ms: int
    """Maximum timeout of a connection attempt."""
    connections_max_idle_ms: int
    """Close connections that were not used for this time; -1: never."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1: the system's default."""
    receive_buffer_bytes: int
    """SO_RCVBUF. If it is not set, or -1, the system adapts the buffer, which is faster."""
    metadata_max_age_ms: int
    """Maximum age of metadata; also how long a preferred read replica is used."""
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    """Whether to return to bootstrap_servers if no known broker is available (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Return to bootstrap_servers after this time without metadata (KIP-1102)."""
    metadata_cluster_check_enable: bool
    """Send the expected cluster and node ids to brokers (KIP-1242)."""
    metrics_sample_window_ms: int
    """Length of a sample of a metric."""
    metrics_num_samples: int
    """Number of samples of averages, minima, maxima and rates."""
    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]
    """Level of metrics to record; all metrics of a consumer have the level INFO, as in Java."""
    enable_metrics_push: bool
    """Push metrics to brokers that request them (KIP-714)."""
    receive_message_max_bytes: int
    """Maximum size of a response; a connection is closed if a response is larger."""
    decompressed_batch_max_bytes: int | None
    """Maximum decompressed size of a batch. Default: 128 MiB, or 64 times the compressed size if that is more."""
    consumer_timeout_ms: int | float | None
    """Iteration over the consumer ends after this time without a record; None: never."""
    metrics_reporters: Sequence[object]
    """Notified of all metrics (MetricsReporter). Alias: metric_reporters."""
    address_map: Mapping[tuple[str, int], tuple[str, int]] | Callable[[str, int], tuple[str, int] | None] | str | None
    """Connect to other addresses than brokers advertise, as of port-forwards; TLS checks the advertised names."""
    socks_proxy: str | Callable[[], str] | None
    """Connect to brokers through a SOCKS5 proxy, which resolves their names; TLS checks the names of brokers."""
    http_proxy: str | Callable[[], str] | None
    """The same through an HTTP proxy (CONNECT)."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Encryption and authentication of connections."""
    ssl_context: object
    """An ssl.SSLContext, in place of all other ssl_ options."""
    ssl_cafile: str | None
    """PEM file of trusted certificates. Default: those that the system trusts."""
    ssl_certfile: str | None
    """PEM file of the client's certificate chain."""
    ssl_keyfile: str | None
    """PEM file of the client's key. Default: the key in ssl_certfile."""
    ssl_password: str | Callable[[], str] | None
    """Password of an encrypted key."""
    ssl_check_hostname: bool
    """The broker's certificate must name its host."""
    ssl_protocol: Literal["TLSv1.2", "TLSv1.3", "TLS"]
    """Maximum TLS version; TLS: the newest one."""
    ssl_enabled_protocols: Sequence[str]
    """Allowed TLS versions, of TLSv1.2 and TLSv1.3."""
    ssl_cipher_suites: Sequence[str]
    """Allowed ciphers, by the names of Java or OpenSSL; empty: the defaults of OpenSSL."""
    ssl_endpoint_identification_algorithm: str
    """Java's form of ssl_check_hostname; "" disables the check."""
    ssl_keystore_type: Literal["JKS", "PKCS12", "PEM"]
    """Format of the keystore; only PEM is supported, also if it is not set."""
    ssl_keystore_location: str | None
    """Java's ssl_certfile: PEM file of certificate and key."""
    ssl_keystore_password: str | Callable[[], str] | None
    """Password of a JKS or PKCS12 store; PEM has none."""
    ssl_keystore_key: str | Callable[[], str] | None
    """The client's key as PEM text."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificate chain as PEM text."""
    ssl_key_password: str | Callable[[], str] | None
    """Java's ssl_password."""
    ssl_truststore_type: Literal["JKS", "PKCS12", "PEM"]
    """Format of the truststore; only PEM is supported, also if it is not set."""
    ssl_truststore_location: str | None
    """Java's ssl_cafile: PEM file of trusted certificates."""
    ssl_truststore_password: str | Callable[[], str] | None
    """Password of a JKS or PKCS12 store; PEM has none."""
    ssl_truststore_certificates: str | None
    """Trusted certificates as PEM text."""
    sasl_mechanism: Literal["GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
    """The SASL mechanism (security_protocol SASL_PLAINTEXT or SASL_SSL). AWS_MSK_IAM logs in by OAUTHBEARER."""
    sasl_login_callback_handler_class: str | None
    """Java's class of AWS, Google or Azure; its Python library gets tokens."""
    sasl_client_callback_handler_class: str | None
    """AWS's class for the mechanism AWS_MSK_IAM."""
    sasl_plain_username: str | Callable[[], str] | None
    """User name for PLAIN and SCRAM. References are read for each authentication."""
    sasl_plain_password: str | Callable[[], str] | None
    """Password for PLAIN and SCRAM. References are read for each authentication."""
    sasl_scram_tokenauth: bool
    """User name and password are the id and the HMAC of a delegation token (SCRAM)."""
    sasl_oauth_token_provider: Callable[..., object] | str | object | None
    """Returns a token, or (token, expires_at_s); called on a background thread."""
    sasl_oauth_extensions: Mapping[str, str] | str | None
    """Extensions that are sent with the token (OAUTHBEARER)."""
    sasl_jaas_config: str | Callable[[], str] | None
    """A JAAS login entry, as in Java, in place of the equivalent options."""
    sasl_kerberos_service_name: str | None
    """The service name of the brokers: the first part of their principal."""
    sasl_kerberos_principal: str | None
    """The client's principal. Default: the principal of the ticket."""
    sasl_kerberos_keytab: str | None
    """File with the principal's key. Without it a ticket is required (kinit)."""
    sasl_login_refresh_window_factor: float
    """Share of a token's lifetime after which a new one is requested."""
    sasl_login_refresh_window_jitter: float
    """Maximum random share that is added to sasl_login_refresh_window_factor."""
    sasl_login_refresh_min_period_seconds: int
    """Minimum time before a token is refreshed, if its lifetime allows it."""
    sasl_login_refresh_buffer_seconds: int
    """Minimum time between refresh and expiry of a token, if its lifetime allows it."""
    sasl_login_connect_timeout_ms: int | None
    """Token endpoint: timeout of connecting; None: 10 s."""
    sasl_login_read_timeout_ms: int | None
    """Token endpoint: timeout of reading; None: 10 s."""
    sasl_login_retry_backoff_ms: int
    """Token endpoint: first backoff before a retry; doubles with each failure."""
    sasl_login_retry_backoff_max_ms: int
    """Token endpoint: maximum backoff, and for how long requests are retried."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """The token endpoint, for the client-credentials flow."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """Client id for the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | Callable[[], str] | None
    """Client secret for the token endpoint. References are read for each token."""
    sasl_oauthbearer_scope: str | None
    """Scope to request."""
    sasl_oauthbearer_header_urlencode: bool
    """URL-encode client id and secret in the header (RFC 6749, 2.3.1)."""
    metric_reporters: Sequence[object]
    """Notified of all metrics (MetricsReporter). Alias: metric_reporters."""
    fetch_wait_max_ms: int
    """Maximum time a broker delays a fetch; less than request_timeout_ms, by default at most half of it."""
    socks5_proxy: str | Callable[[], str] | None
    """Connect to brokers through a SOCKS5 proxy, which resolves their names; TLS checks the names of brokers."""
    ssl_ca_location: str | None
    """PEM file of trusted certificates. Default: those that the system trusts."""
    ssl_ca_pem: str | None
    """Trusted certificates as PEM text."""
    ssl_certificate_location: str | None
    """PEM file of the client's certificate chain."""
    ssl_certificate_pem: str | None
    """The client's certificate chain as PEM text."""
    ssl_key_location: str | None
    """PEM file of the client's key. Default: the key in ssl_certfile."""
    ssl_key_pem: str | Callable[[], str] | None
    """The client's key as PEM text."""
    sasl_mechanisms: Literal["GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
    """The SASL mechanism (security_protocol SASL_PLAINTEXT or SASL_SSL). AWS_MSK_IAM logs in by OAUTHBEARER."""
    sasl_username: str | Callable[[], str] | None
    """User name for PLAIN and SCRAM. References are read for each authentication."""
    sasl_password: str | Callable[[], str] | None
    """Password for PLAIN and SCRAM. References are read for each authentication."""
    sasl_oauthbearer_client_id: str | None
    """Client id for the token endpoint."""
    sasl_oauthbearer_client_secret: str | Callable[[], str] | None
    """Client secret for the token endpoint. References are read for each token."""
    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    """Extensions that are sent with the token (OAUTHBEARER)."""


class OnlyConsumer(CommonOptions, total=False):
    """The options of `Consumer` that a share consumer does not have."""

    group_instance_id: str | None
    """Static membership: a restart within session_timeout_ms causes no rebalance (KIP-345)."""
    group_protocol: Literal["classic", "consumer"]
    """The group protocol: classic (JoinGroup, SyncGroup) or consumer (KIP-848)."""
    engine: Literal["classic", "threaded"] | None
    """Where I/O runs: in calls (classic) or on a network thread (threaded). Default: by group_protocol."""
    group_remote_assignor: str | None
    """The broker's assignor to use (uniform, range)."""
    session_timeout_ms: int
    """The coordinator removes a member that sends no heartbeat for this time."""
    heartbeat_interval_ms: int
    """Interval of heartbeats; must be less than session_timeout_ms."""
    assignors: Sequence[object]
    """Assignors in order of preference: names, classes or instances. Alias: partition_assignment_strategy."""
    enable_auto_commit: bool | None
    """Commit positions every auto_commit_interval_ms. Default: True with a group, otherwise False."""
    auto_commit_interval_ms: int
    """Interval of auto-commits."""
    auto_offset_reset: str | OffsetReset
    """Where to start without a usable position: latest, earliest, none (raise an error), by_duration:PT1H."""
    auto_offset_reset_new_partitions: Literal["earliest", "latest"] | None
    """Where partitions start that appeared after their topic was subscribed (KIP-1327). Default: auto_offset_reset."""
    isolation_level: Literal["read_uncommitted", "read_committed"] | IsolationLevel
    """read_committed: skip records of aborted transactions, and read only up to the first open transaction."""
    exclude_internal_topics: bool
    """A subscribed re.Pattern does not match internal topics."""
    max_partition_fetch_bytes: int
    """Maximum size of one partition in a fetch; a first batch that is larger is returned completely."""
    buffer_memory: int
    """Bound of the memory for fetched data, in bytes, compressed and decompressed."""
    on_commit: Callable[..., object] | None
    """Called as (offsets, error) after each auto-commit and asynchronous commit."""
    interceptors: Sequence[object]
    """Called with records before poll returns them, and with offsets after a commit. Alias: interceptor_classes."""
    partition_assignment_strategy: Sequence[object]
    """Assignors in order of preference: names, classes or instances. Alias: partition_assignment_strategy."""
    interceptor_classes: Sequence[object]
    """Called with records before poll returns them, and with offsets after a commit. Alias: interceptor_classes."""
    auto_commit_enable: bool | None
    """Commit positions every auto_commit_interval_ms. Default: True with a group, otherwise False."""
    fetch_message_max_bytes: int
    """Maximum size of one partition in a fetch; a first batch that is larger is returned completely."""


class OnlyShareConsumer(CommonOptions, total=False):
    """The options that only a share consumer has."""

    share_acknowledgement_mode: Literal["implicit", "explicit"]
    """The next poll accepts the records of the last one (implicit), or each is acknowledged (explicit)."""
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    """Acquire whole batches, so that a poll may exceed max_poll_records; or never exceed it (KIP-1206)."""
    on_acknowledge: Callable[..., object] | None
    """Called as (offsets, error) when a broker has processed acknowledgements."""


class DeserializerOptions(TypedDict, total=False):
    """The deserializers, which decide the types of keys and values."""

    key_deserializer: Deserializer[Any] | str | None
    """Turns a key's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."""
    value_deserializer: Deserializer[Any] | str | None
    """Turns a value's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."""


class ConsumerKeywords(OnlyConsumer, total=False):
    """The keyword arguments of `Consumer`, except the deserializers."""

    bootstrap_servers: Required[str | Sequence[str]]
    group_id: str | None


class ConsumerOptions(OnlyConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `Consumer` and `AsyncConsumer`, for a dict that is passed as `**options`."""

    bootstrap_servers: str | Sequence[str]
    group_id: str | None


class ShareConsumerOptions(OnlyShareConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `ShareConsumer` and `AsyncShareConsumer`, for a dict that is passed as `**options`."""

    bootstrap_servers: str | Sequence[str]
    group_id: str


class ShareKeywords(OnlyShareConsumer, total=False):
    """The keyword arguments of `ShareConsumer`, except the deserializers."""

    bootstrap_servers: Required[str | Sequence[str]]
    group_id: Required[str]


class MockOptions(OnlyConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `MockConsumer`, except `bootstrap_servers` and `group_id`."""


class AllOptions(OnlyConsumer, OnlyShareConsumer, DeserializerOptions, total=False):
    """The keyword arguments of `ConsumerConfig`."""

    bootstrap_servers: Required[str | Sequence[str | tuple[str, int]]]
    """Brokers to connect to first; the rest of the cluster is found through them."""
    group_id: str | None
    """The consumer group."""


class UpdatableOptions(TypedDict, total=False):
    """The keyword arguments of `update_options`."""

    max_poll_records: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    buffer_memory: int
