"""Handlers for worker processes, which import this module by its name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from kconsumer import ConsumerRecord, ShareRecord
from kconsumer.parallel import Attempt, PartialBatchError
from support.harnesses.parallel_journal import Journal


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


def fail_twice(path: Path, record: ConsumerRecord, attempt: Attempt) -> None:
    """Write which attempt this is, and fail unless it is the last one."""
    with path.open("a") as file:
        file.write(f"{record.value}:{attempt}:{attempt.remaining} ")
    if attempt.remaining:
        raise ValueError


def sleep(record: ConsumerRecord) -> None:
    """Take longer than allowed for one record."""
    if record.value == 4:
        time.sleep(600)


def write_value(path: Path, record: ConsumerRecord) -> None:
    """Write the value of a record to a file."""
    with path.open("a") as file:
        file.write(f"{record.value.decode()}\n")


def process_each(journal: Journal, records: list[ConsumerRecord]) -> None:
    """Process the records of a batch one after the other, and say which have failed."""
    failed: dict[int, BaseException] = {}
    for at, record in enumerate(records):
        try:
            journal.process(record)
        except ConnectionError as error:
            failed[at] = error
    if failed:
        raise PartialBatchError(failed)


async def process_each_async(journal: Journal, records: list[ConsumerRecord]) -> None:
    """The same, for an event loop."""
    failed: dict[int, BaseException] = {}
    for at, record in enumerate(records):
        try:
            await journal.process_async(record)
        except ConnectionError as error:
            failed[at] = error
    if failed:
        raise PartialBatchError(failed)


def insert(path: Path, records: list[ConsumerRecord], attempts: list[Attempt]) -> None:
    """Write the size of a batch and its first attempt to a file, and fail if it contains the records 7 or 11."""
    with path.open("a") as file:
        file.write(f"{len(records)}:{attempts[0]} ")
    if {b"7", b"11"} & {record.value for record in records}:
        raise ValueError("a bad row")


async def insert_async(path: Path, records: list[ConsumerRecord], attempts: list[Attempt]) -> None:
    """The same, for an event loop."""
    insert(path, records, attempts)


def hang(marker: Path, records: list[ConsumerRecord]) -> None:
    """Take longer than allowed for one record, the first time that it is processed: until the marker is removed."""
    if b"7" in {record.value for record in records} and not marker.exists():
        marker.touch()
        while marker.exists():
            time.sleep(0.05)


class LocalError(Exception):
    """An error that cannot be pickled."""

    def __reduce__(self) -> str:
        raise TypeError("it cannot be pickled")


def fail_in_its_own_way(records: list[ConsumerRecord]) -> None:
    """Fail for one record of a batch with an error that cannot be pickled."""
    failed = {at: LocalError() for at, record in enumerate(records) if record.value == "0-3"}
    if failed:
        raise PartialBatchError(failed)


def load_when(marker: Path) -> Callable[[ConsumerRecord], None]:
    """Returns a handler when a file exists."""
    while not marker.exists():
        time.sleep(0.02)
    return handle_nothing


class SlowToLoad:
    """A handler that worker processes can load when a file exists."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __call__(self, record: ConsumerRecord) -> None:
        """Return at once."""

    def __reduce__(self) -> tuple[object, ...]:
        return load_when, (self._marker,)
