"""Token providers that a configuration names as text: `package.module:function`, and Java's handlers of three clouds.

The class name of a handler, in `sasl.login.callback.handler.class` or `sasl.client.callback.handler.class`, selects a
provider that gets tokens from the Python library of the cloud, which is imported at the first login. The mechanism
AWS_MSK_IAM becomes OAUTHBEARER, which the same listeners of MSK accept. All providers can be pickled.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import os
import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from kconsumer.config.jaas import parse
from kconsumer.errors import ConfigError

AWS_MECHANISM = "AWS_MSK_IAM"
OPTIONS = ("sasl_login_callback_handler_class", "sasl_client_callback_handler_class")
#: Java's own handler, which gets tokens from the endpoint that other options set.
ENDPOINT_HANDLER = "OAuthBearerLoginCallbackHandler"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
LIFETIME_S = 3600  # of tokens of Google
_IGNORED = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")  # options of AWS's login module


class NamedProvider:
    """A provider that is named as `package.module:function`. It is imported when the object is created.

    The name may also be that of an object with a method `token()`, or of the class of such objects.
    """

    def __init__(self, name: str) -> None:
        module, _, path = name.partition(":")
        if not module or not path:
            raise ValueError("as text, it is package.module:function")
        try:
            found = attrgetter(path)(importlib.import_module(module))
            found = found() if isinstance(found, type) else found
        except Exception as error:  # an import runs code of the user, which may raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from error
        self._name = name
        self._function = getattr(found, "token", found)
        if not callable(self._function):
            raise ValueError(f"{path} of {module} is not callable")

    def __call__(self) -> object:
        """Returns what the function returns."""
        return self._function()

    def __repr__(self) -> str:
        return f"<NamedProvider {self._name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedProvider, (self._name,)


def apply_handler(values: dict[str, Any], given: Mapping[str, str], jaas: str | None) -> None:
    """Set the provider that a class name of a handler selects, and the mechanism. Does nothing if there is none.

    `jaas`: the text of `sasl_jaas_config`, whose options the provider gets.

    Raises ConfigError for another class or mechanism, if a provider is set, too, or if the region of AWS is not known.
    """
    named = [(given[name], values[name].rpartition(".")[2]) for name in OPTIONS if values[name]]
    chosen = [(spelling, handler) for spelling, handler in named if handler != ENDPOINT_HANDLER]
    mechanism = values["sasl_mechanism"]
    if mechanism == AWS_MECHANISM and not chosen:
        chosen = [(given["sasl_mechanism"], "IAMClientCallbackHandler")]
    if not chosen:
        return
    spelling, handler = chosen[0]
    if handler not in HANDLERS:
        raise ConfigError(
            f"{spelling} names {handler}, which configures a JVM; known are {', '.join(HANDLERS)}. "
            "Set sasl_oauth_token_provider to a function of your own, or to its name as package.module:function"
        )
    if mechanism not in ("OAUTHBEARER", AWS_MECHANISM):
        raise ConfigError(f"{spelling} belongs to sasl_mechanism OAUTHBEARER, but sasl_mechanism is {mechanism}")
    if values["sasl_oauth_token_provider"] is not None:
        raise ConfigError(f"{spelling} and sasl_oauth_token_provider both provide tokens; use one of them")
    servers = [host for host, _ in values["bootstrap_servers"]]
    values["sasl_oauth_token_provider"] = HANDLERS[handler](servers, {} if jaas is None else parse(jaas).options)
    values["sasl_mechanism"], values["sasl_jaas_config"] = "OAUTHBEARER", None


def _aws(servers: list[str], options: Mapping[str, str]) -> Callable[[], object]:
    """Returns the provider of AWS. The region is that of the brokers' names, or else of the environment."""
    unknown = set(options) - {"awsProfileName", "awsRoleArn", "awsRoleSessionName", *_IGNORED}
    if unknown:
        raise ConfigError(f"sasl_jaas_config: {min(unknown)} of AWS's login module is not supported")
    found = next((match[1] for match in map(_REGION.search, servers) if match), None)
    region = found or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError("the region of AWS is not known: set the environment variable AWS_REGION")
    names = (options.get(name) for name in ("awsProfileName", "awsRoleArn", "awsRoleSessionName"))
    return functools.partial(_aws_token, region, *names)


def _aws_token(region: str, profile: str | None, role: str | None, session: str | None) -> object:
    signer = _library("aws_msk_iam_sasl_signer", "aws-msk-iam-sasl-signer-python").MSKAuthTokenProvider
    if role is not None:
        return signer.generate_auth_token_from_role_arn(region, role, session)
    if profile is not None:
        return signer.generate_auth_token_from_profile(region, profile)
    return signer.generate_auth_token(region)


def _google(servers: list[str], options: Mapping[str, str]) -> Callable[[], object]:
    return _google_token


def _google_token() -> tuple[str, float]:
    """Returns the access token of the default account of Google in the envelope that its Kafka service requires."""
    credentials = _google_credentials()
    credentials.refresh(_library("google.auth.transport.requests", "google-auth requests").Request())
    expires_at = int(credentials.expiry.timestamp() if credentials.expiry.tzinfo else _utc_seconds(credentials.expiry))
    claims = {"exp": expires_at, "iat": expires_at - LIFETIME_S, "iss": "Google", "scope": "kafka"}
    claims["sub"] = credentials.service_account_email
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    parts = (json.dumps(header), json.dumps(claims), credentials.token)
    encoded = (base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded), expires_at


def _utc_seconds(moment: Any) -> float:
    """Returns a time without a time zone, which google-auth means in UTC, in seconds since 1970."""
    from datetime import UTC

    seconds: float = moment.replace(tzinfo=UTC).timestamp()
    return seconds


@functools.cache
def _google_credentials() -> Any:
    library = _library("google.auth", "google-auth requests")
    return library.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])[0]


def _azure(servers: list[str], options: Mapping[str, str]) -> Callable[[], object]:
    return functools.partial(_azure_token, servers[0])


def _azure_token(namespace: str) -> tuple[str, float]:
    """Returns a token of the default identity of Azure for a namespace of Event Hubs."""
    issued = _azure_credential().get_token(f"https://{namespace}/.default")
    return issued.token, issued.expires_on


@functools.cache
def _azure_credential() -> Any:
    return _library("azure.identity", "azure-identity").DefaultAzureCredential()


def _library(module: str, packages: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"logging in needs the module {module}: pip install {packages}") from error


#: Class names of handlers without their packages, which some programs rename -> the function that creates a provider.
HANDLERS: dict[str, Callable[[list[str], Mapping[str, str]], Callable[[], object]]] = {
    "IAMClientCallbackHandler": _aws,
    "IAMOAuthBearerLoginCallbackHandler": _aws,
    "GcpLoginCallbackHandler": _google,
    "KafkaOAuth2AuthenticateCallbackHandler": _azure,
    "CustomAuthenticateCallbackHandler": _azure,
}
