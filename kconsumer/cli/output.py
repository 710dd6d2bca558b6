r"""Formats a record as bytes: as `text`, as `json`, or with a format string of %-tokens, as in kcat (kafkacat).

`%t` topic, `%p` partition, `%o` offset, `%k` key, `%s` value, `%x` hex of the value, `%T` timestamp (ms), `%d` and `%D`
timestamp as ISO 8601 in UTC and in local time, `%h` headers, `%K` and `%S` length of key and value in bytes (-1 for
null), `%%` a percent sign; `\n \r \t \\ \xHH` as in C. Only `text` and `json` add a newline after each record. On a
terminal control characters of records are escaped, and JSON has colors.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from kconsumer.cli.terminal import color_json, color_matches, safe_bytes, safe_json

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord

Writer = Callable[["ConsumerRecord"], bytes]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN = re.compile(rb"%(?P<token>.?)|\\(?P<escape>x[0-9A-Fa-f]{2}|.?)|(?P<literal>[^%\\]+)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def as_bytes(value: object) -> bytes:
    """Convert a key or a value to bytes. Bytes are returned unchanged.

    None becomes no bytes, a mapping, list or boolean becomes JSON, and any other object becomes its `str()`.
    """
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    text = (
        json.dumps(_json_value(value), ensure_ascii=False) if isinstance(value, Mapping | list | bool) else str(value)
    )
    return text.encode(errors="surrogatepass")


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


def _value(record: ConsumerRecord) -> bytes:
    return as_bytes(record.value)


def _time(record: ConsumerRecord, *, local: bool = False) -> bytes:
    """Returns the timestamp as ISO 8601 with milliseconds, or nothing if there is none or Python has no such time."""
    try:
        moment = EPOCH + timedelta(milliseconds=record.timestamp)
        text = (moment.astimezone() if local else moment).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # ValueError and OSError: of the local time
        return b""
    return b"" if record.timestamp < 0 else text.replace("+00:00", "+00:00" if local else "Z").encode()


TOKENS: dict[str, Writer] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: as_bytes(record.key),
    "s": _value,
    "x": lambda record: as_bytes(record.value).hex().encode(),
    "T": lambda record: b"%d" % record.timestamp,
    "d": _time,
    "D": partial(_time, local=True),
    "h": _headers,
    "K": lambda record: b"%d" % record.serialized_key_size,
    "S": lambda record: b"%d" % record.serialized_value_size,
}
#: The tokens that print nothing for null, and the field that is null.
NULLABLE = {TOKENS["k"]: "key", TOKENS["s"]: "value", TOKENS["x"]: "value"}


@dataclass(frozen=True, slots=True)
class Terminal:
    """How records are written to a terminal."""

    colors: bool = False
    pattern: re.Pattern[str] | None = None  # what is colored in values

    def value(self, record: ConsumerRecord) -> bytes:
        """Returns the value with control characters escaped, and matches of the pattern in color."""
        text = safe_bytes(as_bytes(record.value))
        if self.colors and self.pattern is not None:
            text = color_matches(text, self.pattern)
        return text.encode()

    def json_line(self, record: ConsumerRecord) -> bytes:
        text = safe_json(_json_line(record).decode().rstrip("\n"))
        return (color_json(text) if self.colors else text).encode() + b"\n"


def writer(spec: str, terminal: Terminal | None = None, null: bytes = b"") -> Writer:
    """Returns a function that formats a record as `spec` requires. Raises ValueError for an unknown format or token.

    `terminal`: how records are written if the output is a terminal. `null`: what is printed for a null key or value.
    """
    if spec == "text":
        value = _for_terminal(TOKENS["s"], terminal, null)
        return lambda record: value(record) + b"\n"
    if spec == "json":
        return _json_line if terminal is None else terminal.json_line
    if "%" not in spec:
        raise ValueError(f"{spec!r} is not text, json, or a format with %-tokens such as '%k %s\\n'")
    parts = [part if isinstance(part, bytes) else _for_terminal(part, terminal, null) for part in _compile(spec)]

    def write(record: ConsumerRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return write


def _for_terminal(write: Writer, terminal: Terminal | None, null: bytes = b"") -> Writer:
    """Returns the writer of a token for a terminal. It escapes what comes from the record, not the format itself."""
    field = NULLABLE.get(write) if null else None
    if field is not None:
        other = _for_terminal(write, terminal)
        return lambda record: null if getattr(record, field) is None else other(record)
    if terminal is None:
        return write
    if write is TOKENS["s"]:
        return terminal.value
    return lambda record: safe_bytes(write(record)).encode()


def _compile(spec: str) -> list[bytes | Writer]:
    parts: list[bytes | Writer] = []
    for match in _TOKEN.finditer(spec.encode()):
        if match["token"] is not None:
            parts.append(_token(match["token"].decode(errors="replace")))
        elif match["escape"] is not None:
            parts.append(_escape(match["escape"]))
        else:
            parts.append(match["literal"])
    return parts


def _token(letter: str) -> bytes | Writer:
    if letter == "%":
        return b"%"
    if letter not in TOKENS:
        known = " ".join(f"%{name}" for name in (*TOKENS, "%"))
        raise ValueError(f"%{letter} is not a token of a format; the tokens are {known}")
    return TOKENS[letter]


def _escape(code: bytes) -> bytes:
    if len(code) == 3:
        return bytes.fromhex(code[1:].decode())
    return _ESCAPES.get(code, b"\\" + code)


def _json_line(record: ConsumerRecord) -> bytes:
    return json.dumps(json_fields(record), ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def json_fields(record: ConsumerRecord) -> dict[str, object]:
    """Returns the fields of a record as values for json.dumps.

    Bytes become text, or {"base64": "..."} if they are not UTF-8.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_value(record.key),
        "value": _json_value(record.value),
        "headers": [[name, _json_value(value)] for name, value in record.headers],
    }


def _json_value(value: object) -> object:
    """Convert a value for json.dumps. Mappings and lists, which a deserializer may return, keep their structure."""
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return _json_bytes(bytes(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN and no infinity
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _json_bytes(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
