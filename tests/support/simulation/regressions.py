"""Scenarios that once violated a rule, by name. `tools/kconsumer-simulate shrink` prints such scenarios."""

from __future__ import annotations

from support.simulation.scenario import HOUR_MS, Fault, FaultKind, Member, Program, Scenario

REGRESSIONS: dict[str, Scenario] = {
    # The model's own rebalance of leaders moves the coordinator. The lookup of the new one waits for a long Fetch.
    "a lookup behind a Fetch": Scenario(
        2,
        (Member(Program.ITERATE, engine="threaded"), Member(Program.ITERATE, static=True)),
        (Fault(FaultKind.MOVE_LEADERS, 757_876.0, 20_411.0, member=1, broker=2),),
        duration_ms=HOUR_MS,
        partitions=12,
        record_interval_ms=60_000.0,
        fetch_max_wait_ms=5_000,
        session_timeout_ms=10_000,
    ),
}
