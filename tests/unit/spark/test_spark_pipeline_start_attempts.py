"""A start of a pipeline that fails is tried again, if the reason may pass; in virtual time."""

from __future__ import annotations

import pytest

from kconsumer.errors import KafkaError
from kconsumer.spark.pipeline.start_attempts import until_started

REFUSED = KafkaError("rows failed: [STREAM_FAILED] broker b:1 cannot be reached: connection refused\nat line 1")


class Start:
    """A start with the errors of its attempts, each of which takes a second. Times are in ms."""

    def __init__(self, errors: list[Exception], *, begun: bool = False, stop_after: int = 99) -> None:
        self.errors, self.begun, self.stop_after = errors, begun, stop_after
        self.now, self.waits, self.reports = 0, list[float](), list[str]()

    def attempt(self) -> str:
        """Raise the next error, or return text after the last one."""
        self.now += 1000
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    def wait(self, seconds: float) -> bool:
        """Move the time. Returns True if the pipeline is stopped."""
        self.waits.append(seconds)
        self.now += int(seconds * 1000)
        return len(self.waits) >= self.stop_after

    def run(self) -> str | None:
        """Returns the result of the attempts."""
        return until_started(self.attempt, lambda: self.begun, 60, lambda: self.now, self.wait, self.reports.append)


@pytest.mark.parametrize(
    ("start", "waits"),
    [
        (Start([KafkaError("column id was int")]), 0),
        (Start([REFUSED], begun=True), 0),
        (Start([REFUSED, ValueError("x")]), 1),
        (Start([REFUSED] * 99), 7),
    ],
)
def test_other_failures_end_the_pipeline(start: Start, waits: int) -> None:
    """An error that stays, one after the start, and the one after the timeout are raised."""
    with pytest.raises((KafkaError, ValueError)):
        start.run()
    assert waits == len(start.waits)


def test_a_stop_ends_the_attempts() -> None:
    """A pipeline that is stopped while it waits does not start."""
    assert Start([REFUSED] * 99, stop_after=2).run() is None
