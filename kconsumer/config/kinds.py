"""One row of the option table, and the kinds of values that options have.

A `Kind` describes which values are allowed. It also converts a value that the user set, typed or as text, into the
value that the client uses. An `Option` adds name, default and meaning. Neither depends on other options: `options.py`
has the table and the rules between its rows.
"""

from __future__ import annotations

import importlib
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from kconsumer._common.deferred_calls import get_logger
from kconsumer.config.typed_values import typed_deserializer
from kconsumer.errors import ConfigError
from kconsumer.types import OffsetReset

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
log = get_logger(__name__)


class Kind(NamedTuple):
    """A type of option values: its description, its annotation and its parser."""

    text: str  # describes the allowed values, for messages and documents
    annotation: str  # the type for type checkers
    parse: Callable[[Any], Any]  # returns the value to use; raises ValueError, with or without a reason


class Option:
    """One row of the option table. If its default is None, None is an allowed value, too."""

    def __init__(
        self,
        kind: Kind,
        default: Any,
        meaning: str,
        *,
        protocol: str | None = None,
        secret: bool = False,
        own: bool = False,
    ) -> None:
        self.kind, self.default, self.meaning = kind, default, meaning
        # protocol: the only group_protocol that has this option ("share": only a ShareConsumer has it), or None.
        # secret: the value is never shown. own: Java does not have the option.
        self.protocol, self.secret, self.own = protocol, secret, own
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        """Returns the line that `help(ConsumerConfig)` shows."""
        return f"<option: {self.meaning} Takes {self.kind.text}.>"

    @property
    def java_key(self) -> str:
        """The name with dots, as in Java."""
        return self.name.replace("_", ".")

    def read(self, value: object, given: str) -> Any:
        """Check and convert `value`, which the user set under the name `given`. Returns the value that the client uses.

        Raises ConfigError if `value` is not allowed.
        """
        if value is None:
            if self.default is None:
                return None
            self._refuse(value, given, "it cannot be None; leave it out for the default")
        try:
            return self.kind.parse(value)
        except (ValueError, OverflowError) as error:
            self._refuse(value, given, str(error))

    def _refuse(self, value: object, given: str, why: str) -> NoReturn:
        none = " or None" if self.default is None else ""
        reason = f" ({why})" if why and not self.secret else ""
        raise ConfigError(
            f"{given}={self.show(value)} is not allowed{reason}: it takes {self.kind.text}{none}"
        ) from None

    def show(self, value: object) -> str:
        """Returns the repr of a value, for error messages. Returns "<hidden>" if the option is a secret."""
        return "<hidden>" if self.secret else repr(value)


def option(kind: Kind, default: Any, meaning: str, **traits: Any) -> Any:
    """Returns a row of the table.

    The return type is Any, because a row is annotated with the type of its value in a ConsumerConfig.
    """
    return Option(kind, default, meaning, **traits)


# --- plain values ---


def integer(low: int, high: int) -> Kind:
    """Returns the `Kind` of options that take an int from `low` to `high`. They also accept text, such as "10"."""

    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
            value = int(value)
        if isinstance(value, bool):
            raise ValueError
        try:
            result = operator.index(value)
        except TypeError:
            raise ValueError from None
        if not low <= result <= high:
            raise ValueError
        return result

    return Kind(f"an int from {low} to {high}", "int", parse)


def int32(low: int = 0) -> Kind:
    """Returns the `Kind` of options that take an int from `low` to the maximum of Java's int."""
    return integer(low, INT32_MAX)


def int64(low: int = 0) -> Kind:
    """Returns the `Kind` of options that take an int from `low` to the maximum of Java's long."""
    return integer(low, INT64_MAX)


