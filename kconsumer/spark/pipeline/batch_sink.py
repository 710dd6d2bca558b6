"""What sinks of a pipeline have in common: micro-batches that may be repeated, and the interface that writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from kconsumer.errors import KafkaError


class PipelineError(KafkaError):
    """A pipeline could not start, or failed. It can be started again."""


@dataclass(frozen=True)
class Batch:
    """Identifies a micro-batch. A repeated micro-batch has the same query and number."""

    query: str  # the id in the checkpoint
    number: int
    repeated: bool = field(default=False, compare=False)  # True if an earlier run has begun it and has not finished it

    def __str__(self) -> str:
        return f"{self.query}-{self.number:010d}"


class BatchSink(Protocol):
    """Writes the rows of a micro-batch. If the same batch is written again, the output contains its rows once."""

    #: True if each write runs the whole plan in one action, so that an Observation counts all rows. False for tables:
    #: they skip a batch that they contain already, and a write to Delta never completes an Observation.
    runs_all: bool

    def write(self, frame: Any, batch: Batch) -> None: ...
