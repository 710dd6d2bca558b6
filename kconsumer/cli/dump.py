"""`kconsumer dump`: prints the batches of log segment files, without a broker.

Every batch is decoded, so a file that is printed to its end is intact. Control records, which a consumer never
returns, are printed as well.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kconsumer import decode_batches, errors
from kconsumer.cli.output import json_fields
from kconsumer.cli.segment import (
    ATTRIBUTES_LOW_BYTE_AT,
    CONTROL,
    CONTROL_TYPES,
    Batch,
    InvalidSegmentError,
    Tail,
    partition_of,
    read_segment,
)
from kconsumer.cli.terminal import safe_text
from kconsumer.types import TopicPartition

if TYPE_CHECKING:
    from kconsumer import ConsumerRecord, ConsumerRecords


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the subcommand `dump SEGMENT…`."""
    parser = commands.add_parser(
        "dump",
        parents=[common],
        help="print the batches of log segment files",
        description="Print the batches of a broker's log segment files, one line each, and check them. Topic and "
        "partition are taken from the name of the folder, as in orders-3/00000000000000000000.log.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="SEGMENT", help="a .log file of a broker")
    parser.add_argument(
        "--records", action="store_true", help="print a line for each record as well, including control records"
    )
    parser.add_argument(
        "-f", "--format", choices=FORMATS, default="text", help="print text (default), or one JSON object per line"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the batches of all files. Raises InvalidSegmentError at the first batch that cannot be read."""
    show = FORMATS[args.format]
    for path in args.files:
        with path.open("rb") as file:
            for found in read_segment(file, str(path)):
                if isinstance(found, Tail):
                    _report_tail(found, path)
                    continue
                records = decoded(found, path)
                lines = show(found, records, args.records)
                sys.stdout.buffer.write(b"".join(line.encode() + b"\n" for line in lines))
    sys.stdout.buffer.flush()
    return 0


def decoded(batch: Batch, path: Path) -> ConsumerRecords:
    """Returns the records of a batch, including control records. Raises InvalidSegmentError if it cannot be decoded.

    The decoder returns no records of a control batch. So such a batch is decoded twice: first to check its CRC, then as
    a copy without the control bit.
    """
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
        what = str(error).partition("; seek")[0]  # without the advice to seek, which only a consumer can follow
        raise InvalidSegmentError(f"{path}, position {position}: {what}") from error


def control_type(record: ConsumerRecord) -> str:
    """Returns the type of a control record as text. The record's key contains the number of the type."""
    if record.key is None or len(record.key) < 4:
        return "unknown"
    number = struct.unpack_from(">h", record.key, 2)[0]
    return CONTROL_TYPES.get(number, f"type {number}")


def first_offset(batch: Batch, records: ConsumerRecords) -> int:
    """Returns the first offset of a batch.

    The header of a compressed message set (formats 0 and 1) contains only the last offset. So for these formats the
    offset of the first record is returned.
    """
    return batch.base_offset if batch.magic == 2 else next(iter(records)).offset


def _report_tail(tail: Tail, path: Path) -> None:
    what = "zeros, which the broker preallocated" if tail.batch_size == 0 else "the beginning of a batch"
    if tail.batch_size:
        what += f" of {tail.batch_size} bytes"
    print(f"kconsumer: {path}: the last {tail.size} bytes, from position {tail.position}, are {what}", file=sys.stderr)


# --- text ---


def text_lines(batch: Batch, records: ConsumerRecords, with_records: bool) -> Iterator[str]:
    """Yield a line for the batch, then one for each of its records if `with_records` is set."""
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
        headers = " ".join(f"{safe_text(name)}={value!r}" for name, value in record.headers)
        line = f"  {record.offset} {record.timestamp} {record.key!r} {record.value!r} {headers}"
        yield line.rstrip()


# --- JSON ---


def json_lines(batch: Batch, records: ConsumerRecords, with_records: bool) -> Iterator[str]:
    """Yield a JSON object for the batch, then one for each of its records if `with_records` is set.

    The key `type` is "batch" or "record".
    """
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
