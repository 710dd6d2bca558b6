"""Every option of the consumer in one table, and the checked, frozen result of filling it in.

The table has one row per option: type, allowed values, default and meaning. Names are the Java consumer's
keys with `_` for `.`, defaults and units are Java's (ConsumerConfig of Kafka 4.4); options of our own have a
section to themselves. What an option does is decided by the code that reads it, not here.

Everything wrong with a configuration is a `ConfigError` at construction: an unknown name, a value that does
not fit, two options that contradict each other, an option whose feature this version does not have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, Unpack

from kconsumer.config import kinds
from kconsumer.config.kinds import Option
from kconsumer.config.kinds import option as _option
from kconsumer.deferred_calls import get_logger
from kconsumer.errors import ConfigError
from kconsumer.types import OffsetReset

if TYPE_CHECKING:
    from kconsumer.config.signature import AllOptions

log = get_logger(__name__)
T = TypeVar("T", bound=NamedTuple)

ANSWER_BYTES = 512  # of an answer to a fetch, besides what is fetched
REQUIRED: Any = object()  # the default of an option that has none


class _Table:
    """The rows. The annotation is the type of the value after checking."""

    # fmt: off

    # --- group and consumption ---
    bootstrap_servers: tuple[tuple[str, int], ...] = _option(
        kinds.SERVERS, REQUIRED, "Brokers to ask first; the rest of the cluster is found through them."
    )
    bootstrap_resolve_timeout_ms: int = _option(
        kinds.int64(), 0, "How long names may stay unresolved (KIP-909).",
        later=("waiting for names to resolve", "leave it out; names are resolved on each connection attempt")
    )
    client_dns_lookup: str = _option(
        kinds.choice("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "use_all_dns_ips",
        "Try every address of a name in turn; or give bootstrap servers their canonical names, too."
    )
    group_id: str | None = _option(
        kinds.text(allow_empty=False), None, "The consumer group. Without one: assign() only, no commits."
    )
    group_instance_id: str | None = _option(
        kinds.INSTANCE_ID, None,
        "Static membership: a restart within session_timeout_ms moves no partition (KIP-345)."
    )
    group_protocol: str = _option(
        kinds.choice("classic", "consumer", ignore_case=True), "classic",
        "How the group agrees on an assignment."
    )
    engine: str | None = _option(
        kinds.choice("classic", "threaded"), None,
        "Where I/O runs: in calls (classic) or on a network thread. Default: by group_protocol."
    )
    group_remote_assignor: str | None = _option(
        kinds.text(allow_empty=False), None, "The broker's assignor to use (uniform, range).",
        protocol="consumer"
    )
    session_timeout_ms: int = _option(
        kinds.int32(1), 45_000, "Without a heartbeat for this long the broker removes the member.",
        protocol="classic"
    )
    heartbeat_interval_ms: int = _option(
        kinds.int32(1), 3_000, "How often to send heartbeats; less than session_timeout_ms.",
        protocol="classic"
    )
    assignors: tuple[Any, ...] = _option(
        kinds.ASSIGNORS, ("range", "cooperative-sticky"),
        "Assignors, most wanted first: names, classes or instances. Alias: partition_assignment_strategy.",
        protocol="classic"
    )
    max_poll_interval_ms: int = _option(
        kinds.int32(1), 300_000,
        "Longest time between two polls before the member leaves; also the rebalance timeout."
    )
    max_poll_records: int = _option(
        kinds.int32(1), 500, "Most records one poll returns; does not limit fetching."
    )
    enable_auto_commit: bool = _option(
        kinds.BOOLEAN, None,
        "Commit positions every auto_commit_interval_ms. Default: True with a group, else False."
    )
    auto_commit_interval_ms: int = _option(kinds.int32(), 5_000, "Time between automatic commits.")
    auto_offset_reset: OffsetReset = _option(
        kinds.RESET, OffsetReset.LATEST,
        "Where to start without a usable position: latest, earliest, none (raise), by_duration:PT1H."
    )
    isolation_level: str = _option(
        kinds.choice("read_uncommitted", "read_committed", annotation="str | IsolationLevel"), "read_uncommitted",
        "All records, or only those of no transaction or a committed one, up to the first open one.",
    )
    exclude_internal_topics: bool = _option(
        kinds.BOOLEAN, True, "A subscribed re.Pattern does not match internal topics."
    )
    allow_auto_create_topics: bool = _option(
        kinds.BOOLEAN, True, "The broker may create topics that are asked for (if it is set up to)."
    )
    client_rack: str = _option(
        kinds.text(), "", "The rack of this client, for fetching from a near replica (KIP-392)."
    )
    key_deserializer: Any = _option(
        kinds.DESERIALIZER, None,
        "Turns a key's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."
    )
    value_deserializer: Any = _option(
        kinds.DESERIALIZER, None,
        "Turns a value's bytes into an object; None: bytes. Deserializers of confluent-kafka work, too (Avro, …)."
    )

    # --- fetching ---
    fetch_min_bytes: int = _option(
        kinds.int32(), 1, "A broker answers when it has this much, or after fetch_max_wait_ms."
    )
    fetch_max_bytes: int = _option(
        kinds.int32(), 52_428_800,
        "Most bytes of one fetch; a first batch that is larger still comes whole."
    )
    fetch_max_wait_ms: int = _option(
        kinds.int32(), 500, "Longest time a broker holds a fetch; keep < request_timeout_ms."
    )
    max_partition_fetch_bytes: int = _option(
        kinds.int32(), 1_048_576,
        "Most bytes of one partition in a fetch; a first batch that is larger comes whole."
    )
    check_crcs: bool = _option(kinds.BOOLEAN, True, "Check the CRC of every batch.")

    # --- client, network, metadata, metrics ---
    client_id: str = _option(
        kinds.text(), "",
        "Name in broker logs, metrics and quotas. Default: consumer-[<group>-]<instance id or number>."
    )
    request_timeout_ms: int = _option(
        kinds.int32(), 30_000, "A request older than this closes its connection."
    )
    default_api_timeout_ms: int = _option(
        kinds.int32(), 60_000, "Timeout of methods that are called without one."
    )
    retry_backoff_ms: int = _option(
        kinds.int64(), 100, "First wait before a retry; doubles with each failure."
    )
    retry_backoff_max_ms: int = _option(kinds.int64(), 1_000, "Longest wait before a retry.")
    reconnect_backoff_ms: int = _option(
        kinds.int64(), 50, "First wait before connecting to a broker again; doubles."
    )
    reconnect_backoff_max_ms: int = _option(
        kinds.int64(), 1_000,
        "Longest wait before connecting again. Default: reconnect_backoff_ms if only that is set."
    )
    socket_connection_setup_timeout_ms: int = _option(
        kinds.int64(), 10_000, "How long a connection may take to open; doubles with each failure."
    )
    socket_connection_setup_timeout_max_ms: int = _option(kinds.int64(), 30_000, "Longest of these.")
    connections_max_idle_ms: int = _option(
        kinds.int64(-1), 540_000, "Close a connection unused this long; -1: never."
    )
    send_buffer_bytes: int = _option(kinds.int32(-1), 131_072, "SO_SNDBUF; -1: the system's default.")
    receive_buffer_bytes: int = _option(
        kinds.int32(-1), 65_536, "SO_RCVBUF, if you set it; else, and for -1, the system tunes it, which is faster."
    )
    metadata_max_age_ms: int = _option(
        kinds.int64(), 300_000,
        "Refresh metadata at least this often; also how long a near replica is used."
    )
    metadata_recovery_strategy: str = _option(
        kinds.choice("none", "rebootstrap", ignore_case=True), "rebootstrap",
        "What to do when no known broker answers: go back to bootstrap_servers or not (KIP-899)."
    )
    metadata_recovery_rebootstrap_trigger_ms: int = _option(
        kinds.int64(), 300_000, "Without metadata for this long, bootstrap again (KIP-1102)."
    )
    metadata_cluster_check_enable: bool = _option(
        kinds.BOOLEAN, True, "Tell brokers which cluster and node this client means to reach (KIP-1242)."
    )
    metrics_sample_window_ms: int = _option(kinds.int64(), 30_000, "Length of one sample of a metric.")
    metrics_num_samples: int = _option(kinds.int32(1), 2, "Samples that averages, extremes and rates are of.")
    metrics_recording_level: str = _option(
        kinds.choice("INFO", "DEBUG", "TRACE", ignore_case=True), "INFO",
        "How much to record; a consumer's metrics are all of level INFO, as in Java."
    )
    enable_metrics_push: bool = _option(
        kinds.BOOLEAN, True,
        "Let the cluster ask for client metrics (KIP-714); this version sends none either way."
    )

    # --- our own ---
    buffer_memory: int = _option(
        kinds.int64(1), 64 << 20,
        "Hard bound on fetched data held, in bytes, compressed and decompressed counted.", own=True
    )
    receive_message_max_bytes: int = _option(
        kinds.int32(1_000), 1 << 30,
        "Largest answer of a broker that is received; one that announces more ends its connection.", own=True
    )
    decompressed_batch_max_bytes: int | None = _option(
        kinds.int32(1), None,
        "Largest output of one compressed batch. Default: 128 MiB, or 64 times the compressed size if that is more.",
        own=True,
    )
    consumer_timeout_ms: int | None = _option(
        kinds.LIMIT_MS, None,
        "Iterating over the consumer ends after this long without a record; None: never.", own=True
    )
    on_commit: Callable[..., object] | None = _option(
        kinds.CALLABLE, None, "Called as (offsets, error) after each automatic or asynchronous commit.",
        own=True
    )
    interceptors: tuple[Any, ...] = _option(
        kinds.INTERCEPTORS, (),
        "See every batch before it is returned, and every commit after it succeeded. Alias: interceptor_classes.",
        own=True
    )
    metrics_reporters: tuple[Any, ...] = _option(
        kinds.REPORTERS, (), "Told of every metric there is (MetricsReporter). Alias: metric_reporters.", own=True
    )

    # --- security: names as in kafka-python, and Java's PEM keys ---
    security_protocol: str = _option(
        kinds.choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", ignore_case=True), "PLAINTEXT",
        "How connections are protected."
    )
    ssl_context: Any = _option(
        kinds.OBJECT, None, "A ready ssl.SSLContext, in place of all other ssl_ options.", own=True
    )
    ssl_cafile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of trusted certificates. Default: what the system trusts.",
        own=True
    )
    ssl_certfile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of the client's certificate, and of those that vouch for it.",
        own=True
    )
    ssl_keyfile: str | None = _option(
        kinds.text(allow_empty=False), None, "PEM file of its key, unless that is in ssl_certfile, too.", own=True
    )
    ssl_password: str | None = _option(kinds.SECRET, None, "Password of an encrypted key.", own=True, secret=True)
    ssl_check_hostname: bool = _option(
        kinds.BOOLEAN, True, "The broker's certificate must name its host.", own=True
    )
    ssl_protocol: str = _option(
        kinds.choice("TLSv1.2", "TLSv1.3", "TLS"), "TLSv1.3", "Highest TLS version; TLS: the highest there is."
    )
    ssl_enabled_protocols: tuple[str, ...] = _option(
        kinds.WORDS, ("TLSv1.2", "TLSv1.3"), "TLS versions allowed, of TLSv1.2 and TLSv1.3."
    )
    ssl_cipher_suites: tuple[str, ...] = _option(
        kinds.WORDS, (), "Ciphers allowed, by Java's names or OpenSSL's; empty: OpenSSL's choice."
    )
    ssl_endpoint_identification_algorithm: str = _option(
        kinds.HOST_CHECK, "https",
        'Java\'s spelling of ssl_check_hostname; "" disables the check.'
    )
    ssl_keystore_type: str = _option(
        kinds.choice("JKS", "PKCS12", "PEM", ignore_case=True), "JKS",
        "Form of the keystore; only PEM is read, which need not be said."
    )
    ssl_keystore_location: str | None = _option(
        kinds.text(allow_empty=False), None, "Java's ssl_certfile: PEM file of certificate and key."
    )
    ssl_keystore_password: str | None = _option(
        kinds.SECRET, None, "Password of a JKS or PKCS12 store; PEM has none.", secret=True
    )
    ssl_keystore_key: str | None = _option(kinds.SECRET, None, "The client's key as PEM text.", secret=True)
    ssl_keystore_certificate_chain: str | None = _option(
        kinds.text(allow_empty=False), None, "The client's certificate as PEM text, and those that vouch for it."
    )
    ssl_key_password: str | None = _option(kinds.SECRET, None, "Java's ssl_password.", secret=True)
    ssl_truststore_type: str = _option(
        kinds.choice("JKS", "PKCS12", "PEM", ignore_case=True), "JKS",
        "Form of the truststore; only PEM is read, which need not be said."
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
        kinds.choice("GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), "GSSAPI",
        "How to log in (security_protocol SASL_PLAINTEXT or SASL_SSL)."
    )
    sasl_plain_username: str | None = _option(
        kinds.SECRET, None, "User for PLAIN and SCRAM. References are read anew for each login.", own=True
    )
    sasl_plain_password: str | None = _option(
        kinds.SECRET, None, "Password for PLAIN and SCRAM. References are read anew for each login.", own=True,
        secret=True
    )
    sasl_scram_tokenauth: bool = _option(
        kinds.BOOLEAN, False, "User and password are the id and HMAC of a delegation token (SCRAM).", own=True
    )
    sasl_oauth_token_provider: Callable[[], object] | None = _option(
        kinds.PROVIDER, None, "Returns a token, or (token, expires_at_s); called on a thread of its own.", own=True
    )
    sasl_oauth_extensions: Mapping[str, str] | None = _option(
        kinds.PAIRS, None, "Extensions to send with the token (OAUTHBEARER).", own=True
    )
    sasl_jaas_config: str | None = _option(
        kinds.SECRET, None, "One JAAS login entry, as Java takes it, in place of the options for the same.", secret=True
    )
    sasl_kerberos_service_name: str | None = _option(
        kinds.text(allow_empty=False), None, "The brokers' service name: the first part of their principal."
    )
    sasl_kerberos_principal: str | None = _option(
        kinds.text(allow_empty=False), None, "Who logs in; without it whoever has a ticket.", own=True
    )
    sasl_kerberos_keytab: str | None = _option(
        kinds.text(allow_empty=False), None, "File with the principal's key; without it a ticket is needed (kinit).",
        own=True
    )
    sasl_login_refresh_window_factor: float = _option(
        kinds.number(0.5, 1.0), 0.8, "Logins ask for a new token after this share of the old one's life."
    )
    sasl_login_refresh_window_jitter: float = _option(
        kinds.number(0.0, 0.25), 0.05, "Random part added to it, at most."
    )
    sasl_login_refresh_min_period_seconds: int = _option(
        kinds.integer(0, 900), 60, "Least time before a new token, if it lives that long."
    )
    sasl_login_refresh_buffer_seconds: int = _option(
        kinds.integer(0, 3600), 300, "Time to keep before a token expires, if it lives that long."
    )
    sasl_login_connect_timeout_ms: int | None = _option(
        kinds.int32(1), None, "Token endpoint: how long connecting may take; None: 10 s."
    )
    sasl_login_read_timeout_ms: int | None = _option(
        kinds.int32(1), None, "Token endpoint: how long it may be silent; None: 10 s."
    )
    sasl_login_retry_backoff_ms: int = _option(
        kinds.int64(), 100, "Token endpoint: first wait before asking again; doubles."
    )
    sasl_login_retry_backoff_max_ms: int = _option(
        kinds.int64(), 10_000, "Token endpoint: longest wait, and how long it is asked again."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = _option(
        kinds.HTTP_URL, None, "Where tokens come from, by the client-credentials flow."
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = _option(
        kinds.text(allow_empty=False), None, "Client id for it."
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = _option(
        kinds.SECRET, None, "Client secret for it. References are read anew for each token.", secret=True
    )
    sasl_oauthbearer_scope: str | None = _option(kinds.text(), None, "Scope to ask for.")
    sasl_oauthbearer_header_urlencode: bool = _option(
        kinds.BOOLEAN, False, "Encode client id and secret for URLs before they go into the header (RFC 6749, 2.3.1)."
    )
    # fmt: on


OPTIONS: dict[str, Option] = {name: row for name, row in vars(_Table).items() if isinstance(row, Option)}

# Other names of the same option: Java's, and those of other clients that mean the same and take the same values.
ALIASES = {
    "partition_assignment_strategy": "assignors",
    "interceptor_classes": "interceptors",
    "metric_reporters": "metrics_reporters",
    "metadata_broker_list": "bootstrap_servers",
    "auto_commit_enable": "enable_auto_commit",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
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
MIN_SIMILARITY = 0.8  # of a name to the one that a typo is taken for; lower values gave wrong advice

_client_numbers = itertools.count(1)  # next() on it is atomic


class ConsumerConfig(_Table):
    """A checked configuration: one attribute per option, never changed after construction.

    `explicit` holds the names (snake_case) the user gave, equal to the default or not. Raises ConfigError.
    """

    explicit: frozenset[str]

    def __init__(self, /, **options: Unpack[AllOptions]) -> None:
        named: Mapping[str, object] = options
        given = _canonical(named)
        values = {name: row.default for name, row in OPTIONS.items() if row.default is not REQUIRED}
        for name, spelling in given.items():
            values[name] = OPTIONS[name].read(named[spelling], spelling)
        if "bootstrap_servers" not in given:
            raise ConfigError('bootstrap_servers is required, for example bootstrap_servers="localhost:9092"')
        _derive(values, given)
        _derive_login(values, given)
        _check_together(values, given)
        self.__dict__.update(values, explicit=frozenset(given))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> ConsumerConfig:
        """From dotted Java keys or snake_case ones, mixed as they come; values typed or as text."""
        for key in mapping:
            if not isinstance(key, str):
                raise ConfigError(f"an option's name is a str, not {key!r}")
        return cls(**mapping)

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    def select(self, group: type[T]) -> T:
        """Returns a group of `option_groups.py` with the values of this configuration."""
        return group._make(getattr(self, name) for name in group._fields)

    def refers(self, name: str) -> bool:
        """Whether a secret option says where the secret is, so that it may be another one each time."""
        return kinds.refers(self.__dict__[name])

    def secret(self, name: str) -> str | None:
        """What a secret option holds, or refers to, at this moment. ConfigError if that cannot be had."""
        try:
            return kinds.reveal(self.__dict__[name])
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None

    @property
    def partition_assignment_strategy(self) -> tuple[Any, ...]:
        """Java's name of `assignors`."""
        return self.assignors

    def as_mapping(self) -> dict[str, Any]:
        """All options by snake_case name, as plugins are configured with; secrets are not theirs."""
        return {name: self.__dict__[name] for name, row in OPTIONS.items() if not row.secret}

    def __getstate__(self) -> dict[str, Any]:
        """TypeError rather than a pickle with a secret in it."""
        for name, row in OPTIONS.items():
            value = self.__dict__[name]
            if row.secret and value is not None and not kinds.refers(value):
                raise TypeError(f"a configuration with {name} in clear text is not pickled; give env:NAME or file:PATH")
        return self.__dict__

    def __copy__(self) -> ConsumerConfig:
        return self  # it never changes

    def __deepcopy__(self, _: object) -> ConsumerConfig:
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ConsumerConfig does not change; make a new one to set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a ConsumerConfig does not change; {name} stays")

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={OPTIONS[name].show(self.__dict__[name])}" for name in sorted(self.explicit))
        return f"ConsumerConfig({shown})"


