"""Options of other Kafka clients that kconsumer does not have, and what replaces each of them.

One table for librdkafka (confluent-kafka), kafka-python, aiokafka and the Java client. Names are in snake_case. If
kconsumer has an option under another name, the foreign name is an alias (`ALIASES` in options.py) and is not in this
table.
"""

from __future__ import annotations

_LOGGING = 'log messages go to the logger "kconsumer": logging.getLogger("kconsumer").setLevel(logging.DEBUG) shows all'
_ERRORS = "errors are raised from poll() and the other calls; connection failures are logged by the logger kconsumer"
_JVM = "it configures a JVM; remove it"
_VERSIONS = "versions are negotiated with each broker; remove it"
_TICKETS = "tickets are renewed by other programs, such as kinit; or set sasl_kerberos_keytab"
_BROKER_CHECKS = "brokers check tokens; remove it"
_ASSERTION = "your own code must request tokens with a signed assertion: use sasl_oauth_token_provider"
_PREFETCH = "use buffer_memory (bytes)"
_SSL_CONTEXT = "use ssl_context, an ssl.SSLContext that is configured as you need"
_PROXY = "use socks_proxy or http_proxy"
_INTERNAL = "it configures internals of another client; remove it"
_SOCKETS = "sockets cannot be replaced; remove it"
_ENGINES = "OpenSSL engines are not supported; use ssl_context"
_FILE_OFFSETS = "offsets are stored by the group's coordinator; remove it"
_PRODUCER = "it is an option of producers; remove it"
_RECORDS = "poll() returns records; there are no callbacks for them"

_HINTS: dict[str, tuple[str, ...]] = {
    _LOGGING: ("log_cb", "log_level", "logger", "debug", "log_queue", "log_thread_name", "log_connection_close"),
    _ERRORS: ("error_cb",),
    _JVM: (
        "security_providers", "config_providers", "ssl_provider", "ssl_keymanager_algorithm",
        "ssl_trustmanager_algorithm", "ssl_secure_random_implementation", "sasl_login_class",
        "auto_include_jmx_reporter",
    ),
    _VERSIONS: (
        "api_version", "api_version_auto_timeout_ms", "api_version_request", "api_version_request_timeout_ms",
        "api_version_fallback_ms", "broker_version_fallback",
    ),
    _TICKETS: (
        "sasl_kerberos_ticket_renew_window_factor", "sasl_kerberos_ticket_renew_jitter",
        "sasl_kerberos_min_time_before_relogin",
    ),
    _BROKER_CHECKS: (
        "sasl_oauthbearer_jwks_endpoint_url", "sasl_oauthbearer_expected_audience", "sasl_oauthbearer_expected_issuer",
        "sasl_oauthbearer_jwks_endpoint_refresh_ms", "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms",
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms", "sasl_oauthbearer_clock_skew_seconds",
        "sasl_oauthbearer_sub_claim_name", "sasl_oauthbearer_scope_claim_name",
        "sasl_oauthbearer_jwt_validator_class", "sasl_oauthbearer_allow_unverified_audience",
        "sasl_oauthbearer_allow_unverified_issuer",
    ),
    _ASSERTION: (
        "sasl_oauthbearer_assertion_algorithm", "sasl_oauthbearer_assertion_file",
        "sasl_oauthbearer_assertion_private_key_file", "sasl_oauthbearer_assertion_private_key_passphrase",
        "sasl_oauthbearer_assertion_private_key_pem", "sasl_oauthbearer_assertion_claim_aud",
        "sasl_oauthbearer_assertion_claim_exp_seconds", "sasl_oauthbearer_assertion_claim_exp_minutes",
        "sasl_oauthbearer_assertion_claim_iss", "sasl_oauthbearer_assertion_claim_jti_include",
        "sasl_oauthbearer_assertion_claim_nbf_seconds", "sasl_oauthbearer_assertion_claim_nbf_minutes",
        "sasl_oauthbearer_assertion_claim_sub", "sasl_oauthbearer_assertion_jwt_template_file",
        "sasl_oauthbearer_assertion_template_file",
    ),
    _PREFETCH: ("queued_max_messages_kbytes", "queued_min_messages"),
    _SSL_CONTEXT: ("ssl_curves_list", "ssl_sigalgs_list", "ssl_providers"),
    _PROXY: ("proxy_url",),
    _INTERNAL: (
        "opaque", "enabled_events", "background_event_cb", "enable_random_seed", "internal_termination_signal",
        "plugin_library_paths", "builtin_features", "selector", "kafka_client", "sock_chunk_bytes",
        "sock_chunk_buffer_count", "message_copy_max_bytes", "fetch_queue_backoff_ms", "legacy_iterator",
    ),
    _SOCKETS: ("socket_cb", "connect_cb", "closesocket_cb", "open_cb", "resolve_cb", "socket_blocking_max_ms"),
    _ENGINES: ("ssl_engine_location", "ssl_engine_id", "ssl_engine_callback_data"),
    _FILE_OFFSETS: ("offset_store_method", "offset_store_path", "offset_store_sync_interval_ms"),
    _PRODUCER: (
        "transactional_id", "transaction_timeout_ms", "enable_idempotence", "enable_gapless_guarantee",
        "queue_buffering_max_messages", "queue_buffering_max_kbytes", "queue_buffering_max_ms", "linger_ms",
        "message_send_max_retries", "retries", "queue_buffering_backpressure_threshold", "compression_codec",
        "compression_type", "compression_level", "batch_num_messages", "batch_size", "delivery_report_only_error",
        "dr_cb", "dr_msg_cb", "on_delivery", "sticky_partitioning_linger_ms", "request_required_acks", "acks",
        "message_timeout_ms", "delivery_timeout_ms", "queuing_strategy", "produce_offset_report", "partitioner",
        "partitioner_cb", "msg_order_cmp", "message_max_bytes", "max_block_ms", "max_request_size", "key_serializer",
        "value_serializer",
    ),
    _RECORDS: ("consume_cb", "consume_callback_max_messages"),
}  # fmt: skip

