"""Records and values that only the interpreter's stack refers to are not reused while an expression still needs them.

From Python 3.14 on, the stack may hold a reference that is not counted, because a local variable holds a counted one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from kconsumer import ConsumerRecord, decode_batches
from kconsumer.testing.batches import build_batch

COUNT, ROUNDS = 200, 20  # the interpreter specializes code that has run several times
VALUES = [b"value %03d" % number for number in range(COUNT)]
Records = Iterator[ConsumerRecord]
Kept = tuple[ConsumerRecord | bytes | None, ...]  # what an expression keeps: records and values


def advance(records: Records) -> None:
    """Take two records and read their values: the iterator has then reused every object that it may reuse."""
    for record in (next(records), next(records)):
        assert VALUES[record.offset] == record.value


def of_argument(record: ConsumerRecord, records: Records) -> Kept:
    """Returns its first argument and the value of it. The argument may be a reference of the caller's stack."""
    advance(records)
    return record, record.value


def of_arguments(value: bytes | None, _advanced: None, record: ConsumerRecord) -> Kept:
    """Returns its first and its last argument."""
    return value, record


def forget(name: str) -> None:
    """Clear a local variable of the caller."""
    sys._getframe(1).f_locals[name] = None


# --- expressions


def local_in_tuple(records: Records) -> Kept:
    record = next(records)
    found, _, value = record, advance(records), record.value
    return found, value


def temporary_in_tuple(records: Records) -> Kept:
    return (next(records), advance(records))[:1]


def temporary_value(records: Records) -> Kept:
    value, _, record = next(records).value, advance(records), next(records)
    return value, record


def local_as_argument(records: Records) -> Kept:
    record = next(records)
    return of_argument(record, records)


def temporary_as_argument(records: Records) -> Kept:
    return of_argument(next(records), records)


def arguments_around_a_call(records: Records) -> Kept:
    record = next(records)
    return of_arguments(record.value, advance(records), record)


def unpacked_arguments(records: Records) -> Kept:
    record = next(records)
    return of_arguments(*(record.value, advance(records)), record=record)


def arguments_of_c(records: Records) -> Kept:
    record = next(records)
    return (min(record, next(records), key=lambda one: (advance(records), one.offset)[1]),)


def loop_variable(records: Records) -> Kept:
    for record in records:
        return record, (advance(records), record.value)[1]
    return ()


def comprehension(records: Records) -> Kept:
    [found] = [(record, (advance(records), record.value)[1]) for record in (next(records),)]
    return found


def generator(records: Records) -> Kept:
    def produce() -> Iterator[ConsumerRecord]:
        record = next(records)
        yield record
        advance(records)
        yield record

    return tuple(produce())


def cleared_while_on_the_stack(records: Records) -> Kept:
    record = next(records)
    return (record, forget("record"), advance(records))[:1]


def conditional(records: Records) -> Kept:
    record = next(records)
    return record if advance(records) is None else next(records), record.value


# What each expression keeps: the numbers of these records, counted from the first that it takes.
EXPECTED = {
    local_in_tuple: (0, 0),
    temporary_in_tuple: (0,),
    temporary_value: (0, 3),
    local_as_argument: (0, 0),
    temporary_as_argument: (0, 0),
    arguments_around_a_call: (0, 0),
    unpacked_arguments: (0, 0),
    arguments_of_c: (0,),
    loop_variable: (0, 0),
    comprehension: (0, 0),
    generator: (0, 0),
    cleared_while_on_the_stack: (0,),
    conditional: (0, 0),
}


@pytest.mark.parametrize("keep", EXPECTED, ids=lambda keep: keep.__name__)
def test_what_the_stack_refers_to_does_not_change(keep: Callable[[Records], Kept]) -> None:
    """What an expression keeps while it reads other records is what it was, also after the loop has continued."""
    records = iter(decode_batches(build_batch(VALUES)))
    kept = [(next(records).offset + 1, keep(records)) for _ in range(ROUNDS)]
    for first, found in kept:
        assert [VALUES[first + number] for number in EXPECTED[keep]] == [
            one.value if isinstance(one, ConsumerRecord) else one for one in found
        ]
        numbers = zip(EXPECTED[keep], found, strict=True)
        assert all(one.offset == first + number for number, one in numbers if isinstance(one, ConsumerRecord))
