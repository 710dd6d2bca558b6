"""Token providers by name: functions of modules, and the classes of AWS, Google and Azure in Java's configurations."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Callable
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kconsumer.config import token_providers
from kconsumer.config.options import ConsumerConfig
from kconsumer.errors import ConfigError

MSK = "b-1.demo.a1b2c3.c4.kafka.eu-west-1.amazonaws.com:9098"
IAM = "software.amazon.msk.auth.iam."
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def configured(**options: Any) -> ConsumerConfig:
    """Returns the configuration of a properties file that logs in."""
    known = {"bootstrap.servers": MSK, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return ConsumerConfig.from_mapping({**known, **{name.replace("_", "."): value for name, value in options.items()}})


def provider_of(config: ConsumerConfig) -> Callable[[], object]:
    """Returns the provider, after a copy of it by pickle, as tasks of Spark get it."""
    assert "OAUTHBEARER" == config.sasl_mechanism
    assert config.sasl_jaas_config is None
    found = pickle.loads(pickle.dumps(config.sasl_oauth_token_provider))
    assert callable(found)
    return found


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns a function that installs a stand-in for a module of a cloud's library."""
    monkeypatch.setattr(token_providers, "_google_credentials", token_providers._google_credentials.__wrapped__)
    monkeypatch.setattr(token_providers, "_azure_credential", token_providers._azure_credential.__wrapped__)

    def add(name: str, **members: Any) -> None:
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    return add


def test_a_function_by_its_name(install: Callable[..., None]) -> None:
    """package.module:function names a provider, also an object or class with token(); it survives pickling."""
    install("my_logins", token=lambda: ("t", 7), Issuer=SimpleNamespace(default=SimpleNamespace(token=lambda: "u")))
    name = "sasl_oauth_token_provider"
    assert ("t", 7) == provider_of(configured(**{name: "my_logins:token"}))()
    assert "u" == provider_of(configured(**{name: "my_logins:Issuer.default"}))()
    install("my_classes", Issuer=type("Issuer", (), {"token": lambda self: "c"}))
    assert "c" == provider_of(configured(**{name: "my_classes:Issuer"}))()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("token", "as text, it is package.module:function"),
        ("no_such_module:token", "No module named 'no_such_module'"),
        ("json:token", "has no attribute 'token'"),
        ("json:__name__", "is not callable"),
    ],
)
def test_names_of_nothing(name: str, reason: str) -> None:
    """A name that is no function is refused when the consumer is created."""
    with pytest.raises(ConfigError, match=reason):
        configured(sasl_oauth_token_provider=name)


SIGNER = SimpleNamespace(
    generate_auth_token=lambda *given: given,
    generate_auth_token_from_profile=lambda *given: ("profile", *given),
    generate_auth_token_from_role_arn=lambda *given: ("role", *given),
)
OAUTH = {"sasl_login_callback_handler_class": IAM + "IAMOAuthBearerLoginCallbackHandler"}
CLIENT = {"sasl_mechanism": "AWS_MSK_IAM", "sasl_client_callback_handler_class": IAM + "IAMClientCallbackHandler"}
MODULE = IAM + "IAMLoginModule required"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**CLIENT, "sasl_jaas_config": MODULE + ";"}, ("eu-west-1",)),
        ({"sasl_mechanism": "AWS_MSK_IAM"}, ("eu-west-1",)),
        ({**OAUTH, "sasl_jaas_config": JAAS + ";"}, ("eu-west-1",)),
        ({**OAUTH, "sasl_login_callback_handler_class": "shaded.IAMOAuthBearerLoginCallbackHandler"}, ("eu-west-1",)),
        ({**CLIENT, "sasl_jaas_config": MODULE + ' awsProfileName="dev";'}, ("profile", "eu-west-1", "dev")),
        (
            {**CLIENT, "sasl_jaas_config": MODULE + ' awsRoleArn="arn:x" awsRoleSessionName="s" awsDebugCreds="true";'},
            ("role", "eu-west-1", "arn:x", "s"),
        ),
    ],
)
def test_aws(install: Callable[..., None], options: dict[str, str], expected: tuple[str, ...]) -> None:
    """AWS's classes get a token from its signer, for the region of the brokers, a profile or a role."""
    install("aws_msk_iam_sasl_signer", MSKAuthTokenProvider=SIGNER)
    assert expected == provider_of(configured(**options))()


