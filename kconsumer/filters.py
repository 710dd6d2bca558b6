"""Filters of records, for the option `record_filter`: by a header, by the first bytes of the key, or any callable.

A `HeaderFilter` and a `KeyFilter` select records in compiled code, which creates no objects for the other records. A
callable gets each record before deserializers run, and returns True for those to keep. Dropped records are consumed:
positions and commits pass them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from kconsumer._core.decode import ConsumerRecord, RecordTest

__all__ = ["HeaderFilter", "KeyFilter", "RawRecord"]

if TYPE_CHECKING:
    from typing import TypeAlias

    #: A record whose key and value are bytes or None, because no deserializer has run.
    RawRecord: TypeAlias = ConsumerRecord[bytes | None, bytes | None]
else:
    RawRecord = ConsumerRecord


class _Filter(RecordTest):
    """The base of the filters that run in compiled code."""

    def __init_subclass__(cls) -> None:
        if cls.__module__ != __name__:
            raise TypeError(
                "a subclass of a filter would not be called; pass a callable (record) -> bool as record_filter"
            )


@final
class HeaderFilter(_Filter):
    """Selects the records whose last header `name` has this value. None selects headers without a value."""

    def __init__(self, name: str, value: bytes | str | None) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {name!r}")
        super().__init__(name.encode(), None if value is None else _as_bytes("the value of a header", value))

    def __call__(self, record: RawRecord) -> bool:
        """Returns True if the filter selects this record."""
        assert self.name is not None
        missing = object()
        found: object = record.header(self.name.decode(), missing)
        return found == self.value

    def __reduce__(self) -> tuple[Any, ...]:
        assert self.name is not None
        return HeaderFilter, (self.name.decode(), self.value)

    def __repr__(self) -> str:
        assert self.name is not None
        return f"HeaderFilter({self.name.decode()!r}, {self.value!r})"


@final
class KeyFilter(_Filter):
    """Selects the records whose key begins with these bytes. Drops records without a key."""

    def __init__(self, prefix: bytes | str) -> None:
        super().__init__(None, _as_bytes("the prefix of a key", prefix))

    def __call__(self, record: RawRecord) -> bool:
        """Returns True if the filter selects this record."""
        assert self.value is not None
        return record.key is not None and record.key.startswith(self.value)

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyFilter, (self.value,)

    def __repr__(self) -> str:
        return f"KeyFilter(prefix={self.value!r})"


def _as_bytes(what: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"{what} is bytes or a str, not {value!r}")
    return bytes(value)