def _canonical(options: Mapping[str, object]) -> dict[str, str]:
    """Option name -> the spelling the user gave it under. ConfigError for an unknown or a doubled one."""
    given: dict[str, str] = {}
    for spelling in options:
        name = canonical_name(spelling)
        if name not in OPTIONS:
            raise ConfigError(_unknown(spelling))
        if name in given:
            raise ConfigError(f"{given[name]} and {spelling} are two names of one option; give one of them")
        given[name] = spelling
    return given


def canonical_name(spelling: str) -> str:
    """Return the option's name for any of its spellings; a name that is no option is returned in snake_case."""
    snake = spelling.replace(".", "_")
    return ALIASES.get(snake, snake)


def _unknown(spelling: str) -> str:
    import difflib  # both for wrong names only; keeps them out of `import kconsumer`

    from kconsumer.config.foreign_options import FOREIGN

    snake = spelling.replace(".", "_").lower()
    if snake in FOREIGN:
        return f"{spelling} is not an option of kconsumer: {FOREIGN[snake]}"
    near = difflib.get_close_matches(snake, [*OPTIONS, *ALIASES], n=1, cutoff=MIN_SIMILARITY)
    if not near:
        return f"{spelling} is not an option of kconsumer; help(kconsumer.ConsumerConfig) lists them"
    name = near[0].replace("_", ".") if "." in spelling else near[0]
    return f"{spelling} is not an option of kconsumer; did you mean {name}?"