def number(low: float, high: float) -> Kind:
    """Returns the `Kind` of options that take a float or int from `low` to `high`. They also accept text."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        result = float(value)
        if not low <= result <= high:
            raise ValueError
        return result

    return Kind(f"a number from {low} to {high}", "float", parse)


def choice(*allowed: str, ignore_case: bool = False, enum: str = "") -> Kind:
    """Returns the `Kind` of options that take one of the `allowed` words. `ignore_case` is for options whose case Java
    ignores. `enum` is the name of the enum whose members are allowed, too."""
    spellings = {word.lower() if ignore_case else word: word for word in allowed}

    def parse(value: object) -> str:
        key = getattr(value, "value", value)  # the value of an enum of kconsumer is the option's text
        if not isinstance(key, str):
            raise ValueError
        key = key.strip()
        try:
            return spellings[key.lower() if ignore_case else key]
        except KeyError:
            raise ValueError from None

    annotation = f"Literal[{', '.join(map(repr, allowed))}]".replace("'", '"')
    return Kind(f"one of {', '.join(allowed)}", f"{annotation} | {enum}" if enum else annotation, parse)


def text(*, allow_empty: bool = True) -> Kind:
    """Returns the `Kind` of options that take a str."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not (value or allow_empty):
            raise ValueError
        return value

    return Kind("a str" if allow_empty else "a str that is not empty", "str", parse)


def _parse_limit_ms(value: object) -> int | None:
    """Returns an int. Returns None for infinity, with which kafka-python means "no limit"."""
    if value == math.inf:
        return None
    result: int = int64().parse(value)
    return result


def _parse_host_check(value: object) -> str:
    """Returns "https" or "". Also accepts "none", with which librdkafka means that the host is not checked."""
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in ("https", "", "none"):
        raise ValueError
    return "https" if word == "https" else ""


def _parse_provider(value: object) -> object:
    """Returns the value, which must be callable. For an object with a method token(), as in kafka-python, returns the
    method, and for text the function that it names."""
    if isinstance(value, str):
        from kconsumer.config.token_providers import NamedProvider  # imported only if it is used

        return NamedProvider(value)
    return _parse_callable(getattr(value, "token", value))


def _parse_pairs(value: object) -> dict[str, str]:
    """Returns a dict for a mapping, or for text of the form "name=value,name=value"."""
    if not isinstance(value, Mapping):
        pairs = [str(part).partition("=") for part in split_list(value)]
        if not all(name and separator for name, separator, _ in pairs):
            raise ValueError
        value = {name.strip(): text for name, _, text in pairs}
    if not all(isinstance(name, str) and isinstance(text, str) for name, text in value.items()):
        raise ValueError
    return dict(value)


