r"""How a record is written: `text`, `json`, or a format of %-tokens as kcat (kafkacat) has them.

`%t` topic, `%p` partition, `%o` offset, `%k` key, `%s` value, `%T` timestamp (ms), `%h` headers, `%K` and `%S`
length of key and value (-1 for null), `%%` a percent sign; `\n \r \t \\ \xHH` as in C. A format says itself
where lines end.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord

Writer = Callable[["ConsumerRecord"], bytes]
_PIECE = re.compile(rb"%(?P<token>.?)|\\(?P<escape>x[0-9A-Fa-f]{2}|.?)|(?P<literal>[^%\\]+)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"0": b"\0", b"\\": b"\\"}


def as_bytes(value: object) -> bytes:
    """Return bytes as they are, null as nothing, and what a deserializer made as text: mappings and lists as JSON."""
    if value is None:
        return b""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    text = json.dumps(_json_value(value), ensure_ascii=False) if isinstance(value, Mapping | list) else str(value)
    return text.encode(errors="surrogatepass")


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


TOKENS: dict[str, Writer] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: as_bytes(record.key),
    "s": lambda record: as_bytes(record.value),
    "T": lambda record: b"%d" % record.timestamp,
    "h": _headers,
    "K": lambda record: b"%d" % record.serialized_key_size,
    "S": lambda record: b"%d" % record.serialized_value_size,
}


def writer(spec: str) -> Writer:
    """The function that turns a record into the bytes to print. ValueError for a format that is none."""
    if spec == "text":
        return lambda record: as_bytes(record.value) + b"\n"
    if spec == "json":
        return _json_line
    if "%" not in spec:
        raise ValueError(f"{spec!r} is neither text nor json nor a format with %-tokens such as '%k %s\\n'")
    pieces = _compile(spec)

    def write(record: ConsumerRecord) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(record) for piece in pieces])

    return write


def _compile(spec: str) -> list[bytes | Writer]:
    pieces: list[bytes | Writer] = []
    for match in _PIECE.finditer(spec.encode()):
        if match["token"] is not None:
            pieces.append(_token(match["token"].decode(errors="replace")))
        elif match["escape"] is not None:
            pieces.append(_escape(match["escape"]))
        else:
            pieces.append(match["literal"])
    return pieces


def _token(letter: str) -> bytes | Writer:
    if letter == "%":
        return b"%"
    if letter not in TOKENS:
        known = " ".join(f"%{name}" for name in (*TOKENS, "%"))
        raise ValueError(f"%{letter} is not a token of a format; there are {known}")
    return TOKENS[letter]


def _escape(code: bytes) -> bytes:
    if len(code) == 3:
        return bytes.fromhex(code[1:].decode())
    return _ESCAPES.get(code, b"\\" + code)


def _json_line(record: ConsumerRecord) -> bytes:
    """One JSON object in a line."""
    return json.dumps(json_fields(record), ensure_ascii=False).encode() + b"\n"


def json_fields(record: ConsumerRecord) -> dict[str, object]:
    """A record for JSON. Bytes that are not UTF-8 become {"base64": "..."}, so nothing is lost or ambiguous."""
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
    """Return what json.dumps writes as it is meant: what a deserializer made keeps its structure."""
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _json_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return _json_bytes(bytes(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _json_bytes(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
