"""Counts instructions per record by callgrind: `python benchmarks/micro/instructions.py [--check] [--write] [case …]`.

Counts do not depend on other work on the machine, so a change of a few percent is visible anywhere. Only passes over
existing bytes are counted, without the first one. The counts include Python's own instructions, so only figures of one
Python version and one compiler can be compared.

`--check` compares with `benchmarks/results/instructions.json` and fails if a case needs 3 % more; `--write` writes that
file. Callgrind has no 512-bit registers: checksums are computed in the 128-bit way.
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
from pathlib import Path

from corpora import HEADERS, batches, transactions
from decode import COLUMNS, columns, loop, scan, value

from kconsumer._core.crc import crc32c_kinds

KEPT = Path(__file__).resolve().parents[1] / "results" / "instructions.json"
RECORDS, PASSES, TOLERANCE = 3200, 4, 0.03
MARK = "*pw*crc32c_kinds*"  # the C function of `crc32c_kinds`, which nothing else calls; callgrind dumps before it

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


def run(cases: list[str]) -> None:
    """Run the cases in the measured process, with marks before and after the counted passes."""
    for case in cases:
        make, work = CASES[case]
        data = make()
        work(data)
        crc32c_kinds()
        for _ in range(PASSES):
            work(data)
        crc32c_kinds()


def count(cases: list[str]) -> dict[str, float]:
    """Return instructions per record of each case."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder, "dump")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={dumps}", f"--dump-before={MARK}"]
        command += [sys.executable, __file__, "--run", *cases]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not Path(f"{dumps}.{2 * len(cases)}").exists():
            raise SystemExit(f"callgrind did not see the marks:\n{done.stderr}")
        # Every second dump contains the passes, and those between contain their preparation.
        found = [total(Path(f"{dumps}.{2 * i + 2}")) for i in range(len(cases))]
    return {case: round(counted / PASSES / RECORDS, 1) for case, counted in zip(cases, found, strict=True)}


def total(dump: Path) -> int:
    """Return the number of all instructions in a dump."""
    (line,) = re.findall(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE)[:1]
    return int(line)


def setting() -> dict[str, str]:
    """Return the properties that figures depend on."""
    return {
        "python": platform.python_version(),
        "compiler": str(sysconfig.get_config_var("CC")),
        "machine": platform.machine(),
    }


def main() -> None:
    """Measure the cases; print, compare and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"one of {', '.join(CASES)}; default: all")
    parser.add_argument("--check", action="store_true", help="fail if a case needs 3 %% more than the stored figure")
    parser.add_argument("--write", action="store_true", help=f"store the figures in {KEPT.name}")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = options.case or list(CASES)
    if options.run:
        run(cases)
        return
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"setting": {}, "cases": {}}
    if kept["setting"] and kept["setting"] != setting():
        print(f"the stored figures are of another setting: {kept['setting']}", file=sys.stderr)
    worse, found = [], count(cases)
    for case, counted in found.items():
        before = kept["cases"].get(case)
        change = "" if before is None else f"{counted / before - 1:+.1%}"
        print(f"  {case:22} {counted:10.1f} {change:>8}")
        if before is not None and counted > before * (1 + TOLERANCE):
            worse.append(case)
    if options.write:
        KEPT.write_text(json.dumps({"setting": setting(), "cases": kept["cases"] | found}, indent=1) + "\n")
    if options.check and worse:
        raise SystemExit(f"more instructions than before: {', '.join(worse)}")


if __name__ == "__main__":
    main()
