"""Avro values compared with Java's reader, which runs now: the recorded results are still its results, and others."""

from __future__ import annotations

from typing import Any

import pytest

from kconsumer.formats.avro_resolution import reader_of
from kconsumer.formats.avro_schemas import parse
from kconsumer.registry.avro import OBJECTS
from support.oracles.avro_cases import (
    DAMAGED,
    DAMAGED_VALUES_OF_JAVA,
    RECORDED,
    Case,
    damaged_case,
    is_other,
    java_reads,
    random_case,
    recorded,
    shown,
)

LONG = range(len(RECORDED), 20_000)


def read(case: Case) -> list[Any]:
    """Returns the values of a case, or the exceptions in place of those that cannot be read."""
    found: list[Any] = []
    read_one = None
    for data in case.values:
        try:
            read_one = read_one or reader_of(parse(case.writer), parse(case.reader), OBJECTS)
            found.append(read_one(data, 0))
        except Exception as error:  # of many classes
            found.append(error)
    return found


@pytest.mark.timeout(900)
def test_more_cases() -> None:
    """Java reads the recorded cases as before, and all values of other cases as we do."""
    assert recorded() == java_reads(map(random_case, RECORDED))
    cases = [random_case(seed) for seed in LONG]
    wrong = []
    for seed, case, results in zip(LONG, cases, java_reads(cases), strict=True):
        found = ["!" if isinstance(got, Exception) else shown(got) for got in read(case)]
        wrong += [(seed, got, want) for got, want in zip(found, results, strict=True) if want not in (got, "?")]
    assert [] == wrong[:3]


@pytest.mark.timeout(900)
def test_more_damage() -> None:
    """Java reads the recorded damaged values as before. Other damaged values are refused here, or are those of Java."""
    assert recorded(DAMAGED_VALUES_OF_JAVA) == java_reads(map(damaged_case, DAMAGED))
    whole, cases = java_reads(map(random_case, LONG)), [damaged_case(seed) for seed in LONG]
    wrong = []
    for seed, case, results, intact in zip(LONG, cases, java_reads(cases), whole, strict=True):
        if "?" not in intact:  # else Java refuses whole values
            wrong += [(seed, got, want) for got, want in zip(read(case), results, strict=True) if is_other(got, want)]
    assert [] == wrong[:3]
