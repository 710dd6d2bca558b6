"""UniformOffsets: a mapping from offsets to a value that all of them have.

In implicit mode, the records of a poll are consecutive and are acknowledged alike. A dictionary with an entry for each
of them would take longer to build than the records take to decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")


class UniformOffsets(Mapping[int, V], Generic[V]):
    """Maps each offset of a range to the same value. The range must not be empty."""

    __slots__ = ("offsets", "value")

    def __init__(self, offsets: range, value: V) -> None:
        self.offsets = offsets
        self.value = value

    def __getitem__(self, offset: int) -> V:
        if offset in self.offsets:
            return self.value
        raise KeyError(offset)

    def __iter__(self) -> Iterator[int]:
        return iter(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<UniformOffsets {self.offsets[0]}-{self.offsets[-1]}: {self.value!r}>"


def values_of(mapping: Mapping[int, V]) -> set[V]:
    return {mapping.value} if isinstance(mapping, UniformOffsets) else set(mapping.values())
