"""The language of the protocol tables: fields, structs, version ranges, APIs, and the plans computed from them.

`struct` creates a message class from a table of fields; `api` combines a request and a response; `plan` flattens a
class at one version into a tuple that `kconsumer._core.codec` interprets. This module does not encode or decode: it
says which fields exist in which version, and of which kind they are.

Its classes are written without `@dataclass`, which would compile their methods in each process, because every consumer
imports this module before its first record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

ZERO_UUID = bytes(16)
NEWEST = 32767


class Versions:
    """An inclusive range of versions; `Versions(1, 0)` is empty."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first: Final = first
        self.last: Final = last

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Returns the range written as "3", "3+", "3-7", or "" for an empty one."""
        if not text:
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        first, dash, last = text.partition("-")
        return cls(int(first), int(last if dash else first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


# --- kinds of values ----------------------------------------------------------------------------------------


class Scalar:
    """A kind of scalar value: its name in plans, its default, and its Python type for the stubs."""

    __slots__ = ("default", "name", "python")

    def __init__(self, name: str, default: Any, python: str) -> None:
        self.name: Final = name
        self.default: Final = default
        self.python: Final = python


class Array:
    """A list of elements of one kind, a scalar or a message class."""

    __slots__ = ("element",)

    def __init__(self, element: Scalar | type[Message]) -> None:
        self.element: Final = element


BOOL = Scalar("bool", False, "bool")
INT8 = Scalar("int8", 0, "int")
INT16 = Scalar("int16", 0, "int")
INT32 = Scalar("int32", 0, "int")
INT64 = Scalar("int64", 0, "int")
UUID = Scalar("uuid", ZERO_UUID, "bytes")
STRING = Scalar("string", "", "str")
BYTES = Scalar("bytes", b"", "bytes")
RECORDS = Scalar("records", None, "Slice | bytes")  # decoded to a view into the frame, not to a copy

array = Array


# --- fields and structs -------------------------------------------------------------------------------------


class Field:
    """One row of a struct's table.

    A message has `default`, or the result of `fresh()`, for a field that is not set or not in the encoded message.
    `fresh` is for lists and structs, which messages must not share.
    """

    __slots__ = ("default", "fresh", "kind", "name", "null", "secret", "tag", "versions")

    def __init__(
        self,
        name: str,
        kind: Scalar | Array | type[Message],
        versions: Versions,
        null: Versions,
        default: Any,
        fresh: Callable[[], Any] | None,
        tag: int | None,
        secret: bool,
    ) -> None:
        self.name: Final = name
        self.kind: Final = kind
        self.versions: Final = versions
        self.null: Final = null
        self.default: Final = default
        self.fresh: Final = fresh
        self.tag: Final = tag
        self.secret: Final = secret


_UNSET: Any = object()


def F(  # noqa: N802  short and upper-case for readable tables
    name: str,
    kind: Scalar | Array | type[Message],
    versions: str = "0+",
    *,
    null: str = "",
    default: Any = _UNSET,
    tag: int | None = None,
    secret: bool = False,
) -> Field:
    """Returns a field that exists in `versions` and may be null in the versions `null`, both like "3", "3+" or "3-7".

    A field with a `tag` is optional in the encoded message: it is omitted if it equals its default, and a tagged struct
    that was omitted is None. The value of a `secret` field is not in `repr`.
    """
    fresh: Callable[[], Any] | None = None
    if default is _UNSET:
        if isinstance(kind, Scalar):
            default = kind.default
        else:
            default = None
            fresh = list if isinstance(kind, Array) else None if tag is not None else kind
    return Field(name, kind, Versions.parse(versions), Versions.parse(null), default, fresh, tag, secret)


class Message:
    """Base of all message classes: one class per struct for all versions, with a slot per field.

    The constructor takes fields as keywords; all others have their defaults. A field that does not exist in a version
    is ignored when a message is encoded in this version, and has its default after decoding.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # mutable
    FIELDS: ClassVar[tuple[Field, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    _fresh: ClassVar[tuple[tuple[str, Callable[[], Any]], ...]] = ()

    def __init__(self, **values: Any) -> None:
        fields = {**self._defaults, **values}
        if len(fields) > len(self.FIELDS):
            unknown = sorted(set(values) - set(self._defaults))
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")
        for name, value in fields.items():
            setattr(self, name, value)
        for name, make in self._fresh:
            if name not in values:
                setattr(self, name, make())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        """Returns the fields that differ from their defaults."""
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value != (field.fresh() if field.fresh else field.default):
                shown.append(f"{field.name}={'...' if field.secret else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def struct(name: str, *fields: Field) -> type[Message]:
    """Returns a message class with these fields, in the order in which they are encoded."""
    return type(
        name,
        (Message,),
        {
            "__slots__": tuple(field.name for field in fields),
            "__module__": sys._getframe(1).f_globals["__name__"],
            "__doc__": f"Kafka's {name}: {', '.join(field.name for field in fields)}.",
            "FIELDS": fields,
            "_defaults": {field.name: field.default for field in fields},
            "_fresh": tuple((field.name, field.fresh) for field in fields if field.fresh),
        },
    )


# --- plans --------------------------------------------------------------------------------------------------

Plan = tuple[Any, ...]
_PLANS: dict[tuple[type[Message], int, bool], Plan] = {}


def plan(cls: type[Message], version: int, flexible: bool) -> Plan:
    """Returns how a `cls` is decoded or encoded at `version`; computed on first use and cached.

    The plan is `(cls, flexible, row, ...)` with one row per field of the class: `(name, kind, inner, nullable, tag,
    default, fresh)`. `kind` is a scalar's name, "array", "struct", or "absent" for a field that this version does not
    have; `inner` is an array's element (a scalar's name or a plan) or a struct's plan; `tag` is -1 for a field without
    one.
    """
    key = (cls, version, flexible)
    found = _PLANS.get(key)
    if found is None:
        rows = (_row(field, version, flexible) for field in cls.FIELDS)
        found = _PLANS[key] = (cls, flexible, *rows)
    return found


def _row(field: Field, version: int, flexible: bool) -> Plan:
    if version not in field.versions:
        return (field.name, "absent", None, False, -1, field.default, field.fresh)
    kind = field.kind
    inner: Any = None
    if isinstance(kind, Scalar):
        name = kind.name
    elif isinstance(kind, Array):
        name = "array"
        element = kind.element
        inner = element.name if isinstance(element, Scalar) else plan(element, version, flexible)
    else:
        name, inner = "struct", plan(kind, version, flexible)
    tag = -1 if field.tag is None else field.tag
    return (field.name, name, inner, version in field.null, tag, field.default, field.fresh)


# --- APIs ---------------------------------------------------------------------------------------------------


class Api:
    """A kind of request: its key, the supported versions, and the classes of request and response.

    `flexible_from` is the first version with compact lengths and tagged fields (KIP-482), or None if there is none.
    `throttle_from` is the first version whose throttle time the client itself must wait for (KIP-219).
    """

    __slots__ = (
        "flexible_from",
        "key",
        "max_version",
        "min_version",
        "name",
        "request",
        "response",
        "throttle_from",
    )

    def __init__(
        self,
        name: str,
        key: int,
        supported: Versions,
        flexible_from: int | None,
        throttle_from: int | None,
        request: type[Message],
        response: type[Message],
    ) -> None:
        self.name: Final = name
        self.key: Final = key
        self.min_version: Final = supported.first
        self.max_version: Final = supported.last
        self.flexible_from: Final = flexible_from
        self.throttle_from: Final = throttle_from
        self.request: Final = request
        self.response: Final = response

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Returns 2 with tagged fields, 1 without."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Returns 1 with tagged fields, otherwise 0; always 0 for ApiVersions, whose response comes before the versions
        of the broker are known."""
        return 1 if self.is_flexible(version) and self.name != "ApiVersions" else 0

    def request_plan(self, version: int) -> Plan:
        """Returns the plan of the request. Raises ValueError for a version that is not supported."""
        return plan(self.request, self._supported(version), self.is_flexible(version))

    def response_plan(self, version: int) -> Plan:
        """Returns the plan of the response. Raises ValueError for a version that is not supported."""
        return plan(self.response, self._supported(version), self.is_flexible(version))

    def _supported(self, version: int) -> int:
        if not self.min_version <= version <= self.max_version:
            raise ValueError(f"{self.name} v{version}: only {self.min_version}-{self.max_version} are supported")
        return version

    def __repr__(self) -> str:
        return f"<Api {self.name} v{self.min_version}-{self.max_version}>"


def api(
    name: str,
    *,
    key: int,
    versions: str,
    flexible: int | None = None,
    throttle: int | None = None,
    request: type[Message],
    response: type[Message],
) -> Api:
    """Returns an API; `versions` are written like "4-18"."""
    return Api(name, key, Versions.parse(versions), flexible, throttle, request, response)


def request_plan(api: Api, version: int) -> Plan:
    """Returns the plan of the API's request at `version`."""
    return api.request_plan(version)


def response_plan(api: Api, version: int) -> Plan:
    """Returns the plan of the API's response at `version`."""
    return api.response_plan(version)