def _parse_boolean(value: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    if not isinstance(value, bool):
        raise ValueError
    return value


def _parse_callable(value: object) -> object:
    if not callable(value):
        raise ValueError
    return value


def split_list(value: object) -> list[object]:
    """Returns the entries of a sequence, or of a comma-separated str. Raises ValueError for an empty entry."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if parts[-1] == "":  # after a trailing comma, or of an empty text
            parts.pop()
        value = parts
    if isinstance(value, Mapping | bytes) or not isinstance(value, Iterable):
        raise ValueError
    entries = list(value)
    if any(entry is None or entry == "" for entry in entries):
        raise ValueError("it has an empty entry")
    return entries


def _parse_words(value: object) -> tuple[str, ...]:
    words = split_list(value)
    if not all(isinstance(word, str) for word in words):
        raise ValueError
    return tuple(str(word) for word in words)


def _plugins(*methods: str) -> Callable[[object], tuple[object, ...]]:
    """Returns a parser for a list of objects. Each of them must have at least one of the `methods`.

    The parser also accepts a single such object. It returns a tuple.
    """

    def fits(entry: object) -> bool:
        return any(callable(getattr(entry, method, None)) for method in methods)

    def parse(value: object) -> tuple[object, ...]:
        entries = [value] if fits(value) else split_list(value)
        for entry in entries:
            if isinstance(entry, type):
                raise ValueError(f"pass an instance of {entry.__name__}, not the class")
            if not fits(entry):
                raise ValueError(f"{entry!r} has no {' or '.join(f'{method}()' for method in methods)}")
        return tuple(entries)

    return parse


# --- secrets ---


def _parse_secret(value: object) -> object:
    if not isinstance(value, str) and not callable(value):
        raise ValueError
    return value


def reveal(value: object) -> str | None:
    """Returns the secret that `value`, the value of an option, contains or refers to.

    `value` is the secret itself, a reference `env:NAME` or `file:PATH`, or a callable that returns the secret. For any
    other value, such as None, returns None. A line break at the end of a file is removed. Raises ValueError, with the
    reason, if the secret cannot be read.
    """
    if callable(value):
        result = value()
        if not isinstance(result, str):
            raise ValueError(f"{value!r} returned a {type(result).__name__} where a str is needed")
        return result
    if not isinstance(value, str):
        return None
    kind, _, rest = value.partition(":")
    if kind == "env":
        if rest not in os.environ:
            raise ValueError(f"the environment has no variable {rest}")
        return os.environ[rest]
    if kind == "file":
        try:
            with open(rest, encoding="utf-8") as file:
                return file.read().removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeError) as error:
            raise ValueError(f"file {rest} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return value


def refers(value: object) -> bool:
    """Returns True if `value` is a reference or a callable. `reveal` may then return a different secret each time."""
    return callable(value) or (isinstance(value, str) and value.startswith(("env:", "file:")))


# --- addresses ---

_ADDRESS = r"(?:[A-Za-z0-9_-]+://)?(?:\[(?P<six>[0-9A-Fa-f:.%\w-]+)\]|(?P<host>[^\s\[\]/:@]+)):(?P<port>[0-9]+)"


def parse_address(entry: str) -> tuple[str, int]:
    """Returns host and port of `host:port` or `[v6]:port`, with or without a listener name (`PLAINTEXT://`)."""
    entry = entry.strip()
    if entry.lower().startswith(("http://", "https://")):
        raise ValueError(f"{entry!r} is a web address; Kafka has its own protocol")
    match = re.fullmatch(_ADDRESS, entry)
    if match is None:
        bare = entry.rpartition("://")[2]
        if re.search("['\"]", entry):
            raise ValueError(f"{entry!r} has quotes; as text, a list is written without brackets and quotes: a:1,b:1")
        if len(several := re.split(r"[;|\s]+", entry)) > 1:
            raise ValueError(f"{entry!r}: addresses are separated by commas; write {','.join(filter(None, several))}")
        if bare.count(":") > 1 and "[" not in bare:
            raise ValueError(f"{entry!r}: an IPv6 address is written in brackets, as in [::1]:9092")
        if re.fullmatch(r"\[[^\]]+\]|[^\s:/\[\]@]+", bare):
            raise ValueError(f"{entry!r} has no port; write {bare}:9092")
        raise ValueError(f"{entry!r} is not host:port")
    port = int(match["port"])
    if not 1 <= port <= 65535:
        raise ValueError(f"{entry!r}: a port is a number from 1 to 65535")
    return match["six"] or match["host"], port


def _parse_servers(value: object) -> tuple[tuple[str, int], ...]:
    servers: list[tuple[str, int]] = []
    for entry in split_list(value):
        if isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2:
            host, port = str(entry[0]), entry[1]
            entry = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if not isinstance(entry, str):
            raise ValueError(f"{entry!r} is neither a str nor a (host, port) pair")
        address = parse_address(entry)
        if address in servers:
            log.warning("bootstrap_servers names %s:%d twice; the second one is ignored", *address)
        else:
            servers.append(address)
    if not servers:
        raise ValueError("it names no broker")
    return tuple(servers)


def parse_server(value: object) -> tuple[str, int]:
    """Returns the host and port of a pair, or of text such as "host:port"."""
    return _parse_servers([value])[0]


def _parse_address_map(value: object) -> Mapping[tuple[str, int], tuple[str, int]] | Callable[..., object]:
    """Returns a callable as it is, and a dict for a mapping or for text of the form "host:port=host:port,…"."""
    if callable(value) and not isinstance(value, Mapping):
        return value
    if not isinstance(value, Mapping):
        pairs = [str(part).partition("=") for part in split_list(value)]
        value = {advertised: target for advertised, _, target in pairs}
    return {parse_server(advertised): parse_server(target) for advertised, target in value.items()}


class Proxy(NamedTuple):
    """The address of a proxy to brokers."""

    option: str  # the name of the option
    host: str
    port: int
    user: str | None
    password: str

    @property
    def shown(self) -> str:
        """Names the proxy in messages, without the password."""
        return f"the proxy {self.host}:{self.port} ({self.option})"

    def __repr__(self) -> str:
        return f"<{self.shown}>"


PROXY_SCHEMES = {"socks_proxy": ("socks5", "socks5h"), "http_proxy": ("http",)}
MAX_LOGIN_BYTES = 255  # of a user and of a password in SOCKS


def parse_proxy(option: str, value: object) -> Proxy:
    """Returns the proxy at `scheme://[user:password@]host:port`. User and password may be percent-encoded."""
    scheme, _, rest = value.partition("://") if isinstance(value, str) else ("", "", "")
    login, at, address = rest.rpartition("@")
    address = address.removesuffix("/")
    if scheme.lower() not in PROXY_SCHEMES[option] or "/" in address:
        raise ValueError
    host, port = parse_address(address)
    from urllib.parse import unquote  # not imported by `import kconsumer`

    user, _, password = (unquote(part) for part in login.partition(":"))
    if max(len(user.encode()), len(password.encode())) > MAX_LOGIN_BYTES and option == "socks_proxy":
        raise ValueError
    return Proxy(option, host, port, user if at else None, password)


def proxy_form(option: str) -> str:
    """Returns what to write for the address of a proxy."""
    return f"{PROXY_SCHEMES[option][0]}://[user:password@]host:port"


def proxy(option: str) -> Kind:
    """Returns the `Kind` of the option of a proxy. A reference is read when a client is created."""

    def parse(value: object) -> object:
        if not refers(value):
            parse_proxy(option, value)
        return value

    text = f"{proxy_form(option)}, env:NAME, file:PATH, or a callable that returns it"
    return Kind(text, "str | Callable[[], str]", parse)


def _parse_http_url(value: object) -> str:
    if not isinstance(value, str) or re.search(r"\s", value):
        raise ValueError
    from urllib.parse import urlsplit  # not imported by `import kconsumer`

    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError
    if parts.username or parts.password:
        raise ValueError("the address must not contain credentials")
    if parts.port == 0:  # the property itself raises ValueError for other invalid ports
        raise ValueError("0 is not a valid port")
    return value


# --- offset reset ---

_DURATION = (
    r"(?P<sign>[+-])?P(?:(?P<days>[+-]?\d+)D)?"
    r"(?P<time>T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?(?:(?P<seconds>[+-]?\d+(?:[.,]\d{0,9})?)S)?)?"
)


def parse_duration_ms(value: str) -> int:
    """Returns the milliseconds of an ISO-8601 duration of days and smaller units (`P7D`, `PT1H30M`, `PT0.5S`), as Java
    parses it."""
    match = re.fullmatch(_DURATION, value.strip(), re.IGNORECASE)
    parts = [match[name] for name in ("days", "hours", "minutes", "seconds")] if match else []
    if match is None or not any(parts) or (match["time"] and not any(parts[1:])):
        raise ValueError(f"{value!r} is not an ISO-8601 duration such as PT1H or P7D")
    units = (86_400_000, 3_600_000, 60_000, 1000)
    total = sum(float((part or "0").replace(",", ".")) * unit for part, unit in zip(parts, units, strict=True))
    return int(-total if match["sign"] == "-" else total)


# Words of librdkafka and the corresponding words of kconsumer.
OTHER_RESETS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}


def _parse_reset(value: object) -> OffsetReset:
    if isinstance(value, OffsetReset):
        return value
    if not isinstance(value, str):
        raise ValueError
    named = {"latest": OffsetReset.LATEST, "earliest": OffsetReset.EARLIEST, "none": OffsetReset.NONE}
    if value in named:
        return named[value]
    if value in OTHER_RESETS:
        raise ValueError(f"use {OTHER_RESETS[value]}")
    kind, _, duration = value.partition(":")
    if kind != "by_duration":
        raise ValueError
    return OffsetReset.by_duration(parse_duration_ms(duration))


# --- names and plugins ---


def _parse_instance_id(value: object) -> str:
    if not isinstance(value, str) or value in (".", "..") or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", value):
        raise ValueError
    return value


def _parse_assignors(value: object) -> tuple[object, ...]:
    if isinstance(value, type) or hasattr(value, "assign"):
        value = [value]  # one assignor, not a list of them
    entries = split_list(value)
    if not entries:
        raise ValueError("it names no assignor")
    for position, entry in enumerate(entries):
        if not isinstance(entry, str | type) and not hasattr(entry, "assign") and not callable(entry):
            raise ValueError(f"{entry!r} is not an assignor")
        if any(entry is other or entry == other for other in entries[:position]):
            raise ValueError(f"it names {entry!r} twice")
    return tuple(entries)


def _signed(size: int) -> Callable[[bytes], int]:
    def decode(data: bytes) -> int:
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes where {size} are needed")
        return int.from_bytes(data, "big", signed=True)

    return decode


def _json_loads() -> Callable[[bytes], object]:
    """Returns `loads` of orjson if it is installed, otherwise of json."""
    try:
        library = importlib.import_module("orjson")
    except ImportError:
        library = importlib.import_module("json")
    loads: Callable[[bytes], object] = library.loads
    return loads


JAVA_DESERIALIZERS: dict[str, Callable[[bytes], object] | None] = {
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "StringDeserializer": bytes.decode,
    "ShortDeserializer": _signed(2),
    "IntegerDeserializer": _signed(4),
    "LongDeserializer": _signed(8),
}


def _parse_deserializer(value: object) -> object:
    if value is str:  # str(data) would return the repr of the bytes
        return bytes.decode
    if isinstance(value, str):
        package, _, name = value.strip().rpartition(".")
        if name == "json" and not package:
            return _json_loads()
        if name == "str" and not package:
            return bytes.decode
        if package not in ("", "org.apache.kafka.common.serialization") or name not in JAVA_DESERIALIZERS:
            raise ValueError("as text only str, json and Kafka's " + ", ".join(JAVA_DESERIALIZERS) + " are supported")
        return JAVA_DESERIALIZERS[name]
    typed = typed_deserializer(value)
    if typed is not None:
        return typed
    if isinstance(value, type) and hasattr(value, "deserialize"):
        raise ValueError(f"pass an instance of {value.__name__}, not the class")
    if not (callable(value) or hasattr(value, "deserialize")):
        raise ValueError
    return value


BOOLEAN = Kind("True or False", "bool", _parse_boolean)
CALLABLE = Kind("a callable", "Callable[..., object]", _parse_callable)
SECRET = Kind("a str, env:NAME, file:PATH, or a callable that returns a str", "str | Callable[[], str]", _parse_secret)
LIMIT_MS = Kind(int64().text, "int | float", _parse_limit_ms)
HOST_CHECK = Kind('"https" or ""', "str", _parse_host_check)
PROVIDER = Kind(
    "a callable, its name as package.module:function, or an object with token()",
    "Callable[..., object] | str | object",
    _parse_provider,
)
PAIRS = Kind('a mapping of str to str (or "name=value,name=value")', "Mapping[str, str] | str", _parse_pairs)
OBJECT = Kind("an object", "object", lambda value: value)
WORDS = Kind("a list of str (or one str with commas)", "Sequence[str]", _parse_words)
INTERCEPTORS = Kind(
    "a list of objects with on_consume(records) -> records, on_commit(offsets), or both",
    "Sequence[object]",
    _plugins("on_consume", "on_commit"),
)
REPORTERS = Kind("a list of objects with metric_change(metric)", "Sequence[object]", _plugins("metric_change"))
SERVERS = Kind(
    'host:port addresses, as "a:9092,b:9092" or a list', "str | Sequence[str | tuple[str, int]]", _parse_servers
)
ADDRESS_MAP = Kind(
    'a mapping of addresses to addresses, text "host:port=host:port,…", or a callable (host, port) -> (host, port)',
    "Mapping[tuple[str, int], tuple[str, int]] | Callable[[str, int], tuple[str, int] | None] | str",
    _parse_address_map,
)
HTTP_URL = Kind("an address https://host[:port]/path", "str", _parse_http_url)
RESET = Kind("one of latest, earliest, none, by_duration:<ISO-8601 duration>", "str | OffsetReset", _parse_reset)
INSTANCE_ID = Kind("1 to 249 of the characters a-z A-Z 0-9 . _ -", "str", _parse_instance_id)
ASSIGNORS = Kind("a list of assignor names, classes or instances, none twice", "Sequence[object]", _parse_assignors)
DESERIALIZER = Kind(
    'a callable (bytes) -> object, an object with deserialize(), a type, "str" or "json"',
    "Deserializer[Any] | str",
    _parse_deserializer,
)
