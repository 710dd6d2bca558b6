"""`kconsumer dump`: what is in a log segment file, batch by batch, without a broker.

Every batch is decoded, so that a file that is printed to its end is a good one. Control records, which consumers
never see, are shown, too.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kconsumer import errors
from kconsumer.cli.output import json_fields
from kconsumer.cli.segment import (
    ATTRIBUTES_LOW_BYTE_AT,
    CONTROL,
    CONTROL_TYPES,
    Batch,
    NoSegmentError,
    Tail,
    partition_of,
    read_segment,
)
from kconsumer.decode import decode_batches
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord, ConsumerRecords


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `dump SEGMENT…`."""
    parser = commands.add_parser(
        "dump",
        parents=[common],
        help="print what is in log segment files",
        description="Print the batches of log segments, as brokers keep them: one line each. A file in a folder that "
        "is named as brokers name it (orders-3/00000000000000000000.log) tells its topic and partition.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="SEGMENT", help="a .log file")
    parser.add_argument("--records", action="store_true", help="a line for each record, too, control records included")
    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="text (default), or JSON objects")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print all files; the first thing that cannot be read ends the command with an error."""
    show = FORMATS[args.format]
    for path in args.files:
        with path.open("rb") as file:
            for found in read_segment(file, str(path)):
                if isinstance(found, Tail):
                    _tell_of(found, path)
                    continue
                records = decoded(found, path)
                lines = show(found, records, args.records)
                sys.stdout.buffer.write(b"".join(line.encode() + b"\n" for line in lines))
    sys.stdout.buffer.flush()
    return 0


def decoded(batch: Batch, path: Path) -> ConsumerRecords:
    """The batch's records; of a control batch what consumers do not see."""
    tp = partition_of(path)
    records = _decode(batch.data, tp, path, batch.position, check_crcs=True)
    if not batch.control:
        return records
    plain = bytearray(batch.data)
    plain[ATTRIBUTES_LOW_BYTE_AT] &= ~CONTROL
    return _decode(bytes(plain), tp, path, batch.position, check_crcs=False)


def _decode(data: bytes, tp: TopicPartition, path: Path, position: int, *, check_crcs: bool) -> ConsumerRecords:
    try:
        return decode_batches(data, topic=tp.topic, partition=tp.partition, check_crcs=check_crcs)
    except (errors.BatchTooLargeError, errors.CorruptRecordError) as error:
        what = str(error).partition("; seek")[0]  # there is no consumer that could
        raise NoSegmentError(f"{path}, position {position}: {what}") from error


def control_type(record: ConsumerRecord) -> str:
    """What a control record says, by its key."""
    if record.key is None or len(record.key) < 4:
        return "unknown"
    number = struct.unpack_from(">h", record.key, 2)[0]
    return CONTROL_TYPES.get(number, f"type {number}")


def first_offset(batch: Batch, records: ConsumerRecords) -> int:
    """Where the batch begins. A wrapper of the older formats says only where it ends, but has a record."""
    return batch.base_offset if batch.magic == 2 else next(iter(records)).offset


def _tell_of(tail: Tail, path: Path) -> None:
    what = "zeros: room that was reserved" if tail.batch_size == 0 else "the beginning of a batch"
    if tail.batch_size:
        what += f" of {tail.batch_size} bytes"
    print(f"kconsumer: {path}: the last {tail.size} bytes, from position {tail.position}, are {what}", file=sys.stderr)


# --- text ---


def text_lines(batch: Batch, records: ConsumerRecords, with_records: bool) -> Iterator[str]:
    """A line of words for the batch, and one for each record below it."""
    time = f"{batch.timestamp_type.name.lower().replace('_', ' ')} {batch.max_timestamp}"
    parts = [
        f"offset {first_offset(batch, records)}-{batch.last_offset}",
        f"{len(records)} {'record' if len(records) == 1 else 'records'}",
        f"position {batch.position}",
        f"{len(batch.data)} bytes",
        f"format {batch.magic}",
        batch.codec,
        "no timestamp" if batch.magic == 0 else time,
    ]
    if batch.leader_epoch >= 0:
        parts.append(f"leader epoch {batch.leader_epoch}")
    if batch.producer_id >= 0:
        parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}")
    if batch.transactional:
        parts.append("transactional")
    if batch.control:
        parts.append(" ".join(["control", *map(control_type, records)]))
    yield ", ".join(parts)
    for record in records if with_records else ():
        headers = " ".join(f"{name}={value!r}" for name, value in record.headers)
        line = f"  {record.offset} {record.timestamp} {record.key!r} {record.value!r} {headers}"
        yield line.rstrip()


# --- JSON ---


def json_lines(batch: Batch, records: ConsumerRecords, with_records: bool) -> Iterator[str]:
    """An object for the batch, and one for each record after it; `type` tells them apart."""
    fields: dict[str, object] = {
        "type": "batch",
        "position": batch.position,
        "size": len(batch.data),
        "format": batch.magic,
        "base_offset": first_offset(batch, records),
        "last_offset": batch.last_offset,
        "records": len(records),
        "codec": batch.codec,
        "timestamp_type": batch.timestamp_type.name,
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
    }
    if batch.magic == 2:
        fields |= {
            "leader_epoch": batch.leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "transactional": batch.transactional,
            "control": [control_type(record) for record in records] if batch.control else None,
        }
    yield json.dumps(fields)
    for record in records if with_records else ():
        yield json.dumps({"type": "record", **json_fields(record)}, ensure_ascii=False)


FORMATS: dict[str, Callable[[Batch, ConsumerRecords, bool], Iterator[str]]] = {"text": text_lines, "json": json_lines}
