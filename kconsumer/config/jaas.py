"""Java's `sasl.jaas.config`: one login module with its options, as the options that we have for the same.

    module.Name control-flag key=value key="quoted \\"value\\"" … ;

Understood are the four modules that clients of Kafka use. Nothing of the text is shown in an error but names: any value
may be a secret.
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
    """What the text says."""

    module: str
    options: dict[str, str]


def parse(text: str) -> Entry:
    """Read one entry. ConfigError says what it must look like."""
    tokens = _tokens(text)
    words = [word for word, quoted in tokens[:2] if not quoted and word not in "=;"]
    if len(words) < 2 or words[1].lower() not in FLAGS:
        raise _wrong(f"it begins with a module's class and one of {', '.join(FLAGS)}")
    if tokens[-1] != (";", False):
        raise _wrong("it ends with a semicolon")
    rest = tokens[2:-1]
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        piece = rest[at : at + 3]
        if len(piece) < 3 or piece[1] != ("=", False) or piece[0][1] or (not piece[2][1] and piece[2][0] in "=;"):
            if (";", False) in rest:
                raise _wrong("it has exactly one entry, with one semicolon, at the end")
            raise _wrong('after them come options of the form name="value"')
        if piece[0][0] in options:
            raise _wrong(f"it gives {piece[0][0]} twice")
        options[piece[0][0]] = piece[2][0]
    return Entry(words[0], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words with whether they were quoted."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong("a quotation mark is never closed")
        at = match.end()
        if match["quoted"]:
            found.append((re.sub(r"\\(.)", r"\1", match["quoted"][1:-1], flags=re.DOTALL), True))
        elif match["mark"] or match["word"]:
            found.append((match["mark"] or match["word"], False))
    return found


def _wrong(why: str) -> ConfigError:
    return ConfigError(f"sasl_jaas_config cannot be read: {why}")


class Module(NamedTuple):
    """A login module: the mechanisms it serves, and its options with ours. The others in `ignored` configure a JVM."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, str]
    ignored: frozenset[str] = frozenset()
    more: Callable[[Mapping[str, str]], dict[str, Any]] | None = None


def _extensions(options: Mapping[str, str]) -> dict[str, Any]:
    """`extension_name=value` of OAuthBearerLoginModule."""
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
    """Our options for an entry. ConfigError if its module is not one that we know, or not for this mechanism."""
    entry = parse(text)
    name = entry.module.rpartition(".")[2]
    module = _NAMES.get(name)
    if module is None:
        raise ConfigError(f"sasl_jaas_config names the module {entry.module}; known are {', '.join(_NAMES)}")
    if mechanism not in module.mechanisms:
        wanted = " or ".join(module.mechanisms)
        raise ConfigError(f"sasl_jaas_config has a {name}, which is for sasl_mechanism={wanted}, not {mechanism}")
    found = module.more(entry.options) if module.more is not None else {}
    extra = {f"extension_{key}" for value in found.values() for key in value}
    for key, value in entry.options.items():
        if key in module.options:
            found[module.options[key]] = value
        elif key not in module.ignored and key not in extra:
            raise ConfigError(f"sasl_jaas_config: {name} has no option {key}; known are {', '.join(module.options)}")
    return found
