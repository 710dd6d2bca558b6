"""Secrets do not appear in reprs, error messages, logs, arguments of plugins, or pickles."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import Any

import pytest

from kconsumer.config.options import OPTIONS, ConsumerConfig
from kconsumer.errors import ConfigError, KafkaError
from kconsumer.net.sasl.mechanism import Credentials
from kconsumer.schema.sasl import SASL_AUTHENTICATE
from support.fakes.sasl_exchange import SaslHarness
from support.fakes.scripted_broker import SILENCE
from support.harnesses.inside import links_of

PLANTED = "pl4nted"
SECRET_OPTIONS = sorted(name for name, row in OPTIONS.items() if row.secret)


VALUES = {name: f"{scheme}://me:{PLANTED}@p:1" for name, scheme in (("socks_proxy", "socks5"), ("http_proxy", "http"))}


def config(**options: Any) -> ConsumerConfig:
    return ConsumerConfig(bootstrap_servers="b:9092", **options)


def test_what_is_a_secret() -> None:
    """Every option that contains a password, a key or a login entry is marked as a secret."""
    words = ("password", "secret", "keystore_key", "jaas", "_proxy")
    assert SECRET_OPTIONS == sorted(name for name in OPTIONS if any(word in name for word in words))


@pytest.mark.parametrize("name", SECRET_OPTIONS)
def test_a_configuration_keeps_it(name: str) -> None:
    """A secret is not shown, not passed to plugins, and prevents pickling; a copy is the same object."""
    one = config(**{name: VALUES.get(name, PLANTED)})
    assert VALUES.get(name, PLANTED) == one.secret(name)
    assert PLANTED not in repr(one)
    assert PLANTED not in str(one.as_mapping())
    with pytest.raises(TypeError, match=f"{name} in clear text"):
        pickle.dumps(one)
    assert one is copy.deepcopy(one) is copy.copy(one)


@pytest.mark.parametrize("name", SECRET_OPTIONS)
def test_a_reference_is_pickled_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickled reference is resolved in the environment of the process that unpickles it."""
    monkeypatch.setenv("KCONSUMER_PLANTED", PLANTED)
    data = pickle.dumps(config(**{name: "env:KCONSUMER_PLANTED"}))
    assert PLANTED.encode() not in data
    assert PLANTED == pickle.loads(data).secret(name)


@pytest.mark.parametrize("name", SECRET_OPTIONS)
@pytest.mark.parametrize("given", [[PLANTED], {PLANTED: 1}, PLANTED.encode()])
def test_an_error_does_not_quote_it(name: str, given: object) -> None:
    """Errors do not contain the secret, also if it has a wrong type."""
    with pytest.raises(ConfigError) as caught:
        config(**{name: given})
    assert PLANTED not in "".join(traceback.format_exception(caught.value))


def test_credentials_show_nothing() -> None:
    """The repr of the credentials that mechanisms receive contains no secret."""
    shown = repr(Credentials(PLANTED, PLANTED, token=PLANTED, extensions={"a": PLANTED}))
    assert PLANTED not in shown


REFUSED = SASL_AUTHENTICATE.response(error_code=58, error_message="no")


@pytest.mark.parametrize(
    "response", [SASL_AUTHENTICATE.response(), REFUSED, SILENCE, b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\0"]
)
@pytest.mark.parametrize("called", [False, True])
def test_an_authentication_shows_nothing(response: Any, called: bool, caplog: pytest.LogCaptureFixture) -> None:
    """No authentication, successful or not, shows a secret in the debug log, an error, its causes or a repr."""
    harness = SaslHarness(sasl_plain_password=(lambda: PLANTED) if called else PLANTED)
    harness.broker.on(SASL_AUTHENTICATE, response)
    shown: list[object] = []
    with caplog.at_level(1):
        for _ in range(3):
            harness.ready()
            for _ in range(6):
                harness.poll(10_000)
                shown += [
                    *links_of(harness.client).values(),
                    harness.client,
                    harness.client.report(harness.clock.now()),
                ]
                shown += [
                    node.connection and node.connection.session.authenticator
                    for node in links_of(harness.client).values()
                ]
            error = harness.failed()
            if isinstance(error, KafkaError):
                shown += traceback.format_exception(error)
            harness.clock.advance(2_000)
    logged = "\n".join(logging.Formatter("%(message)s").format(record) for record in caplog.records)
    assert PLANTED not in repr(shown) + logged
    assert PLANTED in str([r.message.auth_bytes for r in harness.broker.requests if r.api is SASL_AUTHENTICATE])
