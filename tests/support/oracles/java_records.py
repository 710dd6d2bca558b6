"""Kafka's own record batches, written and read by a Java process (java/RecordsDump.java)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kconsumer.testing.batches import Rec
from support.oracles import reference
from support.oracles.java_wire import Java

SOURCE = Path(__file__).parents[1] / "java" / "RecordsDump.java"
TIME_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")


class JavaRecords(Java):
    """A running RecordsDump."""

    def __init__(self) -> None:
        super().__init__(SOURCE)

    def write(
        self,
        records: Iterable[Rec],
        *,
        magic: int,
        codec: str,
        base_offset: int,
        log_append_time: int | None = None,
        producer_id: int = -1,
        transactional: bool = False,
        leader_epoch: int = -1,
    ) -> bytes:
        """Returns a batch, message set or wrapper. `log_append_time` is the time (ms) that a broker would set."""
        kind = 0 if magic == 0 else 1 if log_append_time is None else 2
        time = -1 if log_append_time is None else log_append_time
        words = [record_text(record) for record in records]
        head = (
            magic,
            codec,
            TIME_TYPES[kind],
            base_offset,
            time,
            producer_id,
            str(transactional).lower(),
            leader_epoch,
        )
        return bytes.fromhex(self.ask("write", *head, *words))

    def marker(self, offset: int, producer_id: int, *, abort: bool) -> bytes:
        """Returns the end of a transaction."""
        return bytes.fromhex(self.ask("marker", offset, producer_id, "ABORT" if abort else "COMMIT"))

    def read(
        self,
        data: bytes,
        start: int = 0,
        *,
        aborted: Sequence[tuple[int, int]] | None = None,
        check_crcs: bool = True,
    ) -> reference.Decoded:
        """Returns the records of Java's consumer for these bytes, in the form of the reference decoder."""
        level = "READ_UNCOMMITTED" if aborted is None else "READ_COMMITTED"
        listed = ",".join(f"{producer}:{first}" for producer, first in aborted or ()) or "-"
        response = self.ask("read", level, str(check_crcs).lower(), start, listed, data.hex())
        position, epoch, error, *records = response.split(" ")
        return reference.Decoded(
            [parsed(text) for text in records],
            int(position),
            None if epoch == "none" else int(epoch),
            None if error == "none" else error,
        )


def record_text(record: Rec) -> str:
    """Returns a record as RecordsDump reads it; offset and timestamp must be given."""
    headers = ";".join(f"{_name(name).hex()}={hexed(value)}" for name, value in record.headers)
    return f"{record.offset},{record.timestamp},{hexed(record.key)},{hexed(record.value)},{headers}"


def parsed(text: str) -> tuple[object, ...]:
    """Returns a record as RecordsDump writes it, as a tuple like the reference decoder's."""
    kind, epoch, offset, time, key, value, headers = text.split(",")
    pairs = [pair.split("=") for pair in headers.split(";") if pair]
    return (
        int(offset),
        int(time),
        int(kind),
        unhexed(key),
        unhexed(value),
        tuple((bytes.fromhex(name).decode(), unhexed(data)) for name, data in pairs),
        None if epoch == "none" else int(epoch),
    )


def hexed(data: bytes | None) -> str:
    """Returns bytes or null as text."""
    return "-" if data is None else "x" + data.hex()


def unhexed(text: str) -> bytes | None:
    """Returns the opposite of `hexed`."""
    return None if text == "-" else bytes.fromhex(text[1:])


def _name(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name
