"""Rules between the SASL options, as tables: which options a mechanism needs, and which mechanisms an option is for.

Detects mistakes in a configuration before any connection is opened. A `sasl_jaas_config` is converted into the
equivalent options. If it is a reference, it is read for each authentication, and can only be checked then.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from kconsumer.config import kinds
from kconsumer.errors import ConfigError

_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ENDPOINT = "sasl_oauthbearer_token_endpoint_url"

# Option -> the mechanisms that have it.
BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "sasl_plain_username": _PASSWORD,
    "sasl_plain_password": _PASSWORD,
    "sasl_scram_tokenauth": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "sasl_oauth_token_provider": ("OAUTHBEARER",),
    "sasl_oauth_extensions": ("OAUTHBEARER",),
    _ENDPOINT: ("OAUTHBEARER",),
    "sasl_oauthbearer_client_credentials_client_id": ("OAUTHBEARER",),
    "sasl_oauthbearer_client_credentials_client_secret": ("OAUTHBEARER",),
    "sasl_kerberos_service_name": ("GSSAPI",),
    "sasl_kerberos_principal": ("GSSAPI",),
    "sasl_kerberos_keytab": ("GSSAPI",),
}

# Mechanism -> the options that it requires.
NEEDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_PASSWORD, ("sasl_plain_username", "sasl_plain_password")),
    "GSSAPI": ("sasl_kerberos_service_name",),
}


def derive(values: dict[str, Any], given: Mapping[str, str], rows: Mapping[str, kinds.Option]) -> None:
    """Check the SASL options in `values` by the rules of this module.

    Also sets the options that `sasl_jaas_config` contains. If it is a reference, it is read for each authentication
    instead. With OAUTHBEARER it is read now, because tokens are not requested for each authentication.

    `given` maps each option that the user set to its name as the user wrote it. Raises ConfigError if options
    contradict each other, or if a required option is missing. The message names them.
    """
    if values["sasl_mechanism"] == "AWS_MSK_IAM" or any(name.endswith("callback_handler_class") for name in given):
        from kconsumer.config.token_providers import apply_handler  # imported only if there is one

        jaas = values["sasl_jaas_config"]
        apply_handler(values, given, None if jaas is None else _read(jaas, given["sasl_jaas_config"]))
    mechanism = values["sasl_mechanism"]
    _check_mechanism(mechanism, given)
    jaas = values["sasl_jaas_config"]
    if mechanism == "OAUTHBEARER" and kinds.refers(jaas):
        jaas = _read(jaas, given["sasl_jaas_config"])
    if jaas is not None and not kinds.refers(jaas):
        _apply_jaas(jaas, values, given, rows)
    if jaas is None or not kinds.refers(jaas):
        _check_needs(mechanism, values)


def _check_mechanism(mechanism: str, given: Mapping[str, str]) -> None:
    for name, spelling in given.items():
        if mechanism not in BELONGS_TO.get(name, (mechanism,)):
            actual = "is GSSAPI unless you set it" if "sasl_mechanism" not in given else f"is {mechanism}"
            required = " or ".join(BELONGS_TO[name])
            raise ConfigError(f"{spelling} belongs to sasl_mechanism {required}, but sasl_mechanism {actual}")
    if mechanism == "GSSAPI" and importlib.util.find_spec("gssapi") is None:
        actual = " (which it is unless you set it)" if "sasl_mechanism" not in given else ""
        raise ConfigError(f"sasl_mechanism='GSSAPI'{actual} needs the package gssapi: pip install gssapi")


def _read(jaas: object, name: str) -> str | None:
    """Returns the text that a reference in `sasl_jaas_config` refers to. Raises ConfigError if it cannot be read."""
    try:
        return kinds.reveal(jaas)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from error


def _apply_jaas(jaas: str, values: dict[str, Any], given: Mapping[str, str], rows: Mapping[str, kinds.Option]) -> None:
    """Convert a JAAS entry, and set its options in `values`."""
    from kconsumer.config.jaas import options_of  # imported only if there is one

    for name, value in options_of(jaas, values["sasl_mechanism"]).items():
        if name in given:
            raise ConfigError(f"sasl_jaas_config and {given[name]} set the same option; use one of them")
        values[name] = rows[name].read(value, f"{name} (of sasl_jaas_config)")


def _check_needs(mechanism: str, values: Mapping[str, Any]) -> None:
    missing = [name for name in NEEDS.get(mechanism, ()) if values[name] is None]
    if missing:
        raise ConfigError(f"sasl_mechanism={mechanism!r} needs {' and '.join(missing)} (or sasl_jaas_config)")
    if mechanism != "OAUTHBEARER":
        return
    provider, endpoint = values["sasl_oauth_token_provider"], values[_ENDPOINT]
    if (provider is None) == (endpoint is None):
        both = "cannot have both" if provider is not None else "needs one of"
        raise ConfigError(f"sasl_mechanism='OAUTHBEARER' {both} sasl_oauth_token_provider and {_ENDPOINT}")
    if endpoint is not None:
        names = [f"sasl_oauthbearer_client_credentials_client_{half}" for half in ("id", "secret")]
        missing = [name for name in names if values[name] is None]
        if missing:
            raise ConfigError(f"{_ENDPOINT} needs {' and '.join(missing)}")