def _derive(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Defaults that depend on other options, by Java's rules."""
    group, instance = values["group_id"], values["group_instance_id"]
    if not values["client_id"]:
        suffix = instance or next(_client_numbers)
        values["client_id"] = f"consumer-{suffix}" if group is None else f"consumer-{group}-{suffix}"
    if values["enable_auto_commit"] is None:
        values["enable_auto_commit"] = group is not None
    if "reconnect_backoff_ms" in given and "reconnect_backoff_max_ms" not in given:
        values["reconnect_backoff_max_ms"] = values["reconnect_backoff_ms"]


def _derive_login(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """What the options of a login say together."""
    if values["security_protocol"].startswith("SASL"):
        from kconsumer.config import sasl_rules  # for those who log in

        sasl_rules.derive(values, given, OPTIONS)
    elif unused := [spelling for name, spelling in given.items() if name.startswith("sasl_")]:
        protocol = values["security_protocol"]
        log.warning("%s: without effect, for security_protocol is %s and not SASL_…", ", ".join(unused), protocol)


def _check_together(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """ConfigError for options that contradict each other; both are named."""
    _check_security(values, given)
    protocol = values["group_protocol"]
    for name, spelling in given.items():
        belongs_to = OPTIONS[name].protocol
        if belongs_to not in (None, protocol):
            raise ConfigError(
                f"{spelling} belongs to group_protocol={belongs_to!r} "
                f"and cannot be set with group_protocol={protocol!r}"
            )
    if protocol == "consumer" and values["engine"] == "classic":
        raise ConfigError("engine='classic' cannot go with group_protocol='consumer', which needs a network thread")
    session, heartbeat = values["session_timeout_ms"], values["heartbeat_interval_ms"]
    if heartbeat >= session:
        raise ConfigError(
            f"heartbeat_interval_ms={heartbeat} must be less than session_timeout_ms={session} (a third of it is usual)"
        )
    if values["group_id"] is None:
        if values["enable_auto_commit"]:
            raise ConfigError("enable_auto_commit=True needs a group to commit to; set group_id, too, or leave it out")
        if values["group_instance_id"] is not None:
            raise ConfigError("group_instance_id makes a static member of a group; set group_id, too, or leave it out")
    largest, fetched = values["receive_message_max_bytes"], values["fetch_max_bytes"]
    if "receive_message_max_bytes" in given and fetched + ANSWER_BYTES > largest:
        raise ConfigError(
            f"receive_message_max_bytes={largest} leaves no room for fetch_max_bytes={fetched} and the {ANSWER_BYTES} "
            "bytes around it; raise the one or lower the other"
        )
    wait, timeout = values["fetch_max_wait_ms"], values["request_timeout_ms"]
    if {"fetch_max_wait_ms", "request_timeout_ms"} <= given.keys() and wait >= timeout:
        raise ConfigError(
            f"fetch_max_wait_ms={wait} must be less than request_timeout_ms={timeout}, "
            "or every fetch without records times out"
        )


def _check_security(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    protocol = values["security_protocol"]
    unused = (
        [] if protocol.endswith("SSL") else [spelling for name, spelling in given.items() if name.startswith("ssl_")]
    )
    if unused and values["sasl_oauthbearer_token_endpoint_url"] is None:  # an issuer of tokens is asked over TLS, too
        log.warning(
            "%s: without effect, for security_protocol is %s and not SSL or SASL_SSL", ", ".join(unused), protocol
        )
