"""Random pairs of Avro schemas, of which the second is an evolution of the first, with values of the first.

`random_case(seed)` always returns the same case. `shown` prints a value as AvroOracle.java does. Types with a name are
kept in a table, so that both schemas can define them where they are used first. What Java reads for the seeds RECORDED,
and for the damaged values of DAMAGED, is in files, which `PYTHONPATH=tests python -m support.oracles.avro_cases` writes
again.
"""

from __future__ import annotations

import copy
import datetime
import json
import lzma
import random
import struct
import subprocess
import uuid
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from support.brokers.kafka_jars import Artifact, program, resolve

__all__ = [
    "DAMAGED",
    "DAMAGED_VALUES_OF_JAVA",
    "RECORDED",
    "Case",
    "damaged_case",
    "is_other",
    "java_reads",
    "random_case",
    "recorded",
    "shown",
]

SOURCE = Path(__file__).parents[1] / "java" / "AvroOracle.java"
RECORDED = range(3000)
DAMAGED = range(1500)
VALUES_OF_JAVA = Path(__file__).with_name("avro_values_of_java.xz")
DAMAGED_VALUES_OF_JAVA = Path(__file__).with_name("avro_damaged_values_of_java.xz")
AVRO = Artifact("org.apache.avro", "avro", "1.12.2")
PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
LOGICAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("int", {"logicalType": "date"}),
    ("int", {"logicalType": "time-millis"}),
    ("long", {"logicalType": "time-micros"}),
    ("long", {"logicalType": "timestamp-millis"}),
    ("long", {"logicalType": "timestamp-micros"}),
    ("long", {"logicalType": "local-timestamp-millis"}),
    ("long", {"logicalType": "local-timestamp-micros"}),
    ("string", {"logicalType": "uuid"}),
    ("bytes", {"logicalType": "decimal", "precision": 9, "scale": 2}),
    ("bytes", {"logicalType": "decimal", "precision": 30, "scale": 10}),
    ("bytes", {"logicalType": "decimal", "precision": 3, "scale": 5}),  # not valid, so ignored
    ("int", {"logicalType": "timestamp-millis"}),  # the same
)
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
MAX_DEPTH = 4


class Case(NamedTuple):
    """A pair of schemas as JSON text, and values of the writer."""

    writer: str
    reader: str
    values: list[bytes]


def random_case(seed: int, values: int = 2) -> Case:
    """Returns the case of a seed."""
    made = _Schemas(random.Random(seed))
    writer = made.node(0)
    old = copy.deepcopy(made.types)
    data = [made.encoded(writer, 0) for _ in range(values)]
    texts = [json.dumps(_rendered(writer, old, {}))]
    made.evolving = True
    for key, given in old.items():
        made.types[key] = made.evolved_type(given)
    reader = made.evolved(writer, 0)
    made.add_defaults()
    return Case(texts[0], json.dumps(_rendered(reader, made.types, {})), data)


