"""Compares the decoder of `valueFormat=json` with JSON libraries: `python benchmarks/micro/json_values.py [records]`.

ns of processor time per record, from a column of bytes to an Arrow column of five fields; the best of several rounds in
one process. The decoder parses with pyarrow.json. "pyarrow.json" is that parser alone: without checks that each value
is one object, without the name of a value that does not match, and it fails for a batch with one such value. The other
libraries parse value by value into objects, which become the column. A dash: the library is not installed, or cannot do
this.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
from figures import arguments, write

from kconsumer.formats.column_types import parse_type
from kconsumer.formats.json_columns import JsonDecoder

Decode = Callable[[pa.Array], object]
SCHEMA = "id long, amount double, name string, tags array<string>, at timestamp"
WITH_MAP = SCHEMA + ", more map<string,string>"
KIND = parse_type(SCHEMA)
MAP_KIND = parse_type(WITH_MAP)


def documents(count: int, bad: float = 0.0) -> pa.Array:
    """Return values of about 130 bytes, with a field that is not in the schema; a share of them does not match it."""
    chance, found = random.Random(0), []
    for number in range(count):
        document: dict[str, Any] = {
            "id": number,
            "amount": round(chance.uniform(0, 1000), 2),
            "name": f"customer {number % 700}",
            "tags": ["new", "web", "north"][: number % 4],
            "at": f"2026-03-{number % 28 + 1:02}T10:{number % 60:02}:00.123Z",
            "trace": f"{chance.getrandbits(64):016x}",
        }
        if chance.random() < bad:
            document["id"] = "none"
        found.append(json.dumps(document, separators=(",", ":")).encode())
    return pa.array(found, pa.binary())


def with_maps(count: int) -> pa.Array:
    """Return values that have a map, for which pyarrow.json has no type."""
    return pa.array([value[:-1] + b',"more":{"a":"1","b":"2"}}' for value in documents(count).to_pylist()], pa.binary())


def arrow_alone(values: pa.Array) -> object:
    """Parse a batch with pyarrow.json."""
    lines = b"\n".join(values.to_pylist())
    fields = [(name, kind.arrow()) for name, kind in KIND.fields]
    options = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    return pj.read_json(pa.BufferReader(lines), read_options=read, parse_options=options)


def by_values(parse: Callable[[bytes], Any]) -> Decode:
    """Return a function that parses value by value to dicts, which become a column. Bad values become null."""

    def decode(values: pa.Array) -> object:
        rows: list[Any] = []
        for value in values.to_pylist():
            try:
                row = parse(value)
                row["at"] = datetime.fromisoformat(row["at"])
                rows.append(row if type(row["id"]) is int else None)
            except (ValueError, TypeError, KeyError):
                rows.append(None)
        more = "more" in rows[0]
        return pa.array(rows, (MAP_KIND if more else KIND).arrow())

    return decode


def by_msgspec() -> Decode:
    """Return a function that parses value by value to structs of msgspec, which check types, then column by column."""
    import msgspec

    fields = [("id", int | None), ("amount", float | None), ("name", str | None), ("tags", list[str] | None),
              ("at", datetime | None)]  # fmt: skip
    optional = [(name, kind, None) for name, kind in fields]
    plain = msgspec.json.Decoder(msgspec.defstruct("Order", optional))
    wide = msgspec.json.Decoder(msgspec.defstruct("Wide", [*optional, ("more", dict[str, str] | None, None)]))

    def decode(values: pa.Array) -> object:
        given = values.to_pylist()
        decoder, kind = (wide, MAP_KIND) if b'"more"' in given[0] else (plain, KIND)
        rows: list[Any] = []
        for value in given:
            try:
                rows.append(decoder.decode(value))
            except msgspec.MsgspecError:
                rows.append(None)
        columns = []
        for name, each in kind.fields:
            column = [None if row is None else getattr(row, name) for row in rows]
            if each.kind == "map":
                column = [None if entry is None else list(entry.items()) for entry in column]
            columns.append(pa.array(column, each.arrow()))
        mask = pa.array([row is None for row in rows])
        return pa.StructArray.from_arrays(columns, fields=list(kind.arrow()), mask=mask)

    return decode


def libraries() -> dict[str, Decode | None]:
    """Return the decoder of kconsumer, then the libraries."""
    found: dict[str, Decode | None] = {"kconsumer": None, "pyarrow.json": arrow_alone}
    found |= dict.fromkeys(("msgspec", "orjson", "simdjson"))
    with contextlib.suppress(ImportError):
        found["msgspec"] = by_msgspec()
    with contextlib.suppress(ImportError):
        import orjson

        found["orjson"] = by_values(orjson.loads)
    with contextlib.suppress(ImportError):
        import simdjson

        found["simdjson"] = by_values(simdjson.loads)
    return found


def nanoseconds(decode: Decode, values: pa.Array, rounds: int) -> float | None:
    """Return ns of processor time per record, or None if the library cannot decode these values."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time_ns()
        try:
            decode(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            print(f"{type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            return None
        best = min(best, (time.process_time_ns() - started) / len(values))
    return best


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, 20_000, 5)
    found = libraries()
    print(f"Python {sys.version.split()[0]}; ns of processor time per record")
    print(f"  {'':26}" + "".join(f"{name:>14}" for name in found))
    rows = {}
    given = {
        "all match": (SCHEMA, documents(options.records)),
        "1 of 1000 does not": (SCHEMA, documents(options.records, 0.001)),
        "1 of 10 does not": (SCHEMA, documents(options.records, 0.1)),
        "with a map": (WITH_MAP, with_maps(options.records)),
    }
    for name, (schema, values) in given.items():
        found["kconsumer"] = JsonDecoder(parse_type(schema)).decode
        if schema == WITH_MAP:
            found["pyarrow.json"] = None
        row = rows[name] = {
            library: None if decode is None else nanoseconds(decode, values, options.rounds)
            for library, decode in found.items()
        }
        print(f"  {name:26}" + "".join(f"{'-' if ns is None else format(ns, '.0f'):>14}" for ns in row.values()))
    write(options.json, options, rows)


if __name__ == "__main__":
    main()
