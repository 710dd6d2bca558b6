"""Converts Java's `sasl.jaas.config`, one login module with its options, into the equivalent options of kconsumer.

    module.Name control-flag key=value key="quoted \\"value\\"" … ;

The four modules that clients of Kafka use are supported. Error messages contain names of the text but no values,
because any value may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kconsumer.errors import ConfigError

FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s+ | /\*.*?\*/ | //[^\n]*
    | (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<mark> [=;] )
    | (?P<word> [^\s"'=;]+ )""",
    re.VERBOSE | re.DOTALL,
)


class Entry(NamedTuple):
    """A parsed `sasl.jaas.config`."""

    module: str
    options: dict[str, str]


def parse(text: str) -> Entry:
    """Parse a `sasl.jaas.config`. Raises ConfigError, which describes the syntax, if that is not possible."""
    tokens = _tokens(text)
    words = [word for word, quoted in tokens[:2] if not quoted and word not in "=;"]
    if len(words) < 2 or words[1].lower() not in FLAGS:
        raise _wrong(f"it begins with a module's class and one of {', '.join(FLAGS)}")
    if tokens[-1] != (";", False):
        raise _wrong("it ends with a semicolon")
    rest = tokens[2:-1]
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        part = rest[at : at + 3]
        if len(part) < 3 or part[1] != ("=", False) or part[0][1] or (not part[2][1] and part[2][0] in "=;"):
            if (";", False) in rest:
                raise _wrong("it has exactly one entry, with one semicolon, at the end")
            raise _wrong('then it has options of the form name="value"')
        if part[0][0] in options:
            raise _wrong(f"it gives {part[0][0]} twice")
        options[part[0][0]] = part[2][0]
    return Entry(words[0], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Returns the words of a text and its marks `=` and `;`, as pairs: the word or mark, and True if it was quoted."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong("a quoted value has no closing quotation mark")
        at = match.end()
        if match["quoted"]:
            found.append((re.sub(r"\\(.)", r"\1", match["quoted"][1:-1], flags=re.DOTALL), True))
        elif match["mark"] or match["word"]:
            found.append((match["mark"] or match["word"], False))
    return found


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"sasl_jaas_config cannot be read: {why}")


class Module(NamedTuple):
    """A supported login module, and how its options are converted."""

    mechanisms: tuple[str, ...]  # the SASL mechanisms that it implements
    options: Mapping[str, str]  # its options -> the equivalent options of kconsumer
    ignored: frozenset[str] = frozenset()  # options that configure a JVM
    more: Callable[[Mapping[str, str]], dict[str, Any]] | None = None  # converts further options


def _extensions(options: Mapping[str, str]) -> dict[str, Any]:
    """Returns `sasl_oauth_extensions` for the `extension_name=value` options of OAuthBearerLoginModule."""
    found = {key.removeprefix("extension_"): value for key, value in options.items() if key.startswith("extension_")}
    return {"sasl_oauth_extensions": found} if found else {}


_USER = {"username": "sasl_plain_username", "password": "sasl_plain_password"}
_KAFKA = "org.apache.kafka.common.security."
MODULES: Mapping[str, Module] = {
    _KAFKA + "plain.PlainLoginModule": Module(("PLAIN",), _USER),
    _KAFKA + "scram.ScramLoginModule": Module(
        ("SCRAM-SHA-256", "SCRAM-SHA-512"), {**_USER, "tokenauth": "sasl_scram_tokenauth"}
    ),
    _KAFKA + "oauthbearer.OAuthBearerLoginModule": Module(
        ("OAUTHBEARER",),
        {
            "clientId": "sasl_oauthbearer_client_credentials_client_id",
            "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
            "scope": "sasl_oauthbearer_scope",
        },
        more=_extensions,
    ),
    "com.sun.security.auth.module.Krb5LoginModule": Module(
        ("GSSAPI",),
        {
            "serviceName": "sasl_kerberos_service_name",
            "principal": "sasl_kerberos_principal",
            "keyTab": "sasl_kerberos_keytab",
        },
        frozenset(
            (
                "useKeyTab",
                "storeKey",
                "useTicketCache",
                "renewTGT",
                "debug",
                "doNotPrompt",
                "ticketCache",
                "refreshKrb5Config",
            )
        ),
    ),
}
_NAMES = {name.rpartition(".")[2]: module for name, module in MODULES.items()}


def options_of(text: str, mechanism: str) -> dict[str, Any]:
    """Returns the equivalent options of kconsumer for the text of an entry.

    Raises ConfigError if the login module is not supported, or does not implement the mechanism.
    """
    entry = parse(text)
    name = entry.module.rpartition(".")[2]
    module = _NAMES.get(name)
    if module is None:
        raise ConfigError(f"sasl_jaas_config names the module {entry.module}; supported are {', '.join(_NAMES)}")
    if mechanism not in module.mechanisms:
        required = " or ".join(module.mechanisms)
        raise ConfigError(f"sasl_jaas_config has a {name}, which is for sasl_mechanism={required}, not {mechanism}")
    found = module.more(entry.options) if module.more is not None else {}
    extra = {f"extension_{key}" for value in found.values() for key in value}
    for key, value in entry.options.items():
        if key in module.options:
            found[module.options[key]] = value
        elif key not in module.ignored and key not in extra:
            raise ConfigError(
                f"sasl_jaas_config: {name} has no option {key}; supported are {', '.join(module.options)}"
            )
    return found
