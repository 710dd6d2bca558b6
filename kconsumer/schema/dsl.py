"""The language of the protocol tables: messages, fields, version ranges, APIs, and the plans computed from them.

A message class is a table of fields. Each field has the type of its values, for type checkers and readers, and a call
of `F`, for the protocol: the kind of the values, and the versions that have the field.

    class FetchTopic(Message):
        topic: str = F(STRING, "0-12")
        topic_id: bytes = F(UUID, "13+")
        partitions: list[FetchPartition] = F(array(FetchPartition))

An `Api` combines a request class and a response class. `plan` converts a message class and a version to a tuple, by
which `kconsumer._core.codec` encodes and decodes messages. This module does not encode or decode.

The classes here do not use `@dataclass`, which would compile their methods in each process. Every consumer imports this
module before it reads its first record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar, dataclass_transform, overload

from kconsumer._core.codec import install_constructor

if TYPE_CHECKING:
    from kconsumer._core.wire import Slice

ZERO_UUID = bytes(16)
NEWEST = 32767


class Versions:
    """A range of versions, including `first` and `last`. `Versions(1, 0)` is empty."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first: Final = first
        self.last: Final = last

    @classmethod
    @functools.cache  # hundreds of fields are created at import, with few different texts
    def parse(cls, text: str) -> Versions:
        """Returns the range that `text` describes: "3", "3+", "3-7", or "" for an empty range."""
        if not text:
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), NEWEST)
        first, dash, last = text.partition("-")
        return cls(int(first), int(last if dash else first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


# --- kinds of values ----------------------------------------------------------------------------------------


T = TypeVar("T")
StructT = TypeVar("StructT", bound="Message")


class ValueKind(Generic[T]):
    """The base of the kinds of values that are not structs. The values have the Python type `T`."""

    __slots__ = ()


class Scalar(ValueKind[T]):
    """A kind of value that is neither an array nor a struct."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: T | None) -> None:
        self.name: Final = name  # the name of the kind in plans
        self.default: Final = default


class Array(ValueKind[list[T]]):
    """The kind of a list. Its elements have one kind: a scalar or a message class."""

    __slots__ = ("element",)

    def __init__(self, element: Scalar[T] | type[T]) -> None:
        self.element: Final = element


Kind: TypeAlias = "Scalar[Any] | Array[Any] | type[Message]"

BOOL = Scalar("bool", False)
INT8 = Scalar("int8", 0)
INT16 = Scalar("int16", 0)
INT32 = Scalar("int32", 0)
INT64 = Scalar("int64", 0)
UUID = Scalar("uuid", ZERO_UUID)
STRING = Scalar("string", "")
BYTES = Scalar("bytes", b"")
RECORDS: Scalar[Slice | bytes] = Scalar("records", None)  # decoded to a view into the frame, not to a copy

array = Array


# --- messages and fields ------------------------------------------------------------------------------------


class Field:
    """A field of a message class. The function `F` creates fields."""

    __slots__ = ("default", "fresh", "kind", "name", "null", "secret", "tag", "versions")

    def __init__(
        self,
        kind: Kind,
        versions: Versions,
        null: Versions,
        default: Any,
        fresh: Callable[[], Any] | None,
        tag: int | None,
        secret: bool,
    ) -> None:
        self.name = ""  # set when the message class is created
        self.kind: Final = kind
        #: The versions in which the field exists.
        self.versions: Final = versions
        #: The versions in which the field may be null.
        self.null: Final = null
        #: The value if the field is not set, or not in the encoded message. Unused if there is `fresh`.
        self.default: Final = default
        #: Creates the default value for each message, if it is a list or a struct. Otherwise None.
        self.fresh: Final = fresh
        #: The tag of a tagged field (KIP-482). None for other fields.
        self.tag: Final = tag
        #: True if `repr` of a message hides the value.
        self.secret: Final = secret


_UNSET: Any = object()


@overload
def F(kind: ValueKind[T], versions: str = ..., *, default: T = ..., tag: int | None = ..., secret: bool = ...) -> T: ...
@overload
def F(
    kind: ValueKind[T],
    versions: str = ...,
    *,
    null: str,
    default: T | None = ...,
    tag: int | None = ...,
    secret: bool = ...,
) -> T | None: ...
@overload
def F(kind: type[StructT], versions: str = ...) -> StructT: ...
@overload
def F(
    kind: type[StructT], versions: str = ..., *, null: str = ..., default: None = ..., tag: int | None = ...
) -> StructT | None: ...
def F(  # noqa: N802  short and upper-case for readable tables
    kind: Any,
    versions: str = "0+",
    *,
    null: str = "",
    default: Any = _UNSET,
    tag: int | None = None,
    secret: bool = False,
) -> Any:
    """Returns a field that exists in `versions` and may be null in the versions `null`.

    `versions` and `null` are written like "3", "3+" or "3-7". A field with a `tag` is omitted from the encoded message
    if its value is the default. The default of a tagged struct is None. The value of a `secret` field is not shown in
    `repr`.

    Type checkers see a value in place of the field. So they report a type of the attribute that the values of `kind`
    do not have.
    """
    fresh: Callable[[], Any] | None = None
    if default is _UNSET:
        if isinstance(kind, Scalar):
            default = kind.default
        else:
            default = None
            fresh = list if isinstance(kind, Array) else None if tag is not None else kind
    return Field(kind, Versions.parse(versions), Versions.parse(null), default, fresh, tag, secret)


class MessageType(type):
    """The type of message classes. It replaces the fields in the body of a class by slots."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> MessageType:
        fields = {key: value for key, value in body.items() if isinstance(value, Field)}
        for key, field in fields.items():
            field.name = key
            del body[key]
        body["__slots__"] = tuple(fields)
        if fields:
            body["FIELDS"] = tuple(fields.values())
        message_class = super().__new__(cls, name, bases, body)
        install_constructor(message_class)
        return message_class


# `F` is not one of the `field_specifiers`. To type checkers each field has a default value, so no argument is required.
@dataclass_transform(kw_only_default=True)
class Message(metaclass=MessageType):
    """The base of all message classes. There is one class for all versions of a struct, with one slot for each field.

    The constructor takes fields as keyword arguments. Other fields get their defaults. If a version of the struct does
    not have a field, the field is ignored when a message is encoded in this version, and decoding sets its default.
    """

    __hash__ = None  # type: ignore[assignment]  # mutable
    #: The fields in the order in which they are encoded.
    FIELDS: ClassVar[tuple[Field, ...]] = ()

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    def __repr__(self) -> str:
        """Returns the class name and the fields that differ from their defaults. Hides secret values."""
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value != (field.fresh() if field.fresh else field.default):
                shown.append(f"{field.name}={'...' if field.secret else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


# --- plans --------------------------------------------------------------------------------------------------

Plan = tuple[Any, ...]
_PLANS: dict[tuple[type[Message], int, bool], Plan] = {}


def plan(cls: type[Message], version: int, flexible: bool) -> Plan:
    """Returns the plan by which a message of the class `cls` is encoded and decoded at `version`. The plan is cached.

    A plan is a tuple `(cls, flexible, row, ...)`. It has one row for each field of the class:
    `(name, kind, inner, nullable, tag, default, fresh)`.

    `kind`: the name of a scalar, "array", "struct", or "absent" for a field that this version does not have.
    `inner`: for an array, the kind of its elements (the name of a scalar, or the plan of a struct); for a struct, its
    plan; otherwise None.
    `nullable`: True if the field may be null in this version.
    `tag`: the tag of a tagged field; -1 for other fields.
    `default`, `fresh`: the attributes of `Field` with these names.
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
    """One API of the protocol: its key, the supported versions, and the classes of its request and response."""

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
        request: type[Message],
        response: type[Message],
        *,
        key: int,
        versions: str,
        flexible: int | None = None,
        throttle: int | None = None,
    ) -> None:
        """Create an API that is called like its request. `versions`: written like "4-18".

        `flexible` and `throttle` are `flexible_from` and `throttle_from`.
        """
        supported = Versions.parse(versions)
        self.name: Final = request.__name__.removesuffix("Request")
        self.key: Final = key
        self.min_version: Final = supported.first
        self.max_version: Final = supported.last
        #: The first version with compact lengths and tagged fields (KIP-482). None if no version has them.
        self.flexible_from: Final = flexible
        #: The first version in which the client must wait for the throttle time of a response (KIP-219), or None.
        self.throttle_from: Final = throttle
        self.request: Final = request
        self.response: Final = response

    def is_flexible(self, version: int) -> bool:
        """Returns whether this version has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """Returns the version of the request header: 2 with tagged fields, otherwise 1."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """Returns the version of the response header: 1 with tagged fields, otherwise 0.

        It is always 0 for ApiVersions, because the client does not yet know the broker's versions when it parses this
        response.
        """
        return 1 if self.is_flexible(version) and self.name != "ApiVersions" else 0

    def request_plan(self, version: int) -> Plan:
        """Returns the plan of the request. Raises ValueError for a version that is not supported."""
        return plan(self.request, self._supported(version), self.is_flexible(version))

    def response_plan(self, version: int) -> Plan:
        """Returns the plan of the response. Raises ValueError for a version that is not supported."""
        return plan(self.response, self._supported(version), self.is_flexible(version))

    def _supported(self, version: int) -> int:
        """Returns `version`. Raises ValueError if it is not supported."""
        if not self.min_version <= version <= self.max_version:
            raise ValueError(f"{self.name} v{version}: only {self.min_version}-{self.max_version} are supported")
        return version

    def __repr__(self) -> str:
        return f"<Api {self.name} v{self.min_version}-{self.max_version}>"
