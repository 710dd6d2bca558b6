"""Describes the record batches of a Fetch response by their headers, in a form that does not contain random values."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

HEADER = struct.Struct(">qiibIhiqqqhii")
NAMES = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)
DEFAULTS = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "leader_epoch": 0, "attributes": 0}
LOG_APPEND_TIME, CONTROL = 0x08, 0x20


def describe_batches(data: bytes) -> list[dict[str, Any]]:
    """Returns the header fields of each batch, and a hash of its records. The end of a response may be half a batch."""
    found: list[dict[str, Any]] = []
    while data:
        size = 12 + int.from_bytes(data[8:12]) if len(data) >= 12 else 0
        if len(data) < max(size, HEADER.size):
            found.append({"incomplete": len(data)})
            break
        found.append(_describe(data[:size]))
        data = data[size:]
    return found


def _describe(batch: bytes) -> dict[str, Any]:
    row = dict(zip(NAMES, HEADER.unpack_from(batch), strict=True))
    del row["crc"]  # it covers the producer id and the time of the broker
    if row["attributes"] & (LOG_APPEND_TIME | CONTROL):
        row["base_timestamp"] = row["max_timestamp"] = "<time>"
    row = {name: value for name, value in row.items() if value != DEFAULTS.get(name)}
    row["records"] = hashlib.sha256(batch[HEADER.size :]).hexdigest()[:12]
    return row
