"""The integration tests that do not run on the model of a cluster, with the reason of each."""

from __future__ import annotations

#: Modules of tests/integration, or single tests of them as `module::test`, and what they need.
NEED_REAL_BROKERS: dict[str, str] = {
    "test_broker_runner.py": "is about the runner of real brokers",
}


def needs_real_broker(node_id: str) -> bool:
    """Returns True if a test, given by its id in pytest, does not run on the model."""
    module, _, test = node_id.rpartition("/")[2].partition("::")
    name = test.partition("[")[0]
    return module in NEED_REAL_BROKERS or f"{module}::{name}" in NEED_REAL_BROKERS