FOREIGN: dict[str, str] = {name: hint for hint, names in _HINTS.items() for name in names} | {
    # words that are nearly an option
    "password": "use sasl_plain_password, or ssl_password for the key of a certificate",
    "username": "use sasl_plain_username",
    "auto_commit": "use enable_auto_commit",
    "deserializer": "use value_deserializer, and key_deserializer for keys",
    "topic": "topics are the first arguments: Consumer('topic', …), or subscribe(['topic'])",
    "topics": "topics are the first arguments: Consumer('topic', …), or subscribe(['topic'])",
    "brokers": "use bootstrap_servers",
    "servers": "use bootstrap_servers",
    "group": "use group_id",
    # callbacks
    "stats_cb": "read metrics() when you need them, or pass metrics_reporters",
    "statistics_interval_ms": "read metrics() when you need them, or pass metrics_reporters",
    "throttle_cb": "read fetch-throttle-time-avg and fetch-throttle-time-max of metrics()",
    "rebalance_cb": "pass on_assign=, on_revoke= and on_lost= to subscribe()",
    "offset_commit_cb": "use on_commit, which is called as (offsets, error)",
    "default_offset_commit_callback": "use on_commit, which is called as (offsets, error)",
    "oauth_cb": "use sasl_oauth_token_provider: it is called without arguments and returns (token, expires_at_s)",
    "oauthbearer_token_refresh_cb": "use sasl_oauth_token_provider: it is called without arguments and returns "
    "(token, expires_at_s)",
    # connections
    "socket_timeout_ms": "use request_timeout_ms",
    "bootstrap_timeout_ms": "the first call connects; use its timeout=, or default_api_timeout_ms",
    "socket_send_buffer_bytes": "use send_buffer_bytes (-1: the system's default)",
    "socket_receive_buffer_bytes": "use receive_buffer_bytes (-1: the system's default)",
    "socket_options": "TCP_NODELAY and SO_KEEPALIVE are set; for the buffers use send_buffer_bytes and "
    "receive_buffer_bytes",
    "socket_keepalive_enable": "SO_KEEPALIVE is always set; remove it",
    "socket_nagle_disable": "TCP_NODELAY is always set; remove it",
    "socket_max_fails": "a request that times out closes its connection (request_timeout_ms); remove it",
    "broker_address_ttl": "names are resolved on each connection attempt; remove it",
    "broker_address_family": "addresses of IPv4 and IPv6 are tried in turn; remove it",
    "reconnect_backoff_jitter_ms": "backoffs always have jitter; use reconnect_backoff_ms and reconnect_backoff_max_ms",
    "max_in_flight_requests_per_connection": "a consumer limits its own fetches; remove it",
    "max_in_flight": "a consumer limits its own fetches; remove it",
    "enable_incremental_fetch_sessions": "fetch sessions are used if the broker supports them; remove it",
    "loop": "remove it: an AsyncConsumer uses the event loop that runs, a Consumer none",
    # metadata and metrics
    "topic_metadata_refresh_interval_ms": "use metadata_max_age_ms",
    "topic_metadata_refresh_fast_interval_ms": "use retry_backoff_ms and retry_backoff_max_ms",
    "topic_metadata_refresh_fast_cnt": "use retry_backoff_ms and retry_backoff_max_ms",
    "topic_metadata_refresh_sparse": "only metadata of topics that are needed are requested; remove it",
    "topic_metadata_propagation_max_ms": "metadata of a topic that does not exist are requested repeatedly; remove it",
    "topic_blacklist": "subscribe to a re.Pattern that does not match these topics, as re.compile('(?!audit).*')",
    "coordinator_query_interval_ms": "the coordinator is found when it is needed; remove it",
    "metrics_enabled": "metrics are always recorded; remove it",
    "metric_group_prefix": "metrics have the names and groups of the Java client; remove it",
    # group and consumption
    "default_topic_conf": "set its entries as options of the consumer, such as auto_offset_reset",
    "default_topic_config": "set its entries as options of the consumer, such as auto_offset_reset",
    "enable_partition_eof": "compare position() with end_offsets(), or read current_lag()",
    "group_protocol_type": "it is always consumer; remove it",
    "rebalance_timeout_ms": "use max_poll_interval_ms, which is the rebalance timeout, too",
    "fetch_error_backoff_ms": "use retry_backoff_ms and retry_backoff_max_ms",
    "retry_backoff": "use retry_backoff_ms",
    # TLS
    "enable_ssl_certificate_verification": "pass ssl_context, an ssl.SSLContext with verify_mode=ssl.CERT_NONE; "
    "ssl_check_hostname=False disables only the check of the host name",
    "ssl_certificate_verify_cb": _SSL_CONTEXT,
    "ssl_crl_location": "pass ssl_context, an ssl.SSLContext with the list loaded and verify_flags set",
    "ssl_crlfile": "pass ssl_context, an ssl.SSLContext with the list loaded and verify_flags set",
    "ssl_ciphers": "use ssl_cipher_suites (names, separated by commas), or ssl_context",
    "ssl_ca": "use ssl_cafile, or ssl_truststore_certificates for PEM text",
    "ssl_certificate": "use ssl_certfile, or ssl_keystore_certificate_chain for PEM text",
    "ssl_key": "use ssl_keyfile, or ssl_keystore_key for PEM text",
    "ssl_ca_certificate_stores": "without ssl_cafile the system's certificates are trusted; remove it",
    "ssl_engine_factory_class": "it configures a JVM; use ssl_context",
    "https_ca_location": "use ssl_cafile, which applies to the token endpoint, too",
    "https_ca_pem": "use ssl_truststore_certificates, which applies to the token endpoint, too",
    # SASL
    "sasl_kerberos_name": "use sasl_kerberos_principal",
    "sasl_kerberos_domain_name": "the name of the broker is used; remove it",
    "sasl_kerberos_kinit_cmd": "no command is run; set sasl_kerberos_keytab, or renew a ticket with kinit",
    "sasl_oauthbearer_method": "a token endpoint is used if sasl_oauthbearer_token_endpoint_url is set, otherwise "
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_grant_type": "sasl_oauthbearer_token_endpoint_url is used with client_credentials; "
    "for others use sasl_oauth_token_provider",
    "sasl_oauthbearer_config": "use sasl_oauth_token_provider",
    "enable_sasl_oauthbearer_unsecure_jwt": "use sasl_oauth_token_provider; it may return an unsecured token for tests",
    "sasl_oauthbearer_metadata_authentication_type": "use sasl_oauth_token_provider with the library of your cloud",
    "sasl_oauthbearer_jwt_retriever_class": "it configures a JVM; use sasl_oauth_token_provider",
}
