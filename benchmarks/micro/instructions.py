"""Counts instructions by callgrind: `python benchmarks/micro/instructions.py [--check] [--write] [case …]`.

Cases of decoders count instructions per record, without the first pass over the bytes. The others are operations of a
consumer (see `operations.py`), such as "fetch cycle, classic", and count instructions per operation, of all threads.

Counts hardly depend on other work on the machine, so a change of a few percent is visible anywhere. They include
Python's own instructions, so figures of another Python version or compiler differ.

`--check` compares with `benchmarks/results/instructions.json` and fails if a case needs more: 3 % for decoders, 5 % for
operations, 15 % for heartbeats, whose timers follow the real time, and 25 % with another Python or compiler than that
of the file.
`--write` writes the file. Callgrind has no 512-bit registers: checksums are computed in the 128-bit way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from corpora import HEADERS, batches, transactions
from decode import COLUMNS, columns, loop, scan, value
from operations import ENGINES, HEARTBEAT, OPERATIONS, Plan, Run, open_consumer, perform

from kconsumer._core.decode import crc32, crc32c_kinds

KEPT = Path(__file__).resolve().parents[1] / "results" / "instructions.json"
RECORDS, PASSES = 3200, 4
# A batch has many operations, so that what happens once in a while, such as a timer, counts for little.
PLAN, HEARTBEAT_PLAN = Plan(4, 64, 4), Plan(2, 6, 3, heartbeat_ms=1500)
TOLERANCE, OPERATION_TOLERANCE, HEARTBEAT_TOLERANCE, OTHER_SETTING_TOLERANCE = 0.03, 0.05, 0.15, 0.25
# The C functions of `crc32c_kinds` and `crc32`, which nothing else calls. Before them callgrind writes a file, and sets
# the counts of the calling thread to 0. It does not find the second pattern if both begin with the same letters. To
# write a file takes long, so timers may be due afterwards, and a warm-up precedes each batch.
DUMP, RESET = "*pw*crc32c_kinds*", "*3crc_*crc32"

Case = tuple[Callable[[], bytes], Callable[[bytes], int]]


def plain() -> bytes:
    return batches(RECORDS)


def headed() -> bytes:
    return batches(RECORDS, headers=HEADERS)


CASES: dict[str, Case] = {
    "scan": (plain, scan),
    "scan, 1 KB": (lambda: batches(RECORDS, size=1000), scan),
    "scan, two headers": (headed, scan),
    "scan, transactional": (lambda: transactions(RECORDS)[0], scan),
    "scan, lz4": (lambda: batches(RECORDS, "lz4"), scan),
    "loop": (plain, loop),
    "value": (plain, value),
    "value, decoded": (plain, lambda data: value(data, decode=True)),
    "columns": (plain, lambda data: columns(data, COLUMNS["columns"])),
    "v column": (plain, lambda data: columns(data, COLUMNS["v column"])),
    "h column": (headed, lambda data: columns(data, COLUMNS["h column"])),
}

OPERATION_CASES = {f"{operation}, {engine}": (operation, engine) for operation in OPERATIONS for engine in ENGINES}


def decode(cases: list[str]) -> None:
    """Run the cases of decoders in the measured process, with marks before and after the counted passes."""
    for case in cases:
        make, work = CASES[case]
        data = make()
        work(data)
        crc32c_kinds()
        for _ in range(PASSES):
            work(data)
        crc32c_kinds()


def operate(operation: str, engine: str, servers: str) -> None:
    """Perform the operation in the measured process, and print the sizes of the batches as JSON."""
    plan = plan_of(operation)
    consumer = open_consumer(operation, engine, servers, plan)
    sizes = perform(operation, consumer, plan, lambda: crc32(b""), crc32c_kinds)
    print(json.dumps(sizes), flush=True)
    os._exit(0)


def plan_of(operation: str) -> Plan:
    """Returns how often an operation is repeated."""
    return HEARTBEAT_PLAN if operation == HEARTBEAT else PLAN


def count(cases: list[str]) -> dict[str, float]:
    """Returns the instructions of each case: per record, or per operation."""
    decoders = [case for case in cases if case in CASES]
    found = count_decoders(decoders) if decoders else {}
    return found | {case: count_operation(*OPERATION_CASES[case]) for case in cases if case in OPERATION_CASES}


def count_decoders(cases: list[str]) -> dict[str, float]:
    """Returns the instructions per record of each case of a decoder."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder, "dump")
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = callgrind(dumps, "--decode", *cases)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not Path(f"{dumps}.{2 * len(cases)}").exists():
            raise SystemExit(f"callgrind did not see the marks:\n{done.stderr}")
        # Every second dump contains the passes, and those between contain their preparation.
        found = [total(Path(f"{dumps}.{2 * i + 2}")) for i in range(len(cases))]
    return {case: round(counted / PASSES / RECORDS, 1) for case, counted in zip(cases, found, strict=True)}


