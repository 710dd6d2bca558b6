"""kconsumer.parallel with batches, in a group whose members are killed, stopped and replaced.

test_chaos.py does the same, and more, with handlers of single records.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from support.brokers.kafka import Kafka
from support.members.parallel_group import SESSION_MS, ParallelGroup

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("executor", ["threads", "processes", "asyncio"])
def test_members_with_batches_are_killed_and_stopped(
    kafka: Kafka, topic_name: str, tmp_path: Path, executor: str
) -> None:
    """No record is lost, and those of a key are processed one after the other, by all members."""
    options = {"session_timeout_ms": SESSION_MS}
    with ExitStack() as stack:
        group = ParallelGroup(
            kafka, topic_name, tmp_path, stack, order="key", executor=executor, batch=[10, 0.02], options=options
        )
        group.run_storms(1)