def damaged_case(seed: int, values: int = 6) -> Case:
    """Returns the case of a seed with other values: each is one of the case with a fault."""
    case, rng = random_case(seed), random.Random(f"damage {seed}")
    return case._replace(values=[_damaged(rng, rng.choice(case.values)) for _ in range(values)])


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Returns bytes of which some are removed, added or replaced, at any place, also by numbers that are not valid."""
    at = rng.randrange(len(data) + 1)
    number = rng.choice([-1, -2, 1 << 31, -1 << 31, 1 << 40, (1 << 63) - 1, -1 << 63, rng.randrange(-9, 99)])
    added = rng.choice([b"", bytes([data[at - 1] ^ 1 << rng.randrange(8)]) if data else b"", rng.randbytes(2),
                        b"\x80" * rng.randint(1, 12), _varint(number), _varint(number) + b"\0"])  # fmt: skip
    return data[:at] + added + data[at + rng.choice([0, 1, 1, 2, len(data)]) :]


def _rendered(node: Any, types: dict[str, Any], defined: dict[str, str]) -> Any:
    """Returns a schema as JSON, with definitions where names are used first."""
    if isinstance(node, list):
        return [_rendered(part, types, defined) for part in node]
    if isinstance(node, str):
        return node
    if "ref" not in node:
        inner = {key: _rendered(node[key], types, defined) for key in ("items", "values") if key in node}
        return {**node, **inner}
    key = node["ref"]
    if key in defined:
        return defined[key]
    found = dict(types[key])
    defined[key] = f"{found['namespace']}.{found['name']}".lstrip(".")
    if "fields" in found:
        found["fields"] = [{**field, "type": _rendered(field["type"], types, defined)} for field in found["fields"]]
    return found


class _Schemas:
    """Makes schemas, their evolution, defaults and values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.types: dict[str, Any] = {}
        self.evolving = False  # True: no new schema refers to an older one, which may contain it
        self._names = 0

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    # --- schemas -----------------------------------------------------------------------------------------------------

    def node(self, depth: int) -> Any:
        """Returns a random schema."""
        kinds = ["primitive", "logical", "enum", "fixed", "record", "array", "map", "union", "ref"]
        weights = [6, 4, 2, 2, 9 if depth == 0 else 3, 2, 2, 4, 1]
        kind = self.rng.choices(kinds, weights if depth < MAX_DEPTH else [6, 4, 2, 2, 0, 0, 0, 0, 0])[0]
        if kind == "logical":
            base, more = self.rng.choice(LOGICAL)
            return {"type": base, **more}
        if kind in ("enum", "fixed", "record"):
            return self._define(kind, depth)
        if kind in ("array", "map"):
            return {"type": kind, "items" if kind == "array" else "values": self.node(depth + 1)}
        if kind == "union":
            return self._union([self.node(depth + 1) for _ in range(self.rng.randint(1, 3))], self._maybe(0.7))
        whole = [key for key, given in self.types.items() if given.get("fields") != []]
        if kind == "ref" and whole and not self.evolving:
            return {"ref": self.rng.choice(whole)}
        return self.rng.choice(PRIMITIVES)

    def _union(self, parts: list[Any], null: bool) -> list[Any]:
        flat = [part for part in parts if not isinstance(part, list)]
        if null:
            flat.insert(self.rng.choice([0, 0, len(flat)]), "null")
        kept: dict[str, Any] = {}
        for part in flat or ["int"]:
            kept.setdefault(part if isinstance(part, str) else part.get("ref") or part["type"], part)
        return list(kept.values())

    def _define(self, kind: str, depth: int) -> Any:
        name = self._name({"enum": "E", "fixed": "F", "record": "R"}[kind])
        given: dict[str, Any] = {
            "type": kind,
            "name": name,
            "namespace": self.rng.choice(["", "", "", "a", "a.b", "c"]),
        }
        self.types[name] = given
        if kind == "enum":
            given["symbols"] = self.rng.sample(["A", "B", "C", "D", "E"], self.rng.randint(1, 4))
        elif kind == "fixed":
            given["size"] = self.rng.choice([1, 4, 16])
            if given["size"] == 16 and self._maybe(0.5):
                given["logicalType"] = "uuid"
            elif self._maybe(0.5):
                given |= {"logicalType": "decimal", "precision": self.rng.choice([2, 9, 20]), "scale": 1}
        else:
            given["fields"] = []  # while it is empty, no other place refers to this record
            fields = [self._field(depth + 1) for _ in range(self.rng.randint(1, 4))]
            if self._maybe(0.15):
                fields.append({"name": self._name("f"), "type": ["null", {"ref": name}]})
            if self._maybe(0.1):
                fields.append({"name": self._name("f"), "type": {"type": "array", "items": {"ref": name}}})
            given["fields"] = fields
        return {"ref": name}

    def _field(self, depth: int) -> dict[str, Any]:
        return {"name": self._name("f"), "type": self.node(depth)}

    # --- evolution ---------------------------------------------------------------------------------------------------

    def evolved(self, node: Any, depth: int) -> Any:
        """Returns a schema that a later version may have in place of another one."""
        if self._maybe(0.02):
            return self.node(max(depth, 2))
        if isinstance(node, list):
            return self._evolved_union(node, depth)
        if self._maybe(0.08) and node != "null":
            return self._union([self.evolved(node, depth), self.node(max(depth, 2))], self._maybe(0.5))
        if isinstance(node, dict) and "ref" in node:
            return node
        if isinstance(node, dict) and node["type"] in ("array", "map"):
            key = "items" if node["type"] == "array" else "values"
            return {**node, key: self.evolved(node[key], depth + 1)}
        kind = node if isinstance(node, str) else node["type"]
        if self._maybe(0.15) and kind in PROMOTED:
            kind = self.rng.choice(PROMOTED[kind])
            return kind if self._maybe(0.5) else self._logical(kind)
        if self._maybe(0.1):
            return self._logical(kind)
        return node

    def _logical(self, kind: str) -> Any:
        """Returns a type with another logical type, or with none."""
        fitting = [more for base, more in LOGICAL if base == kind]
        return {"type": kind, **self.rng.choice(fitting)} if fitting and self._maybe(0.8) else kind

    def _evolved_union(self, node: list[Any], depth: int) -> Any:
        if any(isinstance(part, dict) and "ref" in part for part in node):  # perhaps to the record around it
            return self._union(self.rng.sample(node, len(node)), False)
        parts = [self.evolved(part, depth) for part in node if not self._maybe(0.1)] or ["null"]
        if self._maybe(0.3):
            self.rng.shuffle(parts)
        if self._maybe(0.2):
            parts.append(self.node(max(depth, 2)))
        if self._maybe(0.1) and not isinstance(parts[0], list):
            return parts[0]
        return self._union(parts, False)

    def evolved_type(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the later version of a type with a name."""
        found = dict(given)
        if self._maybe(0.2):
            old = f"{found['namespace']}.{found['name']}".lstrip(".")
            found["name"] = self._name(found["name"][0])
            if self._maybe(0.3):
                found["namespace"] = self.rng.choice(["a", "d"])
            if self._maybe(0.7):
                found["aliases"] = [given["name"] if found["namespace"] == given["namespace"] else old, "other.X"]
        if found["type"] == "enum":
            kept = [symbol for symbol in found["symbols"] if not self._maybe(0.15)]
            found["symbols"] = [*kept, "NEW"] if self._maybe(0.3) or not kept else kept
            if self._maybe(0.3):
                self.rng.shuffle(found["symbols"])
            if self._maybe(0.4):
                found["default"] = self.rng.choice(found["symbols"])
        elif found["type"] == "fixed":
            found["size"] = 4 if self._maybe(0.05) else found["size"]
        else:
            found["fields"] = self._evolved_fields(found["fields"])
        return found

    def _evolved_fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for field in fields:
            if self._maybe(0.12):
                continue
            changed = {"name": field["name"], "type": self.evolved(field["type"], 2)}
            if self._maybe(0.15):
                changed["name"] = self._name("g")
                if self._maybe(0.8):
                    changed["aliases"] = [field["name"]]
                if self._maybe(0.6):
                    changed["default"] = None  # replaced later
            found.append(changed)
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            added = self._field(2)
            if self._maybe(0.95):
                added["default"] = None
            found.append(added)
        if self._maybe(0.3):
            self.rng.shuffle(found)
        return found or [{"name": self._name("f"), "type": "int", "default": None}]

    # --- defaults ----------------------------------------------------------------------------------------------------

    def add_defaults(self) -> None:
        """Replace the place holders of defaults."""
        fields = [field for given in self.types.values() for field in given.get("fields", ())]
        for field in fields:
            if "default" in field:
                field["default"] = self._default(field["type"], 0)

    def _default(self, node: Any, depth: int) -> Any:
        if isinstance(node, list):
            if depth > MAX_DEPTH and "null" in node:
                return None
            return self._default(node[0] if self._maybe(0.7) else self.rng.choice(node), depth)
        given = self.types[node["ref"]] if isinstance(node, dict) and "ref" in node else node
        kind = given if isinstance(given, str) else given["type"]
        if kind == "record":
            return {field["name"]: self._default(field["type"], depth + 1) for field in given["fields"]}
        if kind == "array":
            return [] if depth > MAX_DEPTH else [self._default(given["items"], depth + 1) for _ in range(2)]
        if kind == "map":
            return {} if depth > MAX_DEPTH else {"ü": self._default(given["values"], depth + 1)}
        if kind == "enum":
            return self.rng.choice(given["symbols"])
        if kind == "fixed":
            return "".join(chr(self.rng.randrange(256)) for _ in range(given["size"]))
        return self._scalar_default(kind, {} if isinstance(given, str) else given)

    def _scalar_default(self, kind: str, given: dict[str, Any]) -> Any:
        if kind == "null":
            return None
        if kind == "boolean":
            return self._maybe(0.5)
        if kind in ("int", "long"):
            return self._number(kind, given)
        if kind in ("float", "double"):
            return self.rng.choice([0, 1.5, -0.1, 1e300, 16777217, 1e-3])
        if given.get("logicalType") == "uuid":
            return str(uuid.UUID(int=self.rng.getrandbits(128)))
        return self.rng.choice(["", "a", "ÿ\x00é", "Ā"] if kind == "bytes" else ["", "a", "ÿ€\U0001f600"])

    def _number(self, kind: str, given: dict[str, Any]) -> int:
        logical = given.get("logicalType", "")
        if logical.startswith("time-"):
            return self.rng.randrange(86_400_000)
        if logical:
            return self.rng.randrange(-700_000, 2_900_000) * (1 if kind == "int" else 86_399_999)
        bits = 31 if kind == "int" else 63
        return self.rng.choice([0, -1, 7, (1 << bits) - 1, -1 << bits, self.rng.randrange(1 << bits)])

    # --- values ------------------------------------------------------------------------------------------------------

    def encoded(self, node: Any, depth: int) -> bytes:
        """Returns the bytes of a random value."""
        if isinstance(node, list):
            index = self.rng.randrange(len(node))
            if depth > MAX_DEPTH and "null" in node:
                index = node.index("null")
            return _varint(index) + self.encoded(node[index], depth + 1)
        given = self.types[node["ref"]] if isinstance(node, dict) and "ref" in node else node
        kind = given if isinstance(given, str) else given["type"]
        if kind == "record":
            return b"".join(self.encoded(field["type"], depth + 1) for field in given["fields"])
        if kind in ("array", "map"):
            count = 0 if depth > MAX_DEPTH else self.rng.randint(0, 2)
            keys = [_sized(f"k{n}".encode()) if kind == "map" else b"" for n in range(count)]
            items = [key + self.encoded(given["items" if kind == "array" else "values"], depth + 1) for key in keys]
            return (_varint(count) if count else b"") + b"".join(items) + b"\0"
        if kind == "enum":
            return _varint(self.rng.randrange(len(given["symbols"])))
        if kind == "fixed":
            return self.rng.randbytes(given["size"])
        return self._encoded_scalar(kind, {} if isinstance(given, str) else given)

    def _encoded_scalar(self, kind: str, given: dict[str, Any]) -> bytes:
        if kind == "null":
            return b""
        if kind == "boolean":
            return bytes([self._maybe(0.5)])
        if kind in ("int", "long"):
            return _varint(self._number(kind, given))
        if kind in ("float", "double"):
            number = self.rng.choice([0.0, -1.5, float("inf"), float("nan"), self.rng.uniform(-1e9, 1e9)])
            return struct.pack("<f" if kind == "float" else "<d", number)
        if given.get("logicalType") == "uuid":
            return _sized(str(uuid.UUID(int=self.rng.getrandbits(128))).encode())
        if given.get("logicalType") == "decimal":
            return _sized(self.rng.randbytes(self.rng.randint(1, 4)))
        choices = [b"", b"abc", "ü€\U0001f600".encode()] + ([b"\xff\x00"] if kind == "bytes" else [])
        return _sized(self.rng.choice(choices))


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


# --- results ---------------------------------------------------------------------------------------------------------

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


def shown(given: Any) -> str:
    """Returns a value as text, as AvroOracle.java prints it."""
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    if isinstance(given, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", given if given == given else float("nan")))
        return f"d{bits}"
    if isinstance(given, str):
        return f"s{given.encode().hex()}"
    if isinstance(given, bytes):
        return f"b{given.hex()}"
    if isinstance(given, list):
        return f"[{','.join(map(shown, given))}]"
    if isinstance(given, dict):
        return (
            "{"
            + ",".join(f"{key}:{item}" for key, item in sorted((shown(k), shown(v)) for k, v in given.items()))
            + "}"
        )
    return _shown_logical(given)


def _shown_logical(given: Any) -> str:
    if isinstance(given, datetime.datetime):
        local = given.tzinfo is None
        elapsed = (given.replace(tzinfo=datetime.UTC) if local else given) - EPOCH
        return f"{'L' if local else 'I'}{elapsed // MICROSECOND}"
    if isinstance(given, datetime.date):
        return f"D{given.toordinal() - EPOCH.toordinal()}"
    if isinstance(given, datetime.time):
        return f"T{((given.hour * 60 + given.minute) * 60 + given.second) * 1_000_000 + given.microsecond}"
    if isinstance(given, Decimal):
        sign, digits, exponent = given.as_tuple()
        return f"N{(-1) ** sign * int(''.join(map(str, digits)))}e{-int(exponent)}"
    return f"U{given}" if isinstance(given, uuid.UUID) else str(given)


def is_other(found: Any, of_java: str) -> bool:
    """Returns True if what a damaged value is here is neither what it is for Java, nor an exception.

    Some that Java reads are refused here: it ignores bits, and does not check the fields that it skips.
    """
    return not isinstance(found, Exception) and shown(found) != of_java


def java_reads(cases: Iterable[Case]) -> list[list[str]]:
    """Returns what Avro's GenericDatumReader reads for the values of each case. Errors begin with `!`."""
    lines = ["\t".join([case.writer, case.reader, *(data.hex() for data in case.values)]) for case in cases]
    class_path = ":".join(map(str, resolve("avro-1.12.2", AVRO)))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    done = subprocess.run(
        [program("java"), "-Xmx512m", quiet, "-cp", class_path, str(SOURCE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        encoding="utf-8",
    )
    return [line.split("\t") for line in done.stdout.rstrip("\n").split("\n")]


def recorded(file: Path = VALUES_OF_JAVA) -> list[list[str]]:
    """Returns what Java reads for the cases of RECORDED, or for those of another file."""
    return [line.split("\t") for line in lzma.decompress(file.read_bytes()).decode().split("\n")]


if __name__ == "__main__":
    for path, cases in (
        (VALUES_OF_JAVA, map(random_case, RECORDED)),
        (DAMAGED_VALUES_OF_JAVA, map(damaged_case, DAMAGED)),
    ):
        path.write_bytes(lzma.compress("\n".join(map("\t".join, java_reads(cases))).encode(), preset=9))
