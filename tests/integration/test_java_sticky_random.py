"""The sticky assignors compared with Java's on random rebalances: mixed subscriptions, conflicting claims, racks,
changes.

Both start from the same claims and rebalance until nothing changes. Ours must never be worse by balance, then by
partitions read in the reader's rack, then by partitions that their owner keeps without an interruption, then (`sticky`)
by partitions with a member that claims them in vain. Where Java keeps more partitions, it is less balanced or reads
fewer in the rack. That order is the one of KIP-54 and KIP-881. `support/oracles/assignor_optimum.py` proves for each
case of `sticky` that no assignment of equal balance and locality keeps more. Cases in which Java raises, makes an
invalid assignment or does not settle are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from kconsumer.assignors import Subscription
from kconsumer.types import TopicPartition
from support.oracles.assignor_cases import Case, Outcome, random_case
from support.oracles.assignor_groups import lists
from support.oracles.assignor_optimum import improvement
from support.oracles.assignor_oracle import AssignorOracle

SHORT = range(500)
LONG = range(500, 10_000)


@pytest.fixture(scope="module")
def java() -> Iterator[AssignorOracle]:
    """One JVM for all cases."""
    with AssignorOracle() as oracle:
        yield oracle


def of_java(java: AssignorOracle, case: Case) -> Outcome | None:
    """Returns the result of Java's assignor for a case, or None if Java fails."""

    def assign(subscriptions: dict[str, Subscription]) -> Mapping[str, list[TopicPartition]] | None:
        found = java.assign(case.name, case.view, subscriptions)
        return None if found.failure else found.given

    return case.settle(assign)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_no_random_case_is_worse_than_in_java(java: AssignorOracle, seeds: range) -> None:
    """In no random case our result is worse than Java's. `random_case(seed)` makes the case that a failure names."""
    results: Counter[str] = Counter()
    for seed in seeds:
        case = random_case(seed)
        ours = case.settle(lambda subscriptions, case=case: lists(case.name, case.view, subscriptions))
        assert ours is not None, case
        assert ours.rounds <= 3, case  # one to revoke, one to assign, and one that changes nothing
        if case.name == "sticky":
            assert [] == improvement(case, ours.given), case
        theirs = of_java(java, case)
        if theirs is None:
            results["failed in Java"] += 1
            continue
        assert ours.rank() <= theirs.rank(), f"{ours.rank()} {theirs.rank()} {case}"
        results["better" if ours.rank() < theirs.rank() else "equal"] += 1
        if ours.kept < theirs.kept:
            results["kept fewer, more even" if ours.imbalance < theirs.imbalance else "kept fewer, more local"] += 1
    print(dict(results))
    assert results["failed in Java"] < len(seeds) / 10
    assert results["better"] > len(seeds) / 10
