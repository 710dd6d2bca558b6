"""The options of a Consumer for type checkers and editors: names, types, meanings.

Written by docs/make_pages.py from the table in config/options.py, which also decides which values are valid; do not
edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Required, TypedDict

from kconsumer.types import IsolationLevel, OffsetReset


class DeserializerObject(Protocol):
    """A deserializer with the interface of Java's."""

    def deserialize(self, topic: Any, headers: Any, data: Any, /) -> Any:
        """Return the object that the bytes stand for."""
        ...


Deserializer = Callable[..., Any] | DeserializerObject | str


class ConsumerOptions(TypedDict, total=False):
    """The keyword arguments of `Consumer`, except `bootstrap_servers` and `group_id`."""

    bootstrap_resolve_timeout_ms: int
    """How long names may stay unresolved (KIP-909)."""
    client_dns_lookup: str
    """Try every address of a name in turn; or give bootstrap servers their canonical names, too."""
    group_instance_id: str | None
    """Static membership: a restart within session_timeout_ms moves no partition (KIP-345)."""
    group_protocol: str
    """How the group agrees on an assignment."""
    engine: str | None
    """Where I/O runs: in calls (classic) or on a network thread. Default: by group_protocol."""
    group_remote_assignor: str | None
    """The broker's assignor to use (uniform, range)."""
    session_timeout_ms: int
    """Without a heartbeat for this long the broker removes the member."""
    heartbeat_interval_ms: int
    """How often to send heartbeats; less than session_timeout_ms."""
    assignors: Sequence[object]
    """Assignors, most wanted first: names, classes or instances. Alias: partition_assignment_strategy."""
    max_poll_interval_ms: int
    """Longest time between two polls before the member leaves; also the rebalance timeout."""
    max_poll_records: int
    """Most records one poll returns; does not limit fetching."""
    enable_auto_commit: bool | None
    """Commit positions every auto_commit_interval_ms. Default: True with a group, else False."""
    auto_commit_interval_ms: int
    """Time between automatic commits."""
    auto_offset_reset: str | OffsetReset
    """Where to start without a usable position: latest, earliest, none (raise), by_duration:PT1H."""
    isolation_level: str | IsolationLevel
    """All records, or only those of no transaction or a committed one, up to the first open one."""
    exclude_internal_topics: bool
    """A subscribed re.Pattern does not match internal topics."""
    allow_auto_create_topics: bool
    """The broker may create topics that are asked for (if it is set up to)."""
    client_rack: str
    """The rack of this client, for fetching from a near replica (KIP-392)."""
    key_deserializer: Deserializer | None
    """Turns a key's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."""
    value_deserializer: Deserializer | None
    """Turns a value's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."""
    fetch_min_bytes: int
    """A broker answers when it has this much, or after fetch_max_wait_ms."""
    fetch_max_bytes: int
    """Most bytes of one fetch; a first batch that is larger still comes whole."""
    fetch_max_wait_ms: int
    """Longest time a broker holds a fetch; keep < request_timeout_ms."""
    max_partition_fetch_bytes: int
    """Most bytes of one partition in a fetch; a first batch that is larger comes whole."""
    check_crcs: bool
    """Check the CRC of every batch."""
    client_id: str
    """Name in broker logs, metrics and quotas. Default: consumer-[<group>-]<instance id or number>."""
    request_timeout_ms: int
    """A request older than this closes its connection."""
    default_api_timeout_ms: int
    """Timeout of methods that are called without one."""
    retry_backoff_ms: int
    """First wait before a retry; doubles with each failure."""
    retry_backoff_max_ms: int
    """Longest wait before a retry."""
    reconnect_backoff_ms: int
    """First wait before connecting to a broker again; doubles."""
    reconnect_backoff_max_ms: int
    """Longest wait before connecting again. Default: reconnect_backoff_ms if only that is set."""
    socket_connection_setup_timeout_ms: int
    """How long a connection may take to open; doubles with each failure."""
    socket_connection_setup_timeout_max_ms: int
    """Longest of these."""
    connections_max_idle_ms: int
    """Close a connection unused this long; -1: never."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1: the system's default."""
    receive_buffer_bytes: int
    """SO_RCVBUF, if you set it; else, and for -1, the system tunes it, which is faster."""
    metadata_max_age_ms: int
    """Refresh metadata at least this often; also how long a near replica is used."""
    metadata_recovery_strategy: str
    """What to do when no known broker answers: go back to bootstrap_servers or not (KIP-899)."""
    metadata_recovery_rebootstrap_trigger_ms: int
    """Without metadata for this long, bootstrap again (KIP-1102)."""
    metadata_cluster_check_enable: bool
    """Tell brokers which cluster and node this client means to reach (KIP-1242)."""
    metrics_sample_window_ms: int
    """Length of one sample of a metric."""
    metrics_num_samples: int
    """Samples that averages, extremes and rates are of."""
    metrics_recording_level: str
    """How much to record; a consumer's metrics are all of level INFO, as in Java."""
    enable_metrics_push: bool
    """Let the cluster ask for client metrics (KIP-714); this version sends none either way."""
    buffer_memory: int
    """Hard bound on fetched data held, in bytes, compressed and decompressed counted."""
    receive_message_max_bytes: int
    """Largest answer of a broker that is received; one that announces more ends its connection."""
    decompressed_batch_max_bytes: int | None
    """Largest output of one compressed batch. Default: 128 MiB, or 64 times the compressed size if that is more."""
    consumer_timeout_ms: int | float | None
    """Iterating over the consumer ends after this long without a record; None: never."""
    on_commit: Callable[..., object] | None
    """Called as (offsets, error) after each automatic or asynchronous commit."""
    interceptors: Sequence[object]
    """See every batch before it is returned, and every commit after it succeeded. Alias: interceptor_classes."""
    metrics_reporters: Sequence[object]
    """Told of every metric there is (MetricsReporter). Alias: metric_reporters."""
    security_protocol: str
    """How connections are protected."""
    ssl_context: object
    """A ready ssl.SSLContext, in place of all other ssl_ options."""
    ssl_cafile: str | None
    """PEM file of trusted certificates. Default: what the system trusts."""
    ssl_certfile: str | None
    """PEM file of the client's certificate, and of those that vouch for it."""
    ssl_keyfile: str | None
    """PEM file of its key, unless that is in ssl_certfile, too."""
    ssl_password: str | Callable[[], str] | None
    """Password of an encrypted key."""
    ssl_check_hostname: bool
    """The broker's certificate must name its host."""
    ssl_protocol: str
    """Highest TLS version; TLS: the highest there is."""
    ssl_enabled_protocols: Sequence[str]
    """TLS versions allowed, of TLSv1.2 and TLSv1.3."""
    ssl_cipher_suites: Sequence[str]
    """Ciphers allowed, by Java's names or OpenSSL's; empty: OpenSSL's choice."""
    ssl_endpoint_identification_algorithm: str
    """Java's spelling of ssl_check_hostname; "" disables the check."""
    ssl_keystore_type: str
    """Form of the keystore; only PEM is read, which need not be said."""
    ssl_keystore_location: str | None
    """Java's ssl_certfile: PEM file of certificate and key."""
    ssl_keystore_password: str | Callable[[], str] | None
    """Password of a JKS or PKCS12 store; PEM has none."""
    ssl_keystore_key: str | Callable[[], str] | None
    """The client's key as PEM text."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificate as PEM text, and those that vouch for it."""
    ssl_key_password: str | Callable[[], str] | None
    """Java's ssl_password."""
    ssl_truststore_type: str
    """Form of the truststore; only PEM is read, which need not be said."""
    ssl_truststore_location: str | None
    """Java's ssl_cafile: PEM file of trusted certificates."""
    ssl_truststore_password: str | Callable[[], str] | None
    """Password of a JKS or PKCS12 store; PEM has none."""
    ssl_truststore_certificates: str | None
    """Trusted certificates as PEM text."""
    sasl_mechanism: str
    """How to log in (security_protocol SASL_PLAINTEXT or SASL_SSL)."""
    sasl_plain_username: str | Callable[[], str] | None
    """User for PLAIN and SCRAM. References are read anew for each login."""
    sasl_plain_password: str | Callable[[], str] | None
    """Password for PLAIN and SCRAM. References are read anew for each login."""
    sasl_scram_tokenauth: bool
    """User and password are the id and HMAC of a delegation token (SCRAM)."""
    sasl_oauth_token_provider: Callable[..., object] | object | None
    """Returns a token, or (token, expires_at_s); called on a thread of its own."""
    sasl_oauth_extensions: Mapping[str, str] | str | None
    """Extensions to send with the token (OAUTHBEARER)."""
    sasl_jaas_config: str | Callable[[], str] | None
    """One JAAS login entry, as Java takes it, in place of the options for the same."""
    sasl_kerberos_service_name: str | None
    """The brokers' service name: the first part of their principal."""
    sasl_kerberos_principal: str | None
    """Who logs in; without it whoever has a ticket."""
    sasl_kerberos_keytab: str | None
    """File with the principal's key; without it a ticket is needed (kinit)."""
    sasl_login_refresh_window_factor: float
    """Logins ask for a new token after this share of the old one's life."""
    sasl_login_refresh_window_jitter: float
    """Random part added to it, at most."""
    sasl_login_refresh_min_period_seconds: int
    """Least time before a new token, if it lives that long."""
    sasl_login_refresh_buffer_seconds: int
    """Time to keep before a token expires, if it lives that long."""
    sasl_login_connect_timeout_ms: int | None
    """Token endpoint: how long connecting may take; None: 10 s."""
    sasl_login_read_timeout_ms: int | None
    """Token endpoint: how long it may be silent; None: 10 s."""
    sasl_login_retry_backoff_ms: int
    """Token endpoint: first wait before asking again; doubles."""
    sasl_login_retry_backoff_max_ms: int
    """Token endpoint: longest wait, and how long it is asked again."""
    sasl_oauthbearer_token_endpoint_url: str | None
    """Where tokens come from, by the client-credentials flow."""
    sasl_oauthbearer_client_credentials_client_id: str | None
    """Client id for it."""
    sasl_oauthbearer_client_credentials_client_secret: str | Callable[[], str] | None
    """Client secret for it. References are read anew for each token."""
    sasl_oauthbearer_scope: str | None
    """Scope to ask for."""
    sasl_oauthbearer_header_urlencode: bool
    """Encode client id and secret for URLs before they go into the header (RFC 6749, 2.3.1)."""
    partition_assignment_strategy: Sequence[object]
    """Assignors, most wanted first: names, classes or instances. Alias: partition_assignment_strategy."""
    interceptor_classes: Sequence[object]
    """See every batch before it is returned, and every commit after it succeeded. Alias: interceptor_classes."""
    metric_reporters: Sequence[object]
    """Told of every metric there is (MetricsReporter). Alias: metric_reporters."""
    auto_commit_enable: bool | None
    """Commit positions every auto_commit_interval_ms. Default: True with a group, else False."""
    fetch_wait_max_ms: int
    """Longest time a broker holds a fetch; keep < request_timeout_ms."""
    fetch_message_max_bytes: int
    """Most bytes of one partition in a fetch; a first batch that is larger comes whole."""
    ssl_ca_location: str | None
    """PEM file of trusted certificates. Default: what the system trusts."""
    ssl_ca_pem: str | None
    """Trusted certificates as PEM text."""
    ssl_certificate_location: str | None
    """PEM file of the client's certificate, and of those that vouch for it."""
    ssl_certificate_pem: str | None
    """The client's certificate as PEM text, and those that vouch for it."""
    ssl_key_location: str | None
    """PEM file of its key, unless that is in ssl_certfile, too."""
    ssl_key_pem: str | Callable[[], str] | None
    """The client's key as PEM text."""
    sasl_mechanisms: str
    """How to log in (security_protocol SASL_PLAINTEXT or SASL_SSL)."""
    sasl_username: str | Callable[[], str] | None
    """User for PLAIN and SCRAM. References are read anew for each login."""
    sasl_password: str | Callable[[], str] | None
    """Password for PLAIN and SCRAM. References are read anew for each login."""
    sasl_oauthbearer_client_id: str | None
    """Client id for it."""
    sasl_oauthbearer_client_secret: str | Callable[[], str] | None
    """Client secret for it. References are read anew for each token."""
    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    """Extensions to send with the token (OAUTHBEARER)."""


class AllOptions(ConsumerOptions, total=False):
    """The keyword arguments of `ConsumerConfig`."""

    bootstrap_servers: Required[str | Sequence[str | tuple[str, int]]]
    """Brokers to connect to first; the rest of the cluster is found through them."""
    group_id: str | None
    """The consumer group."""