def count_operation(operation: str, engine: str) -> float:
    """Returns the instructions per operation of the batch with the fewest: timers only add instructions."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder, "dump")
        command = partial(callgrind, dumps, "--operate", operation, engine)
        sizes = json.loads(Run(operation, plan_of(operation), command).output())
        return round(min(total(Path(f"{dumps}.{i}")) / size for i, size in enumerate(sizes, start=1)))


def callgrind(dumps: Path, *arguments: str) -> list[str]:
    """Returns the command that runs this file under callgrind, which writes its dumps to `dumps`.1 and so on."""
    options = [
        "--quiet",
        "--tool=callgrind",
        f"--callgrind-out-file={dumps}",
        f"--dump-before={DUMP}",
        f"--zero-before={RESET}",
    ]
    return ["valgrind", *options, sys.executable, __file__, *arguments]


def total(dump: Path) -> int:
    """Returns the number of all instructions in a dump."""
    (line,) = re.findall(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)[:1]
    return int(line)


def setting() -> dict[str, str]:
    """Returns the properties that figures depend on."""
    return {
        "python": platform.python_version(),
        "compiler": str(sysconfig.get_config_var("CC")),
        "machine": platform.machine(),
    }


def tolerance(case: str, same_setting: bool) -> float:
    """Returns by which share a case may exceed its stored figure."""
    if not same_setting:
        return OTHER_SETTING_TOLERANCE
    if case in CASES:
        return TOLERANCE
    return HEARTBEAT_TOLERANCE if case.startswith(HEARTBEAT) else OPERATION_TOLERANCE


def exceeding(kept: dict[str, Any], found: dict[str, float]) -> list[str]:
    """Returns the cases that need more instructions than the stored figures allow."""
    same = kept["setting"] == setting()
    stored = kept["cases"]
    return [case for case in found if case in stored and found[case] > stored[case] * (1 + tolerance(case, same))]


def main() -> None:
    """Measure the cases; print, compare and write the figures."""
    cases = [*CASES, *OPERATION_CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"one of: {'; '.join(cases)}; default: all")
    parser.add_argument("--check", action="store_true", help="fail if a case needs more than its stored figure allows")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {KEPT.name}")
    parser.add_argument("--decode", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--operate", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.decode:
        decode(options.decode)
        return
    if options.operate:
        operate(*options.operate)
        return
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"setting": {}, "cases": {}}
    if kept["setting"] and kept["setting"] != setting():
        print(f"the stored figures are of another setting: {kept['setting']}", file=sys.stderr)
    found = count(options.case or cases)
    for case, counted in found.items():
        before = kept["cases"].get(case)
        change = "" if before is None else f"{counted / before - 1:+.1%}"
        print(f"  {case:30} {counted:12.1f} {change:>8}")
    if options.write:
        KEPT.write_text(json.dumps({"setting": setting(), "cases": kept["cases"] | found}, indent=1) + "\n")
    if options.check and (worse := exceeding(kept, found)):
        raise SystemExit(f"more instructions than before: {', '.join(worse)}")


if __name__ == "__main__":
    main()
