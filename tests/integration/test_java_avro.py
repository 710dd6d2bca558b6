"""Avro values compared with Java's reader, which runs now: the recorded results are still its results, and others."""

from __future__ import annotations

import pytest

from kconsumer.formats.avro_resolution import reader_of
from kconsumer.formats.avro_schemas import parse
from kconsumer.registry.avro import OBJECTS
from support.oracles.avro_cases import RECORDED, Case, java_reads, random_case, recorded, shown

LONG = range(len(RECORDED), 20_000)


def read(case: Case, data: bytes) -> str:
    """Returns a value as Java prints it, or "!" if it cannot be read."""
    try:
        return shown(reader_of(parse(case.writer), parse(case.reader), OBJECTS)(data, 0))
    except Exception:  # of many classes
        return "!"


@pytest.mark.timeout(900)
def test_more_cases() -> None:
    """Java reads the recorded cases as before, and all values of other cases as we do."""
    assert recorded() == java_reads(map(random_case, RECORDED))
    cases = [random_case(seed) for seed in LONG]
    wrong = []
    for seed, case, results in zip(LONG, cases, java_reads(cases), strict=True):
        found = [read(case, data) for data in case.values]
        wrong += [(seed, got, want) for got, want in zip(found, results, strict=True) if want not in (got, "?")]
    assert [] == wrong[:3]