def test_the_region_of_aws(install: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the names of the brokers have no region, the environment has it, or the configuration is refused."""
    install("aws_msk_iam_sasl_signer", MSKAuthTokenProvider=SIGNER)
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert ("us-east-2",) == provider_of(configured(bootstrap_servers="proxy:9098", **CLIENT))()
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="set the environment variable AWS_REGION"):
        configured(bootstrap_servers="proxy:9098", **CLIENT)


def test_google(install: Callable[..., None]) -> None:
    """Google's class gets the access token of the default account, in the envelope of the service."""
    credentials = SimpleNamespace(
        refresh=lambda request: None,
        expiry=datetime(2030, 1, 1),
        token="access",
        service_account_email="me@example",
    )
    install("google.auth", default=lambda scopes: (credentials, "project"))
    install("google.auth.transport.requests", Request=object)
    handler = "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
    config = configured(sasl_login_callback_handler_class=handler, sasl_jaas_config=JAAS + ";")
    issued: Any = provider_of(config)()
    token, expires_at = issued
    assert 1893456000 == expires_at
    header, claims, secret = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    assert ("GOOG_OAUTH2_TOKEN", b"access") == (json.loads(header)["alg"], secret)
    assert ("me@example", 1893456000) == (json.loads(claims)["sub"], json.loads(claims)["exp"])


def test_azure(install: Callable[..., None]) -> None:
    """Azure's class gets a token of the default identity for the namespace."""
    credential = SimpleNamespace(get_token=lambda scope: SimpleNamespace(token=scope, expires_on=9))
    install("azure.identity", DefaultAzureCredential=lambda: credential)
    handler = "com.azure.spring.cloud.service.implementation.kafka.KafkaOAuth2AuthenticateCallbackHandler"
    config = configured(bootstrap_servers="demo.servicebus.windows.net:9093", sasl_login_callback_handler_class=handler)
    assert ("https://demo.servicebus.windows.net/.default", 9) == provider_of(config)()


def test_javas_handler_of_endpoints() -> None:
    """Java's own handler needs no provider: the options of the endpoint have what it needs."""
    config = configured(
        sasl_login_callback_handler_class="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url="https://login.example/token",
        sasl_jaas_config=JAAS + ' clientId="a" clientSecret="b";',
    )
    assert "a" == config.sasl_oauthbearer_client_credentials_client_id


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"sasl_login_callback_handler_class": "com.example.Mine"},
            "names Mine, which configures a JVM; known are",
        ),
        ({**OAUTH, "sasl_mechanism": "PLAIN"}, "belongs to sasl_mechanism OAUTHBEARER, but sasl_mechanism is PLAIN"),
        ({**OAUTH, "sasl_oauth_token_provider": str}, "both provide tokens"),
        ({**CLIENT, "sasl_jaas_config": MODULE + ' awsStsRegion="x";'}, "awsStsRegion of AWS's login module"),
        ({**CLIENT, "sasl_jaas_config": "env:NO_SUCH"}, "the environment has no variable NO_SUCH"),
    ],
)
def test_other_configurations(options: dict[str, Any], reason: str) -> None:
    """Other classes, contradictions and options that would be ignored are refused."""
    with pytest.raises(ConfigError, match=reason):
        configured(**options)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is not installed is named when a token is needed."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match="pip install aws-msk-iam-sasl-signer-python"):
        provider_of(configured(**CLIENT))()
