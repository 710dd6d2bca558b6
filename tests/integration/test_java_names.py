"""Kafka's own classes: docs/coming-from/java.md names all methods and other defaults, and error codes are the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from kconsumer._common.error_codes import CODES
from kconsumer.config.options import OPTIONS, canonical_name
from support.brokers.kafka_jars import DEFAULT_VERSION, kafka_jars, program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "coming-from" / "java.md").read_text(encoding="utf-8")
SOURCE = ROOT / "tests" / "support" / "java" / "ClientNames.java"
DATA = ROOT / "tests" / "unit" / "config" / "data"
INTERNAL = {"internal.throw.on.fetch.stable.offset.unsupported"}
RETRIABLE_HERE = {"REBOOTSTRAP_REQUIRED"}  # the client bootstraps again by itself
# Options whose default is the same in another form: a list of classes, and "true with a group".
SAME = {"bootstrap.servers", "enable.auto.commit", "partition.assignment.strategy"}


@pytest.fixture(scope="module")
def java() -> list[list[str]]:
    """The lines that the Java program prints, in columns."""
    class_path = os.pathsep.join(map(str, kafka_jars(DEFAULT_VERSION)))
    command = [program("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("client", "heading"), [("KafkaConsumer", "Calls"), ("KafkaShareConsumer", "Calls of a share consumer")]
)
def test_every_method_is_named(java: list[list[str]], client: str, heading: str) -> None:
    """The table of calls has each public method of Java's class, and no other."""
    table = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    left = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    named = {name for cell in left for name in re.findall(r"\bconsumer\.(\w+)\(", cell)}
    assert {row[1] for row in java if row[0] == client} == named


def test_options_and_other_defaults_are_listed(java: list[list[str]]) -> None:
    """`option_names.json` has Java's options, and `option_defaults.json` those with another default here."""
    theirs = {row[1]: row[2] for row in java if row[0] == "option" and row[1] not in INTERNAL}
    names = json.loads((DATA / "option_names.json").read_text(encoding="utf-8"))
    assert set(names["Java 4.4 (consumer)"]) == theirs.keys()
    ours = {name: OPTIONS[canonical_name(name)].default for name in theirs if canonical_name(name) in OPTIONS}
    different = {name for name, default in ours.items() if text(default) != text(theirs[name])} - SAME
    listed = json.loads((DATA / "option_defaults.json").read_text(encoding="utf-8"))["java"]
    assert different == listed.keys()
    assert [] == [name for name, default in listed.items() if not theirs[name].rstrip("]").endswith(default)]


def test_error_codes_are_kafkas(java: list[list[str]]) -> None:
    """Every error code has Kafka's name, and is retriable where it is in Java, with the exceptions above."""
    theirs = {
        int(code): (name, retriable == "true") for code, name, retriable in (r[1:] for r in java if r[0] == "error")
    }
    ours = {code: (row.name, row.retriable) for code, row in CODES.items()}
    assert theirs.keys() - {-1, 0} == ours.keys() - {-1, 0}
    assert RETRIABLE_HERE == {name for code, (name, retriable) in ours.items() if (name, retriable) != theirs[code]}


def text(value: object) -> str:
    """Returns a default in a form in which ours and Java's can be compared."""
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return "" if value in (None, "null") else str(value).lower().strip("[]").replace(" ", "")
