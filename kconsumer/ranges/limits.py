"""Limits: the arguments of range readers that decide what a batch contains, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from kconsumer._client.offset_arguments import at_least_one
from kconsumer.arrow import choose, choose_spark

OnDataLoss = Literal["error", "skip"]
Schema = Literal["kconsumer", "spark"]


@dataclass(frozen=True)
class Limits:
    """The checked arguments of a range reader. Raises TypeError or ValueError for illegal values."""

    columns: Iterable[str] | None = None
    schema: Schema = "kconsumer"
    max_rows: int = 20_000
    max_bytes: int = 4 << 20
    on_data_loss: OnDataLoss = "error"
    names: tuple[str, ...] = field(init=False)  # the names of the columns to read

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes"):
            object.__setattr__(self, name, at_least_one(name, getattr(self, name)))
        if self.on_data_loss not in ("error", "skip"):
            raise ValueError(f"on_data_loss is error or skip, not {self.on_data_loss!r}")
        if self.schema not in ("kconsumer", "spark"):
            raise ValueError(f"schema is kconsumer or spark, not {self.schema!r}")
        chosen = choose_spark(self.columns) if self.schema == "spark" else choose(self.columns)
        object.__setattr__(self, "names", chosen)
