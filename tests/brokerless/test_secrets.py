"""Secrets are set in every option that takes one. No output of a consumer contains them, even at debug level.

A new secret option needs a row in PLANTED; `test_every_secret_option_is_planted` names missing ones.
"""

from __future__ import annotations

import base64
import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kconsumer import Consumer, RangeClient
from kconsumer.config.options import OPTIONS, ConsumerConfig
from kconsumer.engine.state_dump import full_report
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.groups import GroupClient
from kconsumer.schema.metadata import METADATA
from kconsumer.schema.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from support.brokers.certificates import Authority, Certificate
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.tls_peer import server_context

AUTHORITY = Authority()
SECRET = "planted-4711-opensesame"
TOKEN = f"{SECRET}.{SECRET}.x"
IDENTITY = AUTHORITY.issue("client")
ENCRYPTED = Certificate(IDENTITY.chain, IDENTITY.encrypted(SECRET))
PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
TOKENS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "https://127.0.0.1:1/token",
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_login_retry_backoff_max_ms": 10,  # so that no thread requests tokens after the test
}

# The secret -> options of the consumer. <encrypted> stands for the path of a file.
PLANTED: dict[str, dict[str, Any]] = {
    "ssl_password": {"ssl_certfile": "<encrypted>", "ssl_password": SECRET},
    "ssl_key_password": {"ssl_keystore_location": "<encrypted>", "ssl_key_password": SECRET},
    "ssl_keystore_key": {
        "ssl_keystore_certificate_chain": IDENTITY.chain,
        "ssl_keystore_key": ENCRYPTED.key,
        "ssl_key_password": SECRET,
    },
    "ssl_keystore_password": {"ssl_keystore_location": "<encrypted>", "ssl_keystore_password": SECRET},
    "ssl_truststore_password": {"ssl_truststore_password": SECRET},
    "sasl_plain_password": {**PLAIN, "sasl_plain_username": "me", "sasl_plain_password": SECRET},
    "sasl_plain_password, SCRAM": {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": SECRET,
    },
    "sasl_jaas_config": {
        **PLAIN,
        "sasl_jaas_config": f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" '
        f'password="{SECRET}";',
    },
    "sasl_jaas_config that is wrong": {**PLAIN, "sasl_jaas_config": f'NoSuchModule required password="{SECRET}'},
    "sasl_oauth_token_provider": {**TOKENS, "sasl_oauth_token_provider": lambda: TOKEN},
    "sasl_oauthbearer_client_credentials_client_secret": {
        **TOKENS,
        **ENDPOINT,
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    },
    "socks_proxy": {"socks_proxy": f"socks5://me:{SECRET}@127.0.0.1:1"},
    "http_proxy": {"http_proxy": f"http://me:{SECRET}@127.0.0.1:1"},
    "http_proxy that is wrong": {"http_proxy": f"socks5://me:{SECRET}@127.0.0.1"},
}


def test_every_secret_option_is_planted() -> None:
    """Every secret option has a row."""
    assert set() == {name for name, row in OPTIONS.items() if row.secret} - PLANTED.keys()


def spellings() -> list[str]:
    """Returns the secret as it is, in base 64 and in hexadecimal, and the private parts of a key."""
    encoded = [base64.b64encode(b"\0" * shift + SECRET.encode())[4:-4].decode() for shift in range(3)]
    lines = [line for key in (IDENTITY.key, ENCRYPTED.key) for line in key.splitlines()[1:3]]
    return [SECRET, SECRET.encode().hex(), *encoded, *lines]


def shown(error: BaseException) -> str:
    """Returns the forms in which programs print an error."""
    output = "".join(traceback.format_exception(error, chain=True)) + repr(error)
    return output + repr(pickle.dumps(error))


def lived(make: Callable[[], Any], use: Callable[[Any], object]) -> str:
    """Make a client and use it. Returns everything that it shows: its repr, its errors, its metrics."""
    try:
        client = make()
    except KafkaError as error:
        return shown(error)
    with client:
        output = f"{client!r} {client}"
        try:
            use(client)
        except KafkaError as error:
            output += shown(error)
        if isinstance(client, Consumer):
            output += f"{full_report(client)} {client.metrics()!r}"
        return f"{output} {client!r}"


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("options", PLANTED.values(), ids=PLANTED.keys())
def test_no_secret_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any], accepted: bool
) -> None:
    """No secret is in a repr, a log, an error, a metric or a pickle, whether the broker accepts or rejects the
    login.
    """
    caplog.set_level(logging.DEBUG)
    files = {"<encrypted>": ENCRYPTED.write(tmp_path / "encrypted.pem")}
    given = {name: files.get(value, value) if isinstance(value, str) else value for name, value in options.items()}
    asked = AUTHORITY if accepted else Authority("another")
    with ScriptedBroker(
        tls=server_context(tmp_path, AUTHORITY.issue(), asked if "ssl_password" in given else None)
    ) as broker:
        broker.on(SASL_HANDSHAKE, SASL_HANDSHAKE.response(mechanisms=["PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"]))
        refused = {} if accepted else {"error_code": 58, "error_message": "Authentication failed"}
        broker.on(SASL_AUTHENTICATE, SASL_AUTHENTICATE.response(**refused))
        broker.on(METADATA, METADATA.response(cluster_id="c", brokers=[]))
        everything: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{broker.port}",
            "security_protocol": "SSL",
            "ssl_cafile": AUTHORITY.write(tmp_path / "ca.pem"),
            "default_api_timeout_ms": 300,
            **given,
        }
        output = lived(lambda: Consumer(**everything), lambda client: client.list_topics())
        output += lived(
            lambda: Consumer("t", group_id="g", engine="threaded", **everything), lambda client: client.poll(0.3)
        )
        output += lived(lambda: GroupClient(**everything), lambda client: client.list())
        output += lived(lambda: RangeClient(**everything), lambda client: client.topics(["t"]))
        for name, value in given.items():
            with pytest.raises(ConfigError) as caught:
                ConsumerConfig(bootstrap_servers="k:1", **{**given, name: [value]})
            output += shown(caught.value)
    output += caplog.text + "".join(repr(record.__dict__) for record in caplog.records)
    assert len(output) > 1000
    assert [] == [text for text in spellings() if text in output]
