"""The language of the wire tables: fields, structs, version ranges, APIs, and the plans made of them.

`struct` turns a table of fields into a message class; `api` ties a request and a response together; `plan`
flattens a class at one version into a tuple that `kconsumer._core.codec` runs. This module decides nothing
about bytes: it says which field is there, of which kind, in which version.

Every consumer imports this on its way to the first record, so its few classes are written out: `@dataclass` compiles
their methods anew in each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

ZERO_UUID = bytes(16)
NEWEST = 32767


class Versions:
    """An inclusive range of versions; `Versions(1, 0)` holds none."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first: Final = first
        self.last: Final = last

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Read "3", "3+", "3-7", or "" for none."""
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
    """A kind of value without parts: its name in plans, its default, and its Python type for the stubs."""

    __slots__ = ("default", "name", "python")

    def __init__(self, name: str, default: Any, python: str) -> None:
        self.name: Final = name
        self.default: Final = default
        self.python: Final = python


class Array:
    """A list of one kind of element, a scalar or a message class."""

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
    """One row of a struct's table. A message has `default`, or a new `fresh()`, where a field is not set or
    not on the wire; `fresh` is for lists and structs, which messages must not share."""

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


def F(  # noqa: N802  short and capital so that tables read as tables
    name: str,
    kind: Scalar | Array | type[Message],
    versions: str = "0+",
    *,
    null: str = "",
    default: Any = _UNSET,
    tag: int | None = None,
    secret: bool = False,
) -> Field:
    """One field: where it exists (`versions`) and where it may be null, both like "3", "3+" or "3-7".

    A field with a `tag` is optional on the wire: it is left out when it equals its default, and a tagged
    struct that was left out is None. `secret` keeps the value out of `repr`.
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
    """Base of all message classes: one per struct for all versions, with a slot per field.

    The constructor takes fields as keywords; the rest have their defaults. Fields that a version does not
    carry are ignored when encoding at it, and have their default after decoding.
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
        """The fields that differ from their defaults."""
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value != (field.fresh() if field.fresh else field.default):
                shown.append(f"{field.name}={'...' if field.secret else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def struct(name: str, *fields: Field) -> type[Message]:
    """A message class with these fields, in the order they have on the wire."""
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
    """What to do, in order, to read or write a `cls` at `version`; made on first use and kept.

    `(cls, flexible, row, ...)` with one row per field of the class: `(name, kind, inner, nullable, tag,
    default, fresh)`. `kind` is a scalar's name, "array", "struct", or "absent" for a field this version does
    not carry; `inner` is an array's element (a scalar's name or a plan) or a struct's plan; `tag` is -1 for
    an ordinary field.
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
    """A kind of request: its key, the versions known here, and the classes of its two messages.

    `flexible_from` is the first version with compact lengths and tagged fields (KIP-482), None for never.
    `throttle_from` is the first version whose throttle time the client has to sit out by itself (KIP-219).
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
        known: Versions,
        flexible_from: int | None,
        throttle_from: int | None,
        request: type[Message],
        response: type[Message],
    ) -> None:
        self.name: Final = name
        self.key: Final = key
        self.min_version: Final = known.first
        self.max_version: Final = known.last
        self.flexible_from: Final = flexible_from
        self.throttle_from: Final = throttle_from
        self.request: Final = request
        self.response: Final = response

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """2 with tagged fields, 1 without."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields, else 0; always 0 for ApiVersions: its reader does not know the broker yet."""
        return 1 if self.is_flexible(version) and self.name != "ApiVersions" else 0

    def request_plan(self, version: int) -> Plan:
        """The plan of the request; ValueError for a version not known here."""
        return plan(self.request, self._known(version), self.is_flexible(version))

    def response_plan(self, version: int) -> Plan:
        """The plan of the response; ValueError for a version not known here."""
        return plan(self.response, self._known(version), self.is_flexible(version))

    def _known(self, version: int) -> int:
        if not self.min_version <= version <= self.max_version:
            raise ValueError(f"{self.name} v{version}: only {self.min_version}-{self.max_version} are known")
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
    """Declare an API; `versions` like "4-18"."""
    return Api(name, key, Versions.parse(versions), flexible, throttle, request, response)


def request_plan(api: Api, version: int) -> Plan:
    """The plan of the API's request at `version`."""
    return api.request_plan(version)


def response_plan(api: Api, version: int) -> Plan:
    """The plan of the API's response at `version`."""
    return api.response_plan(version)
