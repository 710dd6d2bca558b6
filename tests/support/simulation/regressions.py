"""Scenarios that once violated a rule, by name. `tools/kconsumer-simulate shrink` prints such scenarios."""

from __future__ import annotations

from support.simulation.scenario import HOUR_MS, MINUTE_MS, Fault, FaultKind, Member, Program, Scenario

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
    # A poll returned while a JoinGroup was in flight. Nothing handled the response while the application was busy, so
    # the member sent no heartbeats, and the group removed it after the session timeout.
    "busy during a rebalance": Scenario(
        3,
        (Member(Program.SLOW), Member(Program.SLOW), Member(Program.REOPEN)),
        duration_ms=20 * MINUTE_MS,
        record_interval_ms=1_000.0,
        fetch_max_wait_ms=2_500,
        session_timeout_ms=10_000,
    ),
    # The leader is a static member that returns to its group, and must keep the assignment (KIP-814). The partition was
    # added while it was away, so the metadata did not change afterwards.
    "a partition for a returned leader": Scenario(
        1017,
        (Member(Program.REOPEN, static=True),),
        (Fault(FaultKind.ADD_PARTITIONS, 600_000.0),),
        duration_ms=40 * MINUTE_MS,
        partitions=2,
        record_interval_ms=20_000.0,
    ),
    # The group becomes a classic one when its only member of the consumer protocol is removed. That member got
    # GROUP_ID_NOT_FOUND, and did not join again.
    "removed from a group of both protocols": Scenario(
        5015,
        (Member(Program.AUTO_COMMIT, stop_ms=600_000.0), Member(Program.AUTO_COMMIT, protocol="consumer")),
        (Fault(FaultKind.CUT_OFF, 300_000.0, 20_000.0, member=1),),
        duration_ms=30 * MINUTE_MS,
        session_timeout_ms=10_000,
    ),
    # A newer assignment arrived while on_assign ran. The acknowledgement of the older one did not report the new
    # partitions, which the member took at once. The coordinator gave some of them to another member.
    "a newer assignment during on_assign": Scenario(
        7,
        (Member(Program.CLOSE_IN_CALLBACK, protocol="consumer"),) * 3,
        duration_ms=20 * MINUTE_MS,
        record_interval_ms=60_000.0,
        fetch_max_wait_ms=5_000,
        max_callback_ms=15_000.0,
    ),
    # An auto-commit was in flight while the application sought to the beginning. Its offset was behind the marker of a
    # transaction, so the journal took the commit for one of records that were read after the seek.
    "a commit in flight during a seek": Scenario(
        28,
        (Member(Program.SEEK_TO_ENDS, engine="asyncio", protocol="consumer"),),
        duration_ms=40 * MINUTE_MS,
        partitions=12,
        record_interval_ms=5_000.0,
        fetch_max_wait_ms=5_000,
        session_timeout_ms=10_000,
        transactions=True,
    ),
    # Records arrived shortly before the timeout of a poll. The deserializer then awaited something for two of them. A
    # timeout does not limit user code, but the program did not report this time.
    "slow results of a deserializer": Scenario(
        1,
        (Member(Program.CANCEL, engine="asyncio"),),
        duration_ms=20 * MINUTE_MS,
        partitions=1,
        record_interval_ms=20_000.0,
        fetch_max_wait_ms=5_000,
    ),
    # The process crashed in a callback. When the simulation had ended, the callback and the poll of the crashed process
    # returned, and the journal took that for a late call.
    "a crash in a callback": Scenario(
        3,
        (Member(Program.AUTO_COMMIT, engine="asyncio", protocol="consumer"),),
        (Fault(FaultKind.CRASH, 100.0),),
        duration_ms=20 * MINUTE_MS,
        partitions=1,
        record_interval_ms=60_000.0,
        session_timeout_ms=10_000,
    ),
    # The last member of the consumer protocol left, and another one joined before the classic members had joined again.
    # The coordinator, as Kafka's, had stored a target assignment as what they own, and gave one partition away.
    "a group that changes its protocol twice": Scenario(
        7,
        (Member(Program.AUTO_COMMIT), Member(Program.CLOSE_IN_HANDLER, protocol="consumer")),
        duration_ms=20 * MINUTE_MS,
        partitions=3,
        record_interval_ms=60_000.0,
        fetch_max_wait_ms=5_000,
        session_timeout_ms=10_000,
    ),
}
