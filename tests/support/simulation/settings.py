"""What all runs have in common: names, timeouts, and when producers and programs slow down."""

from __future__ import annotations

from support.simulation.scenario import MINUTE_MS

HEADER, SELECTED, DROPPED = "kind", b"selected", b"dropped"  # of the records in a run with filters
TOPIC = "t"
GROUP = "g"
USER, PASSWORD = "alice", "secret"
SASL_SESSION_MS = 120_000  # connections authenticate again (KIP-368)
POLL_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 30.0
MAX_POLL_INTERVAL_MS = 120_000
LAST_APPEND_MS = 8 * MINUTE_MS  # no record is written in the last minutes of a run, so that slow members catch up
ERROR_PAUSE_MS = 100.0  # a program pauses after an error, as applications should
MAX_RAISING_MS = 6_000.0  # how long callbacks raise exceptions
MAX_FAILURES = 50  # a program opens another consumer after this many errors in a row that cannot be retried
HEARTBEAT_INTERVAL_MS = 3_000


def is_selected(offset: int) -> bool:
    """Returns True if the filters select the record at this offset."""
    return offset // 4 % 3 != 1
