"""Handlers for worker processes, which import this module by its name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kconsumer import ConsumerRecord, ShareRecord


def handle_nothing(record: ConsumerRecord) -> None:
    """Return at once."""


def fail_on(number: int, record: ConsumerRecord) -> None:
    """Fail for one record."""
    if record.value == b"%d" % number:
        raise ValueError(f"record {number}")


def die_once(marker: Path, record: ConsumerRecord) -> None:
    """Kill this process at the first attempt of one record."""
    if record.value == b"55" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(record: ConsumerRecord) -> None:
    """Kill this process at each attempt of one record."""
    if record.value == b"55":
        os.kill(os.getpid(), signal.SIGKILL)


def require_first_delivery(record: ConsumerRecord) -> None:
    """Fail for a record that the share group has delivered before."""
    assert isinstance(record, ShareRecord)
    assert record.delivery_count == 1
